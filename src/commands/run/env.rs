//! The variables that lead a command to its proxy.
//!
//! No two clients read the same ones: curl takes `http_proxy` in lower case alone, wget no CA variable at all, Ruby `http_proxy` for
//! HTTPS, Node its own set. So all are set, in both cases. A variable that *replaces* the trusted certificates names a bundle of the
//! system's, the user's and ours, since hosts that are passed through show their own; one that *adds* to them names ours alone (with
//! what the user had there). Pure: from the user's variables and the names of files to a list.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;

use crate::ca::forms;

/// The user's own environment.
pub(super) type User<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// What the variables are made from.
pub(super) struct Facts<'a> {
    /// The proxy with the credentials that identify the run.
    pub(super) url: &'a str,
    /// The proxy without them, for those who cannot read that.
    pub(super) proxy: SocketAddr,
    /// Whether NO_PROXY stays.
    pub(super) keep_no_proxy: bool,
    /// Our CA, and what the user added to the trusted certificates.
    pub(super) added: &'a Path,
    /// All that is trusted.
    pub(super) bundle: &'a Path,
    /// The settings of wget.
    pub(super) wgetrc: &'a Path,
    /// Java's trust store, with `--java`.
    pub(super) java: Option<&'a Path>,
    /// A home for browsers, with `--browser`.
    pub(super) home: Option<&'a Path>,
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
pub(super) fn variables(facts: &Facts<'_>, user: User<'_>) -> Vec<(&'static str, Option<OsString>)> {
    let mut variables: Vec<(&'static str, Option<OsString>)> = Vec::new();
    variables.extend(PROXY.map(|name| (name, Some(facts.url.into()))));
    variables.extend(REPLACING.map(|name| (name, Some(facts.bundle.into()))));
    variables.extend(ADDING.map(|name| (name, Some(facts.added.into()))));
    // wget of Debian reads no variable but this one.
    variables.push(("WGETRC", Some(facts.wgetrc.into())));
    // Node reads the proxy variables only if it is told to.
    variables.push(("NODE_USE_ENV_PROXY", Some("1".into())));
    if let Some(store) = facts.java {
        variables.push((JAVA, Some(java(user(JAVA), facts, store))));
    }
    if let Some(home) = facts.home {
        variables.push(("HOME", Some(home.into())));
    }
    if !facts.keep_no_proxy {
        variables.extend(NO_PROXY.map(|name| (name, None)));
    }
    variables
}

/// Every Java virtual machine reads it, and says so on standard error.
const JAVA: &str = "JAVA_TOOL_OPTIONS";

/// The user's options, and after them ours, which win. Without nonProxyHosts Java asks localhost directly.
fn java(own: Option<OsString>, facts: &Facts<'_>, store: &Path) -> OsString {
    let (host, port) = (facts.proxy.ip(), facts.proxy.port());
    let direct = if facts.keep_no_proxy { "" } else { " -Dhttp.nonProxyHosts=" };
    let mut options = own.unwrap_or_default();
    if !options.is_empty() {
        options.push(" ");
    }
    options.push(format!(
        "-Dhttp.proxyHost={host} -Dhttp.proxyPort={port} -Dhttps.proxyHost={host} -Dhttps.proxyPort={port}{direct} \
         \"-Djavax.net.ssl.trustStore={}\" -Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStorePassword={}",
        store.display(),
        forms::PASSWORD
    ));
    options
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
        let (url, proxy) = ("http://run-1:x@127.0.0.1:4000", SocketAddr::from(([127, 0, 0, 1], 4000)));
        Facts { url, proxy, keep_no_proxy, added, bundle, wgetrc, java: None, home: None }
    }

    fn nobody(_: &str) -> Option<OsString> {
        None
    }

    #[test]
    fn the_users_options_for_java_come_first_and_the_home_changes_only_for_browsers() {
        let user = |name: &str| (name == "JAVA_TOOL_OPTIONS").then(|| "-Xmx1g".into());
        let facts =
            Facts { java: Some(Path::new("/a b/trust.p12")), home: Some(Path::new("/run/home")), ..facts(false) };
        let variables = variables(&facts, &user);
        let options = variables.iter().find(|(name, _)| *name == "JAVA_TOOL_OPTIONS").unwrap().1.clone().unwrap();
        let options = options.to_str().unwrap();
        assert!(options.starts_with("-Xmx1g -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=4000 "), "{options}");
        assert!(options.contains("\"-Djavax.net.ssl.trustStore=/a b/trust.p12\""), "{options}");
        assert!(variables.contains(&("HOME", Some("/run/home".into()))));
        assert!(
            super::variables(&super::tests::facts(false), &user).iter().all(|(name, _)| !["HOME", JAVA].contains(name))
        );
    }

    #[test]
    fn every_proxy_variable_is_set_in_both_cases_and_the_way_round_is_closed() {
        let variables = variables(&facts(false), &nobody);
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
        assert!(
            super::variables(&facts(true), &nobody).iter().all(|(name, _)| !name.to_lowercase().contains("no_proxy"))
        );
        let user = |name: &str| (name == "NO_PROXY").then(|| "localhost".into());
        assert_eq!(no_proxy(&user), Some(("NO_PROXY", "localhost".into())));
    }

    #[test]
    fn what_replaces_the_trusted_certificates_names_the_bundle_and_what_adds_to_them_ours() {
        for (name, value) in variables(&facts(false), &nobody) {
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
