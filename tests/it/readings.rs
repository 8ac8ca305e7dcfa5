//! Two readings of one request are how a proxy is walked around. So the odd requests of `tests/corpus/requests.txt` go to the proxy,
//! in clear and inside an intercepted tunnel, and what the record says of each is compared with what the origin behind has understood.
//!
//! The origin is a reader of its own, as strict as RFC 9112 allows: what it does not understand is a failure of the proxy, which must
//! send nothing that could be read otherwise. Behind each request comes a plain one on the same connection, so that octets that were
//! left over would be seen as the beginning of another.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use robots_proxy::upstream::ConnectTo;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use super::support::authority;
use super::support::proxy::Proxy;
use super::support::wire::Wire;

const CORPUS: &str = include_str!("../corpus/requests.txt");

/// A request of the corpus.
struct Case {
    clear: bool,
    tunnel: bool,
    reading: Reading,
    why: &'static str,
    octets: &'static str,
}

#[derive(Clone, Debug, PartialEq)]
enum Reading {
    /// The proxy's own answer, with this status.
    Refused(String),
    /// Method, target and length, as the origin understands them.
    One(String),
}

fn corpus() -> Vec<Case> {
    let lines = CORPUS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let [place, reading, why, octets] =
                line.splitn(4, " | ").collect::<Vec<_>>().try_into().unwrap_or_else(|_| panic!("{line}"));
            let reading = match reading.parse::<u16>() {
                Ok(_) => Reading::Refused(reading.to_owned()),
                Err(_) => Reading::One(reading.to_owned()),
            };
            Case { clear: place != "tunnel", tunnel: place != "clear", reading, why, octets }
        })
        .collect()
}

/// What a case sends.
fn octets(text: &str, url: &str) -> Vec<u8> {
    let hidden = "GET {url}/hidden HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n";
    let text = text.replace("<hidden>", hidden).replace("{url}", url).replace("{host}", "o.test");
    let text = text.replace("{long}", &"x".repeat(70_000));
    let (mut octets, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, behind @ ..] = rest {
        (octets, rest) = match (first, behind) {
            (b'\\', [b'x', high, low, behind @ ..]) => {
                let digits = [*high, *low];
                let octet = u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap();
                ([octets, vec![octet]].concat(), behind)
            }
            (b'\\', [escaped, behind @ ..]) => {
                let octet = match escaped {
                    b'r' => b'\r',
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'\\' => b'\\',
                    other => panic!("\\{} is unknown", char::from(*other)),
                };
                ([octets, vec![octet]].concat(), behind)
            }
            _ => {
                octets.push(*first);
                (octets, behind)
            }
        };
    }
    octets
}

/// An origin that writes down what it understands.
struct Recorder {
    address: SocketAddr,
    understood: Arc<Mutex<Vec<Understood>>>,
    _accepting: AbortOnDropHandle<()>,
}

/// A whole request, or why there is none.
#[derive(Clone, Debug)]
enum Understood {
    Request { line: String, host: String, length: usize },
    Nonsense(String),
}

impl Recorder {
    async fn start(tls: bool) -> Recorder {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let understood = Arc::new(Mutex::new(Vec::new()));
        let acceptor = tls.then(|| TlsAcceptor::from(authority::every_name(&[b"http/1.1"])));
        let notes = Arc::clone(&understood);
        let accepting = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, notes) = (acceptor.clone(), Arc::clone(&notes));
                connections.spawn(async move {
                    match acceptor {
                        None => serve(stream, &notes).await,
                        Some(acceptor) => serve(acceptor.accept(stream).await.unwrap(), &notes).await,
                    }
                });
            }
        });
        Recorder { address, understood, _accepting: AbortOnDropHandle::new(accepting) }
    }

    fn take(&self) -> Vec<Understood> {
        std::mem::take(&mut self.understood.lock().unwrap())
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(stream: S, notes: &Mutex<Vec<Understood>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let understood = match request(&mut stream).await {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(why) => Understood::Nonsense(why),
        };
        let is_over = matches!(understood, Understood::Nonsense(_));
        let is_robots = matches!(&understood, Understood::Request { line, .. } if line == "GET /robots.txt");
        if !is_robots {
            notes.lock().unwrap().push(understood);
        }
        if is_over || stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.is_err() {
            return;
        }
        let _ = stream.flush().await;
    }
}

