//! The steps of a request between the two sockets: standing, decision, line, record; and the certificate of a new host.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use robots_proxy::audit::{self, Asked, Audit, Record, Via, Which};
use robots_proxy::ca::{self, Ca, Leaves};
use robots_proxy::clock;
use robots_proxy::lookup::fetch::{FetchError, Fetched, Validators};
use robots_proxy::lookup::{self, Fetch, Lookup};
use robots_proxy::policy::decision::decide;
use robots_proxy::policy::enforcement::Mode;
use robots_proxy::policy::identity::{Identity, Source};
use robots_proxy::policy::pacing;
use robots_proxy::policy::requisite::Load;
use robots_proxy::policy::standing::{Effect, Evidence, Standing};
use robots_proxy::policy::target::{Host, Origin, Target};
use robots_proxy::queue::{Arrival, Queue, Visitor};
use robots_proxy::robots::RobotsTxt;
use robots_proxy::upstream::Speech;
use tokio::runtime::Runtime;

use super::AGENT;
use super::files::{self, Subject};

pub(super) fn measure(criterion: &mut Criterion) {
    look_up(criterion);
    for subject in files::all() {
        decision(criterion, &subject);
    }
    line(criterion);
    record(criterion);
    mint(criterion);
}

/// The standing of an origin that is known, among so many.
fn look_up(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let mut group = criterion.benchmark_group("look up");
    for origins in [1, 100_000] {
        let known: Vec<Origin> = (0..origins).map(origin).collect();
        let lookup = runtime.block_on(async {
            let lookup = Lookup::new(lookup::Settings::default(), Arc::new(NoRules), None);
            for origin in &known {
                lookup.standing(origin, Speech::Http1).await;
            }
            lookup
        });
        let mut turn = 0;
        group.bench_function(BenchmarkId::new("known", origins), |bencher| {
            bencher.iter(|| {
                // A prime, so that they come in no order.
                turn = (turn + 7_919) % known.len();
                lookup.standing(&known[turn], Speech::Http1).now_or_never().expect("nothing to wait for")
            });
        });
    }
    group.finish();
}

/// No origin has a robots.txt.
struct NoRules;

impl Fetch for NoRules {
    fn fetch(&self, _: &Origin, _: Speech, _: Option<Validators>) -> BoxFuture<'static, Result<Fetched, FetchError>> {
        let (status, headers) = (StatusCode::NOT_FOUND, HeaderMap::new());
        Box::pin(async move {
            Ok(Fetched { status, headers, body: Vec::new(), final_url: None, too_many_redirects: false })
        })
    }
}

fn origin(number: usize) -> Origin {
    Origin::of(&format!("https://h{number}.example.test/").parse().unwrap()).unwrap()
}

fn decision(criterion: &mut Criterion, subject: &Subject) {
    let standing = standing(&subject.body);
    let mut turn = 0;
    criterion.benchmark_group("decide").bench_function(subject.name, |bencher| {
        bencher.iter(|| {
            turn = (turn + 1) % subject.paths.len();
            black_box(decide(AGENT, subject.paths[turn].as_bytes(), &standing, clock::now())).reason
        });
    });
}

fn standing(body: &[u8]) -> Standing {
    let evidence = Evidence {
        robots_url: "https://www.example.com/robots.txt".into(),
        final_url: None,
        status: Some(200),
        fetched_at: SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000),
        sha256: Some("0".repeat(64)),
        truncated: false,
        note: None,
    };
    Standing {
        effect: Effect::Rules(Arc::new(RobotsTxt::parse(body))),
        evidence: Arc::new(evidence),
        stale: false,
        failure: None,
        ask_again_at: clock::now() + Duration::from_secs(3600),
    }
}

/// So short a delay that a line is forgotten again before there are many.
const MOMENT: Duration = Duration::from_micros(1);

