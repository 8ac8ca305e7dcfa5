//! What waiting costs: ten thousand hosts, and a request in front of each.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use robots_proxy::clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::support::in_time;
use super::support::program::{self, Serving};

const HOSTS: u32 = 10_000;

/// Every address of loopback leads to it, so each is a host of its own. It closes each connection, or so many would be too many.
async fn sites() -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.is_ok_and(|octets| octets > 0) {}
                let robots = "User-agent: *\nCrawl-delay: 60\n";
                let answer =
                    format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{robots}", robots.len());
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    port
}

/// Memory of a process in use, in octets.
pub(super) fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Time that a process has spent on a processor. Ticks of Linux are a hundredth of a second.
fn busy(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap()..].split(' ').collect();
    let ticks: u64 = fields[12].parse::<u64>().unwrap() + fields[13].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement, a minute long: cargo test --release --test it ten_thousand -- --ignored --nocapture"]
async fn ten_thousand_hosts_with_one_waiting_request_each() {
    let port = sites().await;
    let folder = program::folder("listen = [\"127.0.0.1:0\"]\n[limits]\nconnections = 11000\n");
    let serving = Serving::start(folder.path(), &[]).await;
    let address: SocketAddr = serving.told("listens on http://").parse().unwrap();
    let process = serving.process();
    let empty = resident(process);
    let request = |host: u32| {
        let host = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 1, 0, 0)) + host);
        format!("GET http://{host}:{port}/x HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n")
    };
    // One request of each is served, so that the next one has to wait.
    let mut clients: Vec<(u32, TcpStream)> = stream::iter(0..HOSTS)
        .map(|host| async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(request(host).as_bytes()).await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"Crawl-delay: 60\n") {
                assert!(in_time("an answer", stream.read_buf(&mut head)).await.unwrap() > 0);
            }
            (host, stream)
        })
        .buffer_unordered(100)
        .collect()
        .await;
    let served = resident(process);
    for (host, stream) in &mut clients {
        stream.write_all(request(*host).as_bytes()).await.unwrap();
    }
    // They have all come when the proxy has nothing more to do.
    let mut before = Duration::ZERO;
    while busy(process) - before > Duration::from_millis(20) {
        before = busy(process);
        clock::sleep(Duration::from_millis(500)).await;
    }
    let waiting = resident(process);
    let (spent, moment) = (busy(process), Duration::from_secs(5));
    clock::sleep(moment).await;
    let spent = busy(process) - spent;
    println!(
        "{HOSTS} hosts: {} octets for each host and its connection, {} more for each waiting request, {:.1} % of a processor",
        (served - empty) / u64::from(HOSTS),
        (waiting.saturating_sub(served)) / u64::from(HOSTS),
        spent.as_secs_f64() / moment.as_secs_f64() * 100.0
    );
    assert!(waiting - empty < u64::from(HOSTS) * 100_000, "{} octets", waiting - empty);
    assert!(spent < moment / 20, "{spent:?} of {moment:?}");
}
