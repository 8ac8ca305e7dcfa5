//! The audit log as those who answer for it rely on it: no secrets, nothing lost, nothing torn.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use robots_proxy::audit::chain::Check;
use robots_proxy::audit::{Query, files};
use robots_proxy::clock;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::support::origin::{Origin, Reply};
use super::support::program::{self, Serving};
use super::support::proxy::Proxy;
use super::support::wire::{Wire, exchange};
use super::support::{in_time, until};

const RULES: &str = "User-agent: *\nDisallow: /private/\n";

async fn shop() -> Origin {
    Origin::http(|visit| Reply::of_site(RULES, visit)).await
}

/// A log's lines in order: rotated files first, then the live one.
fn lines(log: &Path) -> Vec<String> {
    let (rotated, live) = files(log).unwrap();
    let mut readers: Vec<Box<dyn Read>> = Vec::new();
    for path in rotated {
        let file = std::fs::File::open(&path).unwrap();
        match path.extension().is_some_and(|ending| ending == "gz") {
            true => readers.push(Box::new(MultiGzDecoder::new(file))),
            false => readers.push(Box::new(file)),
        }
    }
    readers.push(Box::new(live));
    readers.into_iter().flat_map(|reader| BufReader::new(reader).lines()).map(Result::unwrap).collect()
}

#[tokio::test]
async fn no_secret_is_in_any_record() {
    let origin = shop().await;
    let proxy = Proxy::before(&[("a.test", &origin)]).await;
    // Basic dXNlcjpzM2NyZXQ= is user:s3cret.
    let secrets = "Proxy-Authorization: Basic dXNlcjpzM2NyZXQ=\r\nAuthorization: Bearer s3cret\r\nCookie: session=s3cret\r\n\
                   X-Api-Key: s3cret\r\nReferer: http://ann:s3cret@b.test/\r\nConnection: close\r\n";
    let asked = [
        "GET http://ann:s3cret@a.test/page HTTP/1.1\r\nHost: a.test\r\n",
        "GET http://ann:s3cret@a.test/private/x HTTP/1.1\r\nHost: a.test\r\n",
        "GET http://ann:s3cret@unknown.test/ HTTP/1.1\r\nHost: unknown.test\r\n",
        "GET ftp://ann:s3cret@a.test/ HTTP/1.1\r\nHost: a.test\r\n",
        "GET http://ann:s3cret@a.test:99999/ HTTP/1.1\r\nHost: a.test\r\n",
        "GET http://a.test/page HTTP/1.1\r\nHost: ann:s3cret@a.test\r\n",
        "GET http://a.test/page HTTP/1.1\r\nHost: ann:s3cret@b.test\r\n",
        "CONNECT ann:s3cret@a.test:80 HTTP/1.1\r\nHost: ann:s3cret@a.test:80\r\n",
        "CONNECT ann:s3cret@a.test HTTP/1.1\r\nHost: ann:s3cret@a.test\r\n",
        "TRACE http://ann:s3cret@a.test/ HTTP/1.1\r\nHost: a.test\r\n",
    ];
    for head in asked {
        exchange(&proxy, format!("{head}{secrets}\r\n")).await;
    }
    let mut inside = Wire::tunnel(&proxy, "a.test:80").await;
    inside.send(format!("GET /private/inside HTTP/1.1\r\nHost: ann:s3cret@a.test\r\n{secrets}\r\n")).await;
    inside.rest().await;
    let records = proxy.records(8).await;
    let log = std::fs::read_to_string(proxy.folder().join("audit.jsonl")).unwrap();
    for secret in ["s3cret", "dXNlcjpzM2NyZXQ="] {
        let told: Vec<_> = log.lines().filter(|line| line.contains(secret)).collect();
        assert!(told.is_empty(), "{told:#?}");
    }
    assert!(records.iter().any(|record| record["url"] == "http://a.test/private/x"), "{records:#?}");
}

#[tokio::test]
async fn a_query_is_recorded_as_the_settings_say_and_the_client_is_told_its_own() {
    let origin = shop().await;
    let secret = "/private/x?key=hush%20hush&page=2";
    for (query, recorded) in [
        (Query::Keep, format!("http://a.test{secret}")),
        (Query::Strip, "http://a.test/private/x".to_owned()),
        // printf 'key=hush%%20hush&page=2' | sha256sum | cut -c1-16
        (Query::Hash, "http://a.test/private/x?sha256=69be12f86a8d005d".to_owned()),
    ] {
        let proxy = Proxy::with(&[("a.test", &origin)], |settings| settings.audit.query = query).await;
        let got = proxy.curl(&["-H", "Accept: application/json", &format!("http://a.test{secret}")]).await;
        assert_eq!(got.json()["url"], json!(format!("http://a.test{secret}")));
        let record = proxy.records(1).await.remove(0);
        assert_eq!((record["url"].as_str(), got.status), (Some(recorded.as_str()), 403));
        assert_eq!(record["query"].as_str(), (query != Query::Keep).then_some(query.as_str()));
        if query != Query::Keep {
            assert!(!record.to_string().contains("hush"), "{record}");
        }
    }
}