/// One request, read by the letter of RFC 9112; `None` where the connection ends before it is whole.
async fn request<S: AsyncRead + Unpin>(stream: &mut BufReader<S>) -> Result<Option<Understood>, String> {
    let Some(line) = line(stream).await? else { return Ok(None) };
    let [method, target, "HTTP/1.1"] = line.split(' ').collect::<Vec<_>>()[..] else { return Err(line) };
    let is_token = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&octet))
    };
    if !is_token(method) || !target.starts_with('/') || target.contains('#') {
        return Err(line);
    }
    let (mut hosts, mut lengths, mut codings) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let Some(field) = self::line(stream).await? else { return Ok(None) };
        if field.is_empty() {
            break;
        }
        let (name, value) = field.split_once(':').filter(|(name, _)| is_token(name)).ok_or(field.clone())?;
        if value.contains(['\r', '\0']) {
            return Err(field);
        }
        match name.to_ascii_lowercase().as_str() {
            "host" => hosts.push(value.trim().to_owned()),
            "content-length" => lengths.push(value.trim().to_owned()),
            "transfer-encoding" => codings.push(value.trim().to_owned()),
            "connection" | "upgrade" | "proxy-connection" | "x-original-url" => return Err(field),
            _ => {}
        }
    }
    let length = match (&lengths[..], &codings[..]) {
        ([], []) => Some(0),
        ([length], []) if length.bytes().all(|octet| octet.is_ascii_digit()) => {
            let length: usize = length.parse().map_err(|_| length.clone())?;
            stream.read_exact(&mut vec![0; length]).await.ok().map(|_| length)
        }
        ([], [coding]) if coding == "chunked" => chunks(stream).await?,
        _ => return Err(format!("{lengths:?} {codings:?}")),
    };
    let [host] = &hosts[..] else { return Err(format!("{hosts:?}")) };
    let line = format!("{method} {target}");
    Ok(length.map(|length| Understood::Request { line, host: host.clone(), length }))
}

async fn chunks<S: AsyncRead + Unpin>(stream: &mut BufReader<S>) -> Result<Option<usize>, String> {
    let mut length = 0;
    loop {
        let Some(size) = line(stream).await? else { return Ok(None) };
        if size.is_empty() || !size.bytes().all(|octet| octet.is_ascii_hexdigit()) {
            return Err(size);
        }
        let octets = usize::from_str_radix(&size, 16).map_err(|_| size)?;
        if stream.read_exact(&mut vec![0; octets]).await.is_err() {
            return Ok(None);
        }
        length += octets;
        match line(stream).await? {
            None => return Ok(None),
            Some(end) if end.is_empty() && octets == 0 => return Ok(Some(length)),
            Some(end) if end.is_empty() => {}
            // No trailer is passed on to an HTTP/1.1 origin.
            Some(end) => return Err(end),
        }
    }
}

/// A line with its CRLF taken off; `None` where the connection ends first.
async fn line<S: AsyncRead + Unpin>(stream: &mut BufReader<S>) -> Result<Option<String>, String> {
    let mut line = Vec::new();
    let read = stream.read_until(b'\n', &mut line).await;
    if read.is_err() || line.last() != Some(&b'\n') {
        return Ok(None);
    }
    let text: String = line.iter().map(|octet| char::from(*octet)).collect();
    text.strip_suffix("\r\n").map(str::to_owned).map(Some).ok_or(text)
}

/// The statuses of all answers, interim ones left out.
fn statuses(answers: &str) -> Vec<&str> {
    let heads = answers.match_indices("HTTP/1.").map(|(at, _)| &answers[at + 9..]);
    heads
        .filter_map(|rest| rest.get(..3))
        .filter(|status| status.parse::<u16>().is_ok_and(|status| status >= 200))
        .collect()
}

