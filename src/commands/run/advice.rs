//! For a command whose requests did not come through the proxy: the line that makes them come.
//!
//! A client that reads no proxy variables goes round the proxy without a word, and so does everything it fetches. Nothing having come
//! is the one sign of it. Which client it is can be guessed from the command's name alone, so the advice says what to look for.

use std::ffi::OsString;
use std::path::Path;

/// What to tell, if anything.
pub(super) fn advice(command: &[OsString], requests: u64, broken_handshakes: u64) -> Option<String> {
    if broken_handshakes > 0 {
        let what = client(command).untrusting;
        return Some(format!(
            "robots-proxy: {broken_handshakes} TLS handshakes were broken off: the client does not trust the CA. {what}\n"
        ));
    }
    (requests == 0).then(|| {
        let (name, what) = (name(command), client(command).ignoring);
        format!(
            "robots-proxy: nothing came through the proxy. If `{name}` fetched anything, it went round it. {what}\n"
        )
    })
}

/// What a client needs that the variables do not give it.
struct Client {
    /// So that it uses the proxy.
    ignoring: &'static str,
    /// So that it trusts the CA.
    untrusting: &'static str,
}

const BUNDLE: &str = "The certificate is in $SSL_CERT_FILE: name that file in the client's settings.";

const PYTHON: Client = Client {
    ignoring: "aiohttp: ClientSession(trust_env=True); urllib3: ProxyManager(os.environ[\"https_proxy\"]).",
    untrusting: "Python: verify=os.environ[\"SSL_CERT_FILE\"], or the default context; certifi alone does not know it.",
};

const NODE: Client = Client {
    ignoring: "Node reads the proxy variables since version 24 (22.21); before, and in undici: \
               setGlobalDispatcher(new EnvHttpProxyAgent()) from the package undici.",
    untrusting: "Node: do not set the option ca, or add the file $NODE_EXTRA_CA_CERTS to it.",
};

const JAVA: Client = Client {
    ignoring: "Java reads no proxy variables: robots-proxy run --java -- …",
    untrusting: "Java has its own trust store: robots-proxy run --java -- …",
};

const CHROMIUM: Client = Client {
    ignoring: "Chromium reads the proxy variables only where there is no desktop, and never for localhost: \
               --proxy-server=\"http://${http_proxy#*@}\" --proxy-bypass-list='<-loopback>' (in sh -c '…').",
    untrusting: "Chromium has its own trust store: robots-proxy run --browser -- …",
};

const FIREFOX: Client = Client {
    ignoring: "Firefox reads its own settings: set network.proxy.type to 5, or to 1 with the host and port of $http_proxy.",
    untrusting: "Firefox has its own trust store: import $NODE_EXTRA_CA_CERTS under Settings, Certificates, Authorities.",
};

const GIT: Client = Client {
    ignoring: "git: http.proxy in its configuration goes before the variables, and ssh addresses need no proxy.",
    untrusting: "git: http.sslCAInfo for this site in its configuration goes before the variables.",
};

const CURL: Client = Client {
    ignoring: "curl: -x, --noproxy and ~/.curlrc go before the variables.",
    untrusting: "curl: --cacert, --capath and ~/.curlrc go before the variables: add --cacert \"$SSL_CERT_FILE\".",
};

const OTHER: Client = Client {
    ignoring: "Its HTTP library has to read http_proxy and https_proxy (Go never sends localhost and 127.0.0.1 to a proxy; Java: --java; \
               browsers: --browser; aiohttp: trust_env=True; Node: version 24).",
    untrusting: BUNDLE,
};

/// The client that a command most likely is.
fn client(command: &[OsString]) -> Client {
    let name = name(command);
    // What a shell or another wrapper runs is in its arguments.
    let words = command.iter().filter_map(|word| word.to_str()).collect::<Vec<_>>().join(" ");
    let is = |names: &[&str]| names.iter().any(|known| name == *known);
    let begins = |names: &[&str]| names.iter().any(|known| name.starts_with(known));
    if begins(&["python", "pypy"]) || is(&["uv", "uvx", "poetry", "scrapy", "pytest", "ipython"]) {
        PYTHON
    } else if begins(&["node"]) || is(&["npm", "npx", "yarn", "pnpm", "tsx", "bun"]) {
        NODE
    } else if is(&["java", "mvn", "gradle", "gradlew", "mvnw", "kotlin", "scala", "sbt", "clojure", "clj"]) {
        JAVA
    } else if begins(&["chrom", "google-chrome", "microsoft-edge", "brave"]) || words.contains("--headless") {
        CHROMIUM
    } else if begins(&["firefox"]) {
        FIREFOX
    } else if is(&["git"]) {
        GIT
    } else if is(&["curl"]) {
        CURL
    } else {
        OTHER
    }
}

/// The command's own name, without its folder.
fn name(command: &[OsString]) -> String {
    let name = command.first().and_then(|program| Path::new(program).file_name());
    name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(command: &str, requests: u64, broken: u64) -> String {
        let command: Vec<OsString> = command.split(' ').map(OsString::from).collect();
        advice(&command, requests, broken).unwrap_or_default()
    }

    #[test]
    fn a_client_that_went_round_the_proxy_is_told_its_own_line() {
        for (command, says) in [
            ("python3.12 scrape.py", "trust_env=True"),
            ("/usr/bin/node crawl.js", "EnvHttpProxyAgent"),
            ("npx playwright test", "EnvHttpProxyAgent"),
            ("java Main.java", "--java"),
            ("chromium https://shop.test/", "--proxy-server"),
            ("sh -c headless-shell --headless", "--proxy-server"),
            ("firefox", "network.proxy.type"),
            ("git clone x", "http.proxy"),
            ("./crawler", "Go never sends localhost"),
        ] {
            let told = told(command, 0, 0);
            assert!(told.contains(says) && told.contains("went round it"), "{command}: {told}");
        }
    }

    #[test]
    fn a_client_that_does_not_trust_the_ca_is_told_so_and_any_other_nothing() {
        assert!(told("python3 scrape.py", 5, 2).contains("2 TLS handshakes were broken off"));
        assert!(told("chromium x", 0, 1).contains("--browser"));
        assert_eq!(told("python3 scrape.py", 5, 0), "");
    }
}