#[tokio::test]
async fn a_record_says_what_a_browser_wants_a_request_for() {
    let origin = shop().await;
    let proxy = Proxy::before(&[("a.test", &origin)]).await;
    for (dest, recorded) in [("image", Some("image")), ("x, y", None), (&"x".repeat(99), None)] {
        proxy.curl(&["-H", &format!("Sec-Fetch-Dest: {dest}"), &format!("http://a.test/{}", dest.len())]).await;
        assert_eq!(proxy.record_of(&format!("/{}", dest.len())).await["dest"].as_str(), recorded);
    }
}

#[tokio::test]
async fn a_record_names_the_configuration_that_config_show_prints() {
    let origin = shop().await;
    let folder = program::folder(&format!("[upstream.connect_to]\n\"a.test:80\" = \"{}\"\n", origin.address));
    let shown = program::run(folder.path(), &["config", "show"]).await.out;
    let shown = shown.split_once('\n').unwrap().1;
    let serving = Serving::start(folder.path(), &["--listen", "127.0.0.1:0"]).await;
    let mut client = Client::new(serving.address());
    client.ask("http://a.test/private/x").await.unwrap();
    let record: Value = serde_json::from_str(&lines(&folder.path().join("audit.jsonl"))[0]).unwrap();
    let hash = <sha2::Sha256 as sha2::Digest>::digest(shown.as_bytes());
    let digits: String = hash.iter().map(|octet| format!("{octet:02x}")).collect();
    assert_eq!(record["config"], json!(digits[..12]));
}

#[tokio::test]
async fn a_disk_that_takes_no_records_stops_the_proxy_where_it_is_told_so_until_it_takes_them_again() {
    let origin = shop().await;
    for (on_failure, status) in [("serve", 403), ("stop", 503)] {
        let leads = format!("[upstream.connect_to]\n\"a.test:80\" = \"{}\"\n", origin.address);
        let folder = program::folder(&format!("[audit]\non_failure = \"{on_failure}\"\nrotate = 0\n{leads}"));
        let log = folder.path().join("audit.jsonl");
        // Files may grow to 3 MiB, and the log nearly has: then each write fails as on a full disk.
        let full = 6144 * 512;
        std::fs::write(&log, format!("{}\n", " ".repeat(full - 1000))).unwrap();
        let serving = Serving::start_limited(folder.path(), 6144, &["--listen", "127.0.0.1:0"]).await;
        let mut client = Client::new(serving.address());
        let mut statuses = Vec::new();
        for _ in 0..5 {
            statuses.push(client.ask("http://a.test/private/x").await.unwrap().status);
        }
        assert_eq!((statuses[0], statuses[4]), (403, status), "{on_failure}: {statuses:?}");
        if on_failure == "stop" {
            let stopped = client.ask("http://a.test/page").await.unwrap();
            assert_eq!((stopped.status, &stopped.body["reason"]), (503, &json!("audit-unavailable")));
            assert!(origin.pages().is_empty());
        }
        let text = std::fs::read_to_string(&log).unwrap();
        assert!(text.ends_with("}\n") && text.len() < full, "half a record is taken back");
        // The disk has room again.
        std::fs::rename(&log, folder.path().join("moved")).unwrap();
        until("the log's recovery", || log.exists().then_some(())).await;
        while client.ask("http://a.test/private/x").await.unwrap().status != 403 {
            clock::sleep(Duration::from_millis(20)).await;
        }
        serving.terminate().await;
        let said = serving.ended().await.err;
        assert_eq!(said.matches("takes no records").count(), 1, "{said}");
        assert!(said.contains("takes records again; 0 were lost"), "{said}");
        let records: Vec<Value> = lines(&log).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(records.iter().filter(|record| record["reason"] == "audit-unavailable").count() > 0, status == 503);
    }
}

#[tokio::test]
async fn kill_9_and_rotation_lose_no_record_of_a_refusal_and_tear_none() {
    kill_at_random(20_000, 5).await;
}

#[tokio::test]
#[ignore = "takes minutes; kill_9_and_rotation_lose_no_record_of_a_refusal_and_tear_none is the same with fewer requests"]
async fn a_hundred_thousand_refusals_outlive_kill_9_and_rotation() {
    kill_at_random(100_000, 25).await;
}

