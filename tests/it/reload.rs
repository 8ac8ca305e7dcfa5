//! SIGHUP: all that can change changes at once, and nothing that runs notices.

use std::path::Path;
use std::time::Duration;

use http::Response;
use robots_proxy::policy::enforcement::{Exception, Mode};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::mpsc;

use super::support::http2::Frames;
use super::support::origin::{Origin, Reply};
use super::support::program::{self, Serving};
use super::support::proxy::Proxy;
use super::support::wire::Wire;
use super::support::{authority, in_time, until};

const RULES: &str = "User-agent: *\nDisallow: /private/";

fn exception(host: &str) -> Exception {
    Exception { host: host.parse().unwrap(), token: None, reason: "mine".into() }
}

/// curl through `serve`, trusting its CA.
fn curl(serving: &Serving, arguments: &[&str]) -> Command {
    let mut command = Command::new("curl");
    command.args(["-q", "-s", "-S", "--max-time", "50", "--proxy", serving.told("listens on")]);
    command.args(["--cacert", serving.told("CA certificate")]).args(arguments);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).kill_on_drop(true);
    command
}

async fn status(serving: &Serving, arguments: &[&str]) -> String {
    let asked = curl(serving, &[&["-o", "/dev/null", "-w", "%{http_code}"], arguments].concat()).output();
    String::from_utf8(in_time("curl", asked).await.unwrap().stdout).unwrap()
}

