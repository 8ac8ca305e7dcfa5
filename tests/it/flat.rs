//! Memory stays flat, however much goes through a tunnel.

use std::path::Path;

use bytes::Bytes;
use http::Response;
use tokio::process::Command;
use tokio::sync::mpsc;

use super::support::origin::{Origin, Reply};
use super::support::program::{self, Serving};
use super::support::{authority, in_time};

/// What the proxy may take at most, whatever goes through it.
const CEILING: u64 = 64 << 20;

/// The most memory that a process has had in use, in octets.
fn peak(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Answers `/download` with so many MiB, all one piece of memory, and counts uploads.
async fn site(mebibytes: usize, alpn: &[&[u8]]) -> Origin {
    Origin::tls(authority::every_name(alpn), move |visit| match visit.path.as_str() {
        "/download" => {
            let (pieces, body) = mpsc::unbounded_channel();
            let piece = Bytes::from(vec![b'x'; 1 << 16]);
            for _ in 0..mebibytes * 16 {
                pieces.send(piece.clone()).unwrap();
            }
            Reply::Stream(Response::new(()), body)
        }
        "/upload" => Reply::Count(None),
        _ => Reply::text(""),
    })
    .await
}

/// curl through the program; returns its standard output.
async fn curl(folder: &Path, proxy: &str, arguments: &[&str]) -> String {
    let mut command = Command::new("curl");
    command.args(["-q", "--silent", "--show-error", "--proxy", proxy, "--cacert"]).arg(folder.join("certs/ca.pem"));
    let output = command.args(arguments).kill_on_drop(true).output().await.expect("curl is installed");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

async fn stays_flat(mebibytes: usize) {
    let one = site(mebibytes, &[b"http/1.1"]).await;
    let two = site(mebibytes, &[b"h2"]).await;
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\n[upstream]\nca_files = [\"origins.pem\"]\n\
         connect_to = {{ \"a.test:443\" = \"{}\", \"b.test:443\" = \"{}\" }}\n",
        one.address, two.address
    );
    let folder = program::folder(&config);
    std::fs::write(folder.path().join("origins.pem"), authority::TRUSTED.pem()).unwrap();
    let serving = Serving::start(folder.path(), &[]).await;
    let proxy = format!("http://{}", serving.told("listens on http://"));
    let upload = folder.path().join("upload");
    // A file with nothing in it but its length.
    std::fs::File::create(&upload).unwrap().set_len((mebibytes as u64) << 20).unwrap();
    let upload = upload.to_str().unwrap();
    let octets = (mebibytes << 20).to_string();
    for host in ["a.test", "b.test"] {
        for option in ["--http1.1", "--http2"] {
            let download = format!("https://{host}/download");
            let arguments = [option, "--output", "/dev/null", "--write-out", "%{size_download}", &download];
            assert_eq!(curl(folder.path(), &proxy, &arguments).await, octets, "{host} {option}");
            let to = format!("https://{host}/upload");
            let got = curl(folder.path(), &proxy, &[option, "--upload-file", upload, &to]).await;
            assert_eq!(got, octets, "{host} {option}");
            let peak = peak(serving.process());
            println!("{host} {option}: {} MiB", peak >> 20);
            assert!(peak < CEILING, "{host} {option}: {peak} octets");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_download_and_a_large_upload_take_no_more_memory_than_small_ones() {
    in_time("64 MiB eight times", stays_flat(64)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "some minutes long: cargo test --release --test it two_gibibytes -- --ignored --nocapture"]
async fn two_gibibytes_each_way_take_no_more_memory_than_small_ones() {
    stays_flat(2048).await;
}