/// Sends a case and a plain request behind it, and returns all that comes.
async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(mut wire: Wire<S>, case: &Case, url: &str) -> String {
    wire.send(octets(case.octets, url)).await;
    let first = wire.first_head().await;
    let plain = format!("GET {url}/plain HTTP/1.1\r\nHost: o.test\r\nConnection: close\r\n\r\n");
    // The connection may be closed by now.
    let _ = wire.stream.write_all(plain.as_bytes()).await;
    let _ = wire.stream.flush().await;
    first + &wire.rest().await
}

/// Checks one exchange against the case: what the client was told, what the origin understood, and what the records say.
fn compare(case: &Case, scheme: &str, answers: &str, understood: &[Understood], records: &[Value]) {
    let why = format!("{} ({scheme}): {answers}\n{understood:#?}\n{records:#?}", case.why);
    let mut requests = understood.iter().map(|understood| match understood {
        Understood::Request { line, host, length } => (line.as_str(), host.as_str(), *length),
        Understood::Nonsense(octets) => panic!("the origin cannot read {octets:?}: {why}"),
    });
    let (told, record) = (statuses(answers)[0], &records[0]);
    match &case.reading {
        Reading::Refused(status) => {
            assert_eq!(told, status, "{why}");
            assert!(answers.to_lowercase().contains("proxy-status: robots-proxy; error="), "{why}");
            assert_ne!(record["decision"], "allow", "{why}");
        }
        Reading::One(reading) => {
            let (line, host, length) = requests.next().unwrap_or_else(|| panic!("{why}"));
            assert_eq!((told, format!("{line} {length}")), ("200", reading.clone()), "{why}");
            assert!(["o.test", "o.test:80", "o.test:443"].contains(&host.to_lowercase().as_str()), "{why}");
            let (method, target) = line.split_once(' ').unwrap();
            assert_eq!((&record["method"], &record["decision"]), (&method.into(), &"allow".into()), "{why}");
            assert_eq!(record["url"], format!("{scheme}://o.test{target}"), "{why}");
        }
    }
    match requests.next() {
        None => {}
        Some((line, _, length)) => assert_eq!((line, length), ("GET /plain", 0), "{why}"),
    }
    assert_eq!(requests.next(), None, "{why}");
}

async fn proxy_before(clear: &Recorder, tls: &Recorder) -> Proxy {
    Proxy::with(&[], |settings| {
        settings.upstream.connect_to = [("o.test:80", clear), ("o.test:443", tls)]
            .map(|(from, to)| ConnectTo { from: from.parse().unwrap(), to: to.address.to_string().parse().unwrap() })
            .into();
    })
    .await
}

#[tokio::test]
async fn every_odd_request_has_one_reading_or_none() {
    let (clear, tls) = (Recorder::start(false).await, Recorder::start(true).await);
    let proxy = proxy_before(&clear, &tls).await;
    let cases = corpus();
    assert!(cases.len() >= 80, "{}", cases.len());
    let mut recorded = 0;
    for case in &cases {
        for (scheme, wanted, origin) in [("http", case.clear, &clear), ("https", case.tunnel, &tls)] {
            if !wanted {
                continue;
            }
            let answers = match scheme {
                "http" => exchange(Wire::to(&proxy).await, case, "http://o.test").await,
                _ => {
                    let tunnel = Wire::tunnel(&proxy, "o.test:443").await;
                    exchange(tunnel.tls(&proxy, "o.test", &[b"http/1.1"]).await, case, "").await
                }
            };
            let number = statuses(&answers).len();
            let records = proxy.records(recorded + number).await.split_off(recorded);
            assert_eq!(records.len(), number, "{}: a record an answer: {answers}\n{records:#?}", case.why);
            compare(case, scheme, &answers, &origin.take(), &records);
            recorded += number;
        }
    }
}