fn records(folder: &Path, file: &str) -> Vec<Value> {
    let log = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
    // A line that is being written has no end yet.
    let whole = log.rfind('\n').map_or("", |end| &log[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Requests of each client under load.
const REQUESTS: usize = 600;

#[tokio::test(flavor = "multi_thread")]
async fn reloads_under_load_lose_no_request_no_connection_and_no_record() {
    let [tls, clear] = [
        Origin::https(|visit| Reply::of_site(RULES, visit)).await,
        Origin::http(|visit| Reply::of_site(RULES, visit)).await,
    ];
    let config = |round: u32| {
        let odd = round % 2;
        format!(
            "listen = [\"127.0.0.1:0\"]\nmode = \"{}\"\nstate_dir = \"state\"\n\
             [[exception]]\nhost = \"x{round}.test\"\nreason = \"{round}\"\n\
             [identity]\nallow = [\"LoadBot\", \"Bot{round}\"]\n\
             [audit]\npath = \"audit-{odd}.jsonl\"\nrecord = \"all\"\n\
             [robots]\nttl = \"{}h\"\nuser_agent = \"test/{round}\"\n[ca]\nleaf_ttl = \"{}d\"\n\
             [limits]\nconnections = {}\nper_client = \"{}/s\"\n\
             [upstream]\nca_files = [\"origins.pem\"]\nidle_timeout = \"{}m\"\nconnect_timeout = \"{}s\"\n\
             connect_to = {{ \"a.test:443\" = \"{}\", \"b.test:80\" = \"{}\" }}\n",
            if odd == 1 { "observe" } else { "enforce" },
            24 - odd,
            7 - odd,
            10 + odd,
            100_000 + round,
            5 + round % 3,
            10 + odd,
            tls.address,
            clear.address,
        )
    };
    let home = program::folder(&config(0));
    std::fs::write(home.path().join("origins.pem"), authority::TRUSTED.pem()).unwrap();
    let mut serving = Serving::start(home.path(), &[]).await;
    let urls = [format!("http://b.test/[1-{REQUESTS}]"), format!("https://a.test/[1-{REQUESTS}]")];
    let parallel = ["--http2", "--parallel", "--parallel-max", "20"];
    let mut loads = Vec::new();
    for (options, url) in [(&["--http1.1"][..], &urls[0]), (&["--http1.1"], &urls[1]), (&parallel, &urls[1])] {
        let each = ["-A", "LoadBot/1.0", "-o", "/dev/null", "-w", "%{http_code} %{num_connects}\n", url];
        loads.push(tokio::spawn(curl(&serving, &[options, &each].concat()).output()));
    }
    clear.until_pages(10).await;
    let mut rounds = 0;
    while rounds < 6 || !loads.iter().all(|load| load.is_finished()) {
        rounds += 1;
        std::fs::write(home.path().join("config.toml"), config(rounds)).unwrap();
        let told = serving.hang_up().await;
        assert!(told.contains(" reloaded ") && !told.contains("ERROR") && !told.contains("WARN"), "{told}");
    }
    for load in loads {
        let output = in_time("curl", load).await.unwrap().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        let of = |wanted: &str| told.lines().filter(|line| line.split(' ').next() == Some(wanted)).count();
        assert_eq!(of("200"), REQUESTS, "{told}{}", String::from_utf8_lossy(&output.stderr));
        let connects: usize = told.lines().map(|line| line.split(' ').nth(1).unwrap().parse::<usize>().unwrap()).sum();
        assert!(connects <= 2, "the connection is kept: {connects} were opened");
    }
    serving.terminate().await;
    assert_eq!(serving.ended().await.exit, 0);
    let recorded: Vec<Value> =
        ["audit-0.jsonl", "audit-1.jsonl"].iter().flat_map(|file| records(home.path(), file)).collect();
    assert_eq!(recorded.len(), 3 * REQUESTS, "after {rounds} reloads");
    assert!(recorded.iter().all(|record| record["decision"] == "allow" && record["agent"] == "LoadBot"));
    assert_eq!((tls.robots().len(), clear.robots().len()), (1, 1), "copies outlive a reload");
}

#[tokio::test]
async fn open_connections_tunnels_and_streams_go_by_the_new_rules_from_their_next_request() {
    let site = Origin::https(|visit| Reply::of_site(RULES, visit)).await;
    let clear = Origin::http(|visit| Reply::of_site(RULES, visit)).await;
    let mut proxy = Proxy::before(&[("a.test", &site), ("b.test", &clear)]).await;
    let mut plain = Wire::to(&proxy).await;
    let mut tunnel = Wire::tunnel(&proxy, "a.test:443").await.tls(&proxy, "a.test", &[b"http/1.1"]).await;
    let stream = Wire::tunnel(&proxy, "a.test:443").await.tls(&proxy, "a.test", &[b"h2"]).await.stream;
    let mut http2 = Frames::begin(stream).await;
    for (excepted, required, status) in
        [(false, false, 403), (true, false, 200), (true, true, 403), (true, false, 200), (false, false, 403)]
    {
        let kept = proxy
            .reload(|settings| {
                settings.identity.require = required;
                let exceptions = [exception("a.test"), exception("b.test")];
                settings.exceptions = if excepted { exceptions.to_vec() } else { Vec::new() };
            })
            .await;
        assert!(kept.is_empty(), "{kept:?}");
        let is_answered = |head: &str| head.starts_with(&format!("HTTP/1.1 {status} "));
        plain.send("GET http://b.test/private/x HTTP/1.1\r\nHost: b.test\r\n\r\n").await;
        let head = plain.answer().await.0;
        assert!(is_answered(&head), "{status}: {head}");
        tunnel.send("GET /private/x HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
        let head = tunnel.answer().await.0;
        assert!(is_answered(&head), "{status}: {head}");
        let fields = [(":method", "GET"), (":scheme", "https"), (":authority", "a.test"), (":path", "/private/x")];
        assert_eq!(http2.ask(&fields).await, Some(status));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_and_what_waits_goes_on_and_the_next_start_keeps_its_distance() {
    let (pieces, body) = mpsc::unbounded_channel();
    let body = std::sync::Mutex::new(Some(body));
    let site = Origin::http(move |visit| match visit.path.as_str() {
        "/long" => Reply::Stream(Response::new(()), body.lock().unwrap().take().unwrap()),
        _ => Reply::of_site("User-agent: *\nCrawl-delay: 2", visit),
    })
    .await;
    let mut proxy = Proxy::before(&[("a.test", &site)]).await;
    pieces.send("first ".into()).unwrap();
    let long = proxy.spawn_curl(&["http://a.test/long"]);
    site.until_pages(1).await;
    let waiting = proxy.spawn_curl(&["http://a.test/waiting"]);
    proxy.until_joined(&site, 2).await;
    for mode in [Mode::Observe, Mode::Enforce] {
        proxy.reload(|settings| settings.mode = mode).await;
    }
    let late = proxy.spawn_curl(&["http://a.test/late"]);
    let answer = |child: tokio::process::Child| async move {
        let output = in_time("curl", child.wait_with_output()).await.unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!((answer(waiting).await, answer(late).await), ("page /waiting".into(), "page /late".into()));
    pieces.send("last".into()).unwrap();
    drop(pieces);
    assert_eq!(answer(long).await, "first last");
    assert_eq!(site.paths(), ["/long", "/waiting", "/late"]);
    let starts: Vec<_> = site.pages().iter().map(|visit| visit.at).collect();
    for pair in starts.windows(2) {
        // The origin reads the clock a moment after the request has started.
        assert!(pair[1].duration_since(pair[0]) + Duration::from_millis(50) >= Duration::from_secs(2), "{starts:?}");
    }
}

#[tokio::test]
async fn a_bad_file_changes_nothing_and_says_why() {
    let site = Origin::http(|visit| Reply::of_site(RULES, visit)).await;
    let upstream = format!("[upstream]\nconnect_to = {{ \"b.test:80\" = \"{}\" }}\n", site.address);
    let good = |mode: &str, more: &str| {
        format!("listen = [\"127.0.0.1:0\"]\nmode = \"{mode}\"\nstate_dir = \"state\"\n{more}{upstream}")
    };
    let home = program::folder(&good("enforce", ""));
    let write = |config: &str| std::fs::write(home.path().join("config.toml"), config).unwrap();
    let mut serving = Serving::start(home.path(), &[]).await;
    assert_eq!(status(&serving, &["http://b.test/private/1"]).await, "403");
    let missing = format!("{}ca_files = [\"gone.pem\"]\n", good("observe", ""));
    for (bad, says) in [
        (
            "mode = \"observe\"\n[robots]\nttl = \"1\"\nttx = 1\n".to_owned(),
            &["line 3: robots.ttl", "line 4: robots.ttx"][..],
        ),
        ("mode = \n".to_owned(), &["line 1"]),
        (missing, &["gone.pem, named in upstream.ca_files"]),
        (good("observe", "[auth]\nhtpasswd = \"gone\"\n"), &["gone, named in auth.htpasswd"]),
        (good("observe", "[audit]\npath = \"config.toml/x\"\n"), &["cannot open the audit log"]),
    ] {
        write(&bad);
        let told = serving.hang_up().await;
        assert!(says.iter().all(|says| told.contains(says)) && told.contains("nothing is reloaded"), "{told}");
        assert_eq!(status(&serving, &["http://b.test/private/2"]).await, "403", "{bad}");
    }
    std::fs::remove_file(home.path().join("config.toml")).unwrap();
    let told = serving.hang_up().await;
    assert!(told.contains("cannot read the configuration"), "a file that is gone is no default: {told}");
    assert_eq!(status(&serving, &["http://b.test/private/3"]).await, "403");
    write(&good("observe", "[pace]\nshared = \"host\"\n[ca]\ndir = \"elsewhere\"\n"));
    for _ in 0..2 {
        let told = serving.hang_up().await;
        for key in ["ca.dir has changed", "pace.shared has changed"] {
            assert!(told.contains(key), "{key}: {told}");
        }
    }
    assert_eq!(status(&serving, &["http://b.test/private/4"]).await, "200");
    assert!(!home.path().join("elsewhere").exists());
    // The client may have its answer before the record of it is in the file.
    let last = || records(home.path(), "audit.jsonl").pop();
    until("the record", || last().filter(|record| record["decision"] == "observe")).await;
    // logrotate moves the file and sends SIGHUP, whatever the configuration is like.
    std::fs::rename(home.path().join("audit.jsonl"), home.path().join("audit.jsonl.1")).unwrap();
    write("mode = \n");
    serving.hang_up().await;
    assert!(home.path().join("audit.jsonl").exists());
    assert_eq!(records(home.path(), "audit.jsonl.1").last().unwrap()["decision"], json!("observe"));
    serving.terminate().await;
    assert_eq!(serving.ended().await.exit, 0);
}

#[tokio::test]
async fn users_that_are_taken_off_the_list_are_out_at_their_next_request() {
    let site = Origin::https(|visit| Reply::of_site(RULES, visit)).await;
    let mut proxy = Proxy::with(&[("a.test", &site)], |settings| {
        let file = settings.state_dir.join("users");
        std::fs::write(&file, format!("ann:{}\n", bcrypt::hash("secret", 4).unwrap())).unwrap();
        settings.auth.htpasswd = Some(file);
    })
    .await;
    let mut wire = Wire::to(&proxy).await;
    wire.send("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\nProxy-Authorization: Basic YW5uOnNlY3JldA==\r\n\r\n")
        .await;
    assert!(wire.head().await.starts_with("HTTP/1.1 200 "));
    let mut tunnel = wire.tls(&proxy, "a.test", &[b"http/1.1"]).await;
    for (users, status) in [("ann:secret", "200"), ("bob:other", "407"), ("bob:other ann:secret", "200")] {
        let entry = |user: &str| {
            let (name, password) = user.split_once(':').unwrap();
            format!("{name}:{}\n", bcrypt::hash(password, 4).unwrap())
        };
        let text: String = users.split(' ').map(entry).collect();
        std::fs::write(proxy.folder().join("users"), text).unwrap();
        proxy.reload(|_| {}).await;
        tunnel.send("GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
        let head = tunnel.answer().await.0;
        assert_eq!(head.split(' ').nth(1), Some(status), "{users}: {head}");
    }
}
