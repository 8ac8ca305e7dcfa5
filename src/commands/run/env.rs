//! The variables that lead a command to its proxy.
//!
//! No two clients read the same ones: curl takes `http_proxy` in lower case alone, wget no CA variable at all, Ruby `http_proxy` for
//! HTTPS, Node its own set. So all are set, in both cases. A variable that *replaces* the trusted certificates names a bundle of the
//! system's, the user's and ours, since hosts that are passed through show their own; one that *adds* to them names ours alone (with
//! what the user had there). Pure: from the user's variables and the names of files to a list.

use std::ffi::OsString;
use std::path::Path;

/// The user's own environment.
pub(super) type User<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// What the variables are made from.
pub(super) struct Facts<'a> {
    /// The proxy with the credentials that identify the run.
    pub(super) url: &'a str,
    /// Whether NO_PROXY stays.
    pub(super) keep_no_proxy: bool,
    /// Our CA, and what the user added to the trusted certificates.
    pub(super) added: &'a Path,
    /// All that is trusted.
    pub(super) bundle: &'a Path,
    /// The settings of wget.
    pub(super) wgetrc: &'a Path,
}

/// Read in one case or the other, or both.
const PROXY: [&str; 6] = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];

/// Hosts that are asked directly: a way round the proxy.
const NO_PROXY: [&str; 4] = ["no_proxy", "NO_PROXY", "npm_config_noproxy", "NPM_CONFIG_NOPROXY"];

/// Name all certificates that are trusted.
pub(super) const REPLACING: [&str; 14] = [
    "SSL_CERT_FILE",      // OpenSSL, Python, httpx, Go, Ruby, rustls-native-certs, uv
    "REQUESTS_CA_BUNDLE", // requests, pip
    "CURL_CA_BUNDLE",     // curl
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "BUNDLE_SSL_CA_CERT", // Bundler
    "NPM_CONFIG_CAFILE",
    "npm_config_cafile",
    // Where one of these is set, it goes before the others.
    "NIX_SSL_CERT_FILE",
    "HTTPLIB2_CA_CERTS",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
];

/// Name certificates that are trusted beside others.
pub(super) const ADDING: [&str; 2] = ["NODE_EXTRA_CA_CERTS", "DENO_CERT"];

/// Each variable with its value, or none where it must not be set.
pub(super) fn variables(facts: &Facts<'_>) -> Vec<(&'static str, Option<OsString>)> {
    let mut variables: Vec<(&'static str, Option<OsString>)> = Vec::new();
    variables.extend(PROXY.map(|name| (name, Some(facts.url.into()))));
    variables.extend(REPLACING.map(|name| (name, Some(facts.bundle.into()))));
    variables.extend(ADDING.map(|name| (name, Some(facts.added.into()))));
    // wget of Debian reads no variable but this one.
    variables.push(("WGETRC", Some(facts.wgetrc.into())));
    // Node reads the proxy variables only if it is told to.
    variables.push(("NODE_USE_ENV_PROXY", Some("1".into())));
    if !facts.keep_no_proxy {
        variables.extend(NO_PROXY.map(|name| (name, None)));
    }
    variables
}

/// The user's NO_PROXY, under the name that it has.
pub(super) fn no_proxy(user: User<'_>) -> Option<(&'static str, OsString)> {
    NO_PROXY.into_iter().find_map(|name| Some((name, user(name)?)))
}

/// What wget reads: the user's settings, and after them ours, which win.
pub(super) fn wgetrc(own: &str, url: &str, bundle: &Path, keep_no_proxy: bool) -> String {
    let no_proxy = if keep_no_proxy { "" } else { "no_proxy =\n" };
    format!(
        "{own}\nuse_proxy = on\nhttp_proxy = {url}\nhttps_proxy = {url}\nca_certificate = {}\n{no_proxy}",
        bundle.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(keep_no_proxy: bool) -> Facts<'static> {
        let [added, bundle, wgetrc] = ["/run/ca.pem", "/run/bundle.pem", "/run/wgetrc"].map(Path::new);
        Facts { url: "http://run-1:x@127.0.0.1:4000", keep_no_proxy, added, bundle, wgetrc }
    }

    #[test]
    fn every_proxy_variable_is_set_in_both_cases_and_the_way_round_is_closed() {
        let variables = variables(&facts(false));
        for name in ["http_proxy", "https_proxy", "all_proxy"] {
            for name in [name.to_owned(), name.to_uppercase()] {
                let value = variables.iter().find(|(known, _)| *known == name).and_then(|(_, value)| value.clone());
                assert_eq!(value, Some("http://run-1:x@127.0.0.1:4000".into()), "{name}");
            }
        }
        for name in ["no_proxy", "NO_PROXY"] {
            assert!(variables.contains(&(name, None)), "{name}");
        }
        let mut names: Vec<_> = variables.iter().map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), variables.len(), "each once");
    }

    #[test]
    fn no_proxy_is_not_touched_where_it_is_kept() {
        assert!(super::variables(&facts(true)).iter().all(|(name, _)| !name.to_lowercase().contains("no_proxy")));
        let user = |name: &str| (name == "NO_PROXY").then(|| "localhost".into());
        assert_eq!(no_proxy(&user), Some(("NO_PROXY", "localhost".into())));
    }

    #[test]
    fn what_replaces_the_trusted_certificates_names_the_bundle_and_what_adds_to_them_ours() {
        for (name, value) in variables(&facts(false)) {
            let value = value.unwrap_or_default();
            assert_eq!(value == "/run/bundle.pem", REPLACING.contains(&name), "{name}");
            assert_eq!(value == "/run/ca.pem", ADDING.contains(&name), "{name}");
        }
    }

    #[test]
    fn wget_keeps_the_users_settings_and_ours_win() {
        let text = wgetrc("user_agent = MyBot\nuse_proxy = off", "http://p:1", Path::new("/run/bundle.pem"), false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "user_agent = MyBot");
        assert!(lines.iter().position(|line| *line == "use_proxy = on") > Some(1), "{text}");
        assert!(lines.contains(&"ca_certificate = /run/bundle.pem") && lines.contains(&"no_proxy ="), "{text}");
    }
}