/// Many clients are refused again and again by two proxies that share a log, one of which is killed now and then and started anew.
async fn kill_at_random(refusals: usize, kills: usize) {
    const CLIENTS: usize = 16;
    let origin = shop().await;
    let leads: String = (0..CLIENTS).map(|name| format!("\"h{name}.test:80\" = \"{}\"\n", origin.address)).collect();
    let audit = "[audit]\nrotate = \"300KiB\"\nkeep = 100000\nchain = true\n";
    let folder = program::folder(&format!("state_dir = \"state\"\n{audit}[upstream.connect_to]\n{leads}"));
    let log = folder.path().join("audit.jsonl");
    let start = || Serving::start(folder.path(), &["--listen", "127.0.0.1:0"]);
    let mut serving = [start().await, start().await];
    let addresses = [0, 1].map(|proxy: usize| watch::Sender::new(serving[proxy].address()));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut clients: JoinSet<()> = (0..CLIENTS)
        .map(|name| be_refused(name, addresses[name % 2].subscribe(), Arc::clone(&seen), refusals.div_ceil(CLIENTS)))
        .collect();
    let count = || seen.lock().unwrap().len();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for kill in 1..=kills {
        // After about as many refusals each time, and then somewhere within a few milliseconds.
        until("refusals", || (count() >= kill * refusals / (kills + 1)).then_some(())).await;
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        clock::sleep(Duration::from_micros(random % 5000)).await;
        let proxy = usize::from(random & 1 << 40 != 0);
        serving[proxy].kill().await;
        serving[proxy] = start().await;
        addresses[proxy].send(serving[proxy].address()).unwrap();
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    for serving in serving {
        serving.terminate().await;
        serving.ended().await;
    }

    let lines = lines(&log);
    let mut check = Check::default();
    let mut recorded = HashSet::new();
    for (at, line) in lines.iter().enumerate() {
        let record: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("line {at}: {error}: {line}"));
        assert_eq!(check.line(line.as_bytes()), Ok(()), "line {at}");
        assert!(recorded.insert(record["id"].as_str().unwrap().to_owned()), "{record} is there twice");
    }
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    let missing: Vec<_> = seen.iter().filter(|id| !recorded.contains(*id)).collect();
    assert!(missing.is_empty(), "{} of {} refusals have no record: {missing:?}", missing.len(), seen.len());
    assert_eq!((seen.len() >= refusals, check.unchained()), (true, 0));
    let verified = program::run(folder.path(), &["audit", "verify"]).await;
    assert_eq!(verified.exit, 0, "{}{}", verified.out, verified.err);
    assert!(
        verified.out.contains(&format!("records 1 to {} are as they were written", lines.len())),
        "{}",
        verified.out
    );
    let rotated = files(&log).unwrap().0.len();
    assert!(rotated > refusals / 1000, "{rotated} rotated files");
}

/// Sends requests that are refused, on one connection for as long as it lives, and notes the record that each answer names.
async fn be_refused(name: usize, addresses: watch::Receiver<SocketAddr>, seen: Arc<Mutex<Vec<String>>>, number: usize) {
    let mut client = Client::new(*addresses.borrow());
    for request in 0..number {
        let answer = loop {
            if let Some(answer) = client.ask(&format!("http://h{name}.test/private/{request}")).await {
                break answer;
            }
            // It was killed; the address of the next may not be known yet.
            clock::sleep(Duration::from_millis(5)).await;
            client = Client::new(*addresses.borrow());
        };
        assert_eq!(answer.status, 403, "{}", answer.body);
        seen.lock().unwrap().push(answer.body["instance"].as_str().unwrap().to_owned());
    }
}

/// A client on a connection that is kept.
struct Client {
    address: SocketAddr,
    stream: Option<TcpStream>,
}

struct Answered {
    status: u16,
    body: Value,
}

impl Client {
    fn new(address: SocketAddr) -> Client {
        Client { address, stream: None }
    }

    /// Asks for a page, and reads the whole answer; `None` where the connection does not last so long.
    async fn ask(&mut self, url: &str) -> Option<Answered> {
        let host = url.split('/').nth(2).unwrap();
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(TcpStream::connect(self.address).await.ok()?),
        };
        let request = format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nAccept: application/json\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut octets = Vec::new();
        loop {
            let came = in_time("an answer", stream.read_buf(&mut octets)).await.ok()?;
            if came == 0 {
                return None;
            }
            let Some(end) = octets.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&octets[..end]).to_ascii_lowercase();
            let length: usize = head.split("content-length: ").nth(1)?.lines().next()?.parse().ok()?;
            if octets.len() >= end + 4 + length {
                let status = head.split(' ').nth(1)?.parse().ok()?;
                return Some(Answered { status, body: serde_json::from_slice(&octets[end + 4..]).unwrap_or_default() });
            }
        }
    }
}