/// A request's way through the line: at a host without delay, where it passes; and as the first of a line that was not there, beside
/// lines of other hosts.
fn line(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("line");
    group.bench_function("no delay", |bencher| {
        let (queue, arrival) = (Queue::new(pacing::Settings::default()), arrival("www.example.com", Duration::ZERO));
        bencher.iter(|| start(&queue, &arrival));
    });
    for lines in [0, 100_000] {
        let queue = Queue::new(pacing::Settings { max_delay: MOMENT, ..pacing::Settings::default() });
        for number in 0..lines {
            start(&queue, &arrival(&format!("h{number}.example.test"), Duration::from_secs(3600)));
        }
        let mut next = 0;
        group.bench_function(BenchmarkId::new("new host, lines of others", lines), |bencher| {
            let new = || {
                next += 1;
                arrival(&format!("n{next}.example.test"), MOMENT)
            };
            bencher.iter_batched(new, |arrival| start(&queue, &arrival), BatchSize::SmallInput);
        });
    }
    group.finish();
}

fn arrival(host: &str, gap: Duration) -> Arrival {
    Arrival {
        visitor: Visitor::new(None, IpAddr::V4(Ipv4Addr::LOCALHOST), &AGENT.parse().unwrap()),
        host: Host::parse(host).unwrap(),
        gap: Some(gap),
        patience: Duration::from_secs(120),
        load: Load::Alone,
        page: None,
    }
}

fn start(queue: &Arc<Queue>, arrival: &Arrival) {
    let mut place = queue.arrive(arrival).expect("there is room");
    let gap = arrival.gap.unwrap_or_default();
    place.ready(gap).now_or_never().expect("nobody is in front").expect("no hold");
    assert!(place.may_start(gap));
    place.start().answered(None, None);
}

/// A record from its beginning to its end; with `all` on disk, too.
fn record(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let standing = Arc::new(standing(b"User-agent: *\nDisallow: /private/\nAllow: /\n"));
    let decision = decide(AGENT, b"/page?id=1", &standing, clock::now());
    let url: Uri = "https://www.example.com/page?id=1".parse().unwrap();
    let target = Target { origin: Origin::of(&url).unwrap(), path: url.path_and_query().unwrap().clone() };
    let user_agent = HeaderValue::from_static("NimbuBot/1.0 (+https://nimbu.example/bot)");
    let identity = Identity::new(AGENT.parse().unwrap(), Source::UserAgent);
    let mut group = criterion.benchmark_group("record");
    // Fewer than may wait for the disk, so that none is lost; and then the disk.
    const RECORDS: u64 = 500;
    group.throughput(Throughput::Elements(RECORDS));
    for (name, which) in [("blocked", Which::Blocked), ("all", Which::All)] {
        let path = Some(folder.path().join("audit.jsonl"));
        let audit = Audit::open(&audit::Settings { path, record: which, ..audit::Settings::default() }).unwrap();
        group.bench_function(BenchmarkId::new(name, RECORDS), |bencher| {
            bencher.iter(|| {
                for _ in 0..RECORDS {
                    let mut record =
                        Record::begin(&audit, Ipv4Addr::LOCALHOST.into(), Via::Connect, &Method::GET, Mode::Enforce);
                    record.asked(Asked::Target(target.clone()));
                    record.client_said(Some(&user_agent), None);
                    record.identified(&identity);
                    record.decided(&decision, &standing, clock::now());
                    record.answered(StatusCode::OK);
                    record.sent(1024);
                }
                runtime.block_on(audit.flush());
            });
        });
        assert_eq!(audit.failed(), 0, "some were lost, and not measured");
    }
    group.finish();
}

/// A certificate for a host that was never asked for, and for one that was.
fn mint(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let settings = ca::Settings { dir: folder.path().join("certs"), ..ca::Settings::default() };
    let ca = Arc::new(Ca::open(&settings, clock::wall()).unwrap());
    let leaves = Leaves::new(ca, &settings).unwrap();
    let mut group = criterion.benchmark_group("mint");
    let mut next = 0;
    group.bench_function("new host", |bencher| {
        let new = || {
            next += 1;
            format!("h{next}.example.test")
        };
        bencher.iter_batched(new, |host| leaves.certificate(&host).unwrap(), BatchSize::SmallInput);
    });
    group.bench_function("known host", |bencher| bencher.iter(|| leaves.certificate("www.example.com").unwrap()));
    group.finish();
}
