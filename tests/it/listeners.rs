//! Where clients connect: in clear text, with TLS, through a Unix socket; and what happens to those who take one for another.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use robots_proxy::proxy::socket::Listen;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::process::Command;

use super::support::in_time;
use super::support::origin::{Origin, Reply};
use super::support::program::{self, Serving};
use super::support::proxy::Proxy;
use super::support::wire::exchange;

const RULES: &str = "User-agent: *\nDisallow: /private/";

/// Listens in every way; the second one is TLS, the third one a Unix socket.
async fn everywhere() -> (Origin, Origin, Proxy) {
    let tls = Origin::https(|visit| Reply::of_site(RULES, visit)).await;
    let clear = Origin::http(|visit| Reply::of_site(RULES, visit)).await;
    let proxy = Proxy::with(&[("a.test", &tls), ("b.test", &clear)], |settings| {
        let socket = settings.state_dir.join("proxy.sock");
        settings.listen.push("https://127.0.0.1:0".parse().unwrap());
        settings.listen.push(Listen::Unix(socket));
    })
    .await;
    (tls, clear, proxy)
}

#[tokio::test]
async fn case_15_a_listener_with_tls_serves_like_any_other() {
    let (_tls, clear, proxy) = everywhere().await;
    let (url, ca) = (proxy.listening()[1].url(), proxy.ca());
    let ca = ca.to_str().unwrap();
    for option in ["--http1.1", "--http2"] {
        for (page, status) in [
            ("http://b.test/x", 200),
            ("http://b.test/private/x", 403),
            ("https://a.test/x", 200),
            ("https://a.test/private/x", 403),
        ] {
            let got = proxy.curl(&[option, "--proxy", &url, "--proxy-cacert", ca, page]).await;
            assert_eq!((got.exit, got.status), (0, status), "{option} {page}: {}", got.error);
        }
    }
    let stranger = proxy.curl(&["--proxy", &url, "http://b.test/x"]).await;
    assert_eq!(stranger.exit, 60, "curl does not trust it unasked: {}", stranger.error);
    assert_eq!(clear.paths(), ["/x", "/x"]);
}

async fn openssl(address: &str, ca: &str, arguments: &[&str]) -> String {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", address, "-verify_return_error", "-x509_strict", "-CAfile", ca]);
    command.args(arguments).stdin(Stdio::null());
    let output = in_time("openssl", command.output()).await.expect("openssl is installed");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[tokio::test]
async fn case_15_the_listeners_certificate_is_for_its_address_or_name_and_http2_is_not_offered() {
    let (_tls, _clear, proxy) = everywhere().await;
    let (address, ca) = (proxy.listening()[1].address().unwrap().to_string(), proxy.ca());
    let ca = ca.to_str().unwrap();
    for (arguments, says) in [
        (&["-noservername", "-verify_ip", "127.0.0.1"][..], "Verify return code: 0 (ok)"),
        (&["-servername", "proxy.test", "-verify_hostname", "proxy.test"], "Verify return code: 0 (ok)"),
        (&["-alpn", "h2,http/1.1"], "ALPN protocol: http/1.1"),
        (&["-alpn", "h2"], "alert no application protocol"),
    ] {
        let said = openssl(&address, ca, arguments).await;
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
}

#[tokio::test]
async fn case_15_a_client_that_takes_one_listener_for_the_other_is_closed() {
    let (_tls, _clear, proxy) = everywhere().await;
    assert_eq!(exchange(&proxy, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await, "");
    let record = proxy.records(1).await.pop().unwrap();
    assert_eq!((&record["decision"], &record["reason"]), (&json!("error"), &json!("bad-request")));
    assert!(record["detail"].as_str().unwrap().starts_with("TLS on a port for plain HTTP"), "{record}");
    let clear = format!("http://{}", proxy.listening()[1].address().unwrap());
    assert_ne!(proxy.curl(&["--proxy", &clear, "http://b.test/x"]).await.exit, 0);
    assert_eq!(proxy.curl(&["http://b.test/x"]).await.status, 200, "the proxy lives on");
}

#[tokio::test]
async fn case_15_one_clear_line_tells_of_tls_on_the_plain_port() {
    let folder = program::folder("listen = [\"127.0.0.1:0\"]\n");
    let serving = Serving::start(folder.path(), &[]).await;
    let address = serving.told("listens on http://").to_owned();
    let mut stream = TcpStream::connect(&address).await.unwrap();
    stream.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await.unwrap();
    assert!(in_time("the close", stream.read_u8()).await.is_err());
    serving.terminate().await;
    let said = serving.ended().await.err;
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("TLS on a port for plain HTTP")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert!(lines[0].contains("name the proxy as http://"), "{}", lines[0]);
}

#[tokio::test]
async fn case_15_a_unix_socket_is_for_its_user_and_gone_with_the_proxy() {
    let (_tls, clear, mut proxy) = everywhere().await;
    let Listen::Unix(path) = proxy.listening()[2].clone() else { panic!("{:?}", proxy.listening()) };
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    for request in [
        "GET http://b.test/x HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n",
        "CONNECT b.test:80 HTTP/1.1\r\n\r\nGET /x HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n",
    ] {
        let mut stream = UnixStream::connect(&path).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut got = String::new();
        in_time("the answer", stream.read_to_string(&mut got)).await.unwrap();
        assert!(got.starts_with("HTTP/1.1 200 ") && got.ends_with("page /x"), "{got}");
    }
    assert_eq!(clear.paths(), ["/x", "/x"]);
    assert_eq!(proxy.record_of("/x").await["client"], "127.0.0.1");
    assert!(proxy.stop().await);
    super::support::until("the socket to go", || (!path.exists()).then_some(())).await;
}
