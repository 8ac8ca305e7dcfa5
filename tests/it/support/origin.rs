//! An origin that does as it is told, and remembers who came.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, future};
use http::{HeaderMap, Method, Request, Response, Version, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use robots_proxy::clock;
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::either::Either;
use tokio_util::task::AbortOnDropHandle;

use super::{authority, in_time};

/// A request as the origin saw it.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    /// When its head had come.
    pub(crate) at: Instant,
    /// Which request of its connection, counted from 1.
    pub(crate) nth: usize,
    pub(crate) version: Version,
    pub(crate) method: Method,
    /// Host or `:authority`.
    pub(crate) authority: String,
    /// Path and query as sent.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    /// The head octet by octet, of a raw origin.
    pub(crate) head: String,
}

impl Visit {
    pub(crate) fn is_robots(&self) -> bool {
        self.path == "/robots.txt"
    }

    /// The host without its port.
    pub(crate) fn host(&self) -> &str {
        self.authority.split(':').next().unwrap_or_default()
    }
}

/// What the origin does about a request.
pub(crate) enum Reply {
    /// Answers.
    Answer(Response<Bytes>),
    /// Answers with a body that comes as the test sends it.
    Stream(Response<()>, mpsc::UnboundedReceiver<Bytes>),
    /// Answers when the gate has a permit.
    Gated(Arc<Semaphore>, Response<Bytes>),
    /// Goes on as a WebSocket, and sends every message back.
    WebSocket,
    /// Reads the request's body, telling the sender of each piece, and answers with the number of octets.
    Count(Option<mpsc::UnboundedSender<usize>>),
}

impl Reply {
    /// 200, plain text.
    pub(crate) fn text(body: impl Into<Bytes>) -> Reply {
        Reply::status(200, body)
    }

    /// A status and plain text.
    pub(crate) fn status(status: u16, body: impl Into<Bytes>) -> Reply {
        Reply::with(status, &[("content-type", "text/plain")], body)
    }

    /// A status, header fields and a body.
    pub(crate) fn with(status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Reply {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        Reply::Answer(response.body(body.into()).unwrap())
    }

    /// The answer of a site with these rules: the rules themselves, or the page, which says what was asked for.
    pub(crate) fn of_site(robots: &str, visit: &Visit) -> Reply {
        match visit.is_robots() {
            true => Reply::text(robots.to_owned()),
            false => Reply::text(format!("page {}", visit.path)),
        }
    }
}

/// What an origin does that minds no protocol, on HTTP/1.1.
pub(crate) enum Raw {
    /// Sends these octets and closes.
    Close(Vec<u8>),
    /// Sends these octets and waits for the next request.
    Keep(Vec<u8>),
    /// Sends these octets, and then everything that comes back to where it came from.
    Echo(Vec<u8>),
    /// Sends one octet after the other, for ever.
    Drip(Vec<u8>),
    /// Never answers.
    Silence,
    /// Resets the connection.
    Reset,
}

impl Raw {
    /// A whole answer, after which the connection is kept.
    pub(crate) fn ok(body: &str) -> Raw {
        Raw::Keep(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes())
    }
}

/// What the origin does, request by request.
#[derive(Clone)]
enum Script {
    Http(Arc<dyn Fn(&Visit) -> Reply + Send + Sync>),
    Raw(Arc<dyn Fn(&Visit) -> Raw + Send + Sync>),
}

type Stream = Either<TcpStream, TlsStream<TcpStream>>;

/// The origin. It is gone when it is dropped, with its connections.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    pub(crate) is_tls: bool,
    seen: Arc<Seen>,
    _accepting: AbortOnDropHandle<()>,
}

struct Seen {
    visits: Mutex<Vec<Visit>>,
    connections: AtomicUsize,
    news: watch::Sender<()>,
}

impl Origin {
    /// In clear text.
    pub(crate) async fn http(script: impl Fn(&Visit) -> Reply + Send + Sync + 'static) -> Origin {
        Origin::start(None, Script::Http(Arc::new(script))).await
    }

    /// With TLS, HTTP/2 or HTTP/1.1 as the client likes.
    pub(crate) async fn https(script: impl Fn(&Visit) -> Reply + Send + Sync + 'static) -> Origin {
        Origin::tls(authority::every_name(&[b"h2", b"http/1.1"]), script).await
    }

    /// With TLS of one's own.
    pub(crate) async fn tls(
        tls: Arc<ServerConfig>,
        script: impl Fn(&Visit) -> Reply + Send + Sync + 'static,
    ) -> Origin {
        Origin::start(Some(tls), Script::Http(Arc::new(script))).await
    }

    /// Octet by octet, in clear text.
    pub(crate) async fn raw(script: impl Fn(&Visit) -> Raw + Send + Sync + 'static) -> Origin {
        Origin::start(None, Script::Raw(Arc::new(script))).await
    }

    /// Octet by octet, inside TLS.
    pub(crate) async fn raw_tls(
        tls: Arc<ServerConfig>,
        script: impl Fn(&Visit) -> Raw + Send + Sync + 'static,
    ) -> Origin {
        Origin::start(Some(tls), Script::Raw(Arc::new(script))).await
    }

    async fn start(tls: Option<Arc<ServerConfig>>, script: Script) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen =
            Arc::new(Seen { visits: Mutex::default(), connections: AtomicUsize::new(0), news: watch::Sender::new(()) });
        let (is_tls, counted) = (tls.is_some(), Arc::clone(&seen));
        let accepting = tokio::spawn(async move {
            // Dropped with this task, and its connections with it.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counted.connections.fetch_add(1, Ordering::SeqCst);
                connections.spawn(serve(stream, tls.clone(), script.clone(), Arc::clone(&counted)));
            }
        });
        Origin { address, is_tls, seen, _accepting: AbortOnDropHandle::new(accepting) }
    }

    /// Everybody who came, in order.
    pub(crate) fn visits(&self) -> Vec<Visit> {
        self.seen.visits.lock().unwrap().clone()
    }

    /// Who came for robots.txt.
    pub(crate) fn robots(&self) -> Vec<Visit> {
        self.visits().into_iter().filter(Visit::is_robots).collect()
    }

    /// Who came for anything else.
    pub(crate) fn pages(&self) -> Vec<Visit> {
        self.visits().into_iter().filter(|visit| !visit.is_robots()).collect()
    }

    /// The paths of [`Origin::pages`].
    pub(crate) fn paths(&self) -> Vec<String> {
        self.pages().into_iter().map(|visit| visit.path).collect()
    }

    /// Connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// Waits until so many have come for a page.
    pub(crate) async fn until_pages(&self, number: usize) {
        let mut news = self.seen.news.subscribe();
        let coming = async {
            while self.pages().len() < number {
                news.changed().await.unwrap();
            }
        };
        in_time("a visit to the origin", coming).await;
    }
}

impl Seen {
    fn note(&self, visit: &Visit) {
        self.visits.lock().unwrap().push(visit.clone());
        self.news.send_replace(());
    }
}

async fn serve(stream: TcpStream, tls: Option<Arc<ServerConfig>>, script: Script, seen: Arc<Seen>) {
    let _ = stream.set_nodelay(true);
    let stream = match tls {
        None => Stream::Left(stream),
        Some(tls) => match TlsAcceptor::from(tls).accept(stream).await {
            Ok(stream) => Stream::Right(stream),
            Err(_) => return,
        },
    };
    match script {
        Script::Raw(script) => serve_raw(stream, &*script, &seen).await,
        Script::Http(script) => {
            let nth = AtomicUsize::new(0);
            let service = service_fn(|request: Request<Incoming>| {
                let nth = nth.fetch_add(1, Ordering::SeqCst) + 1;
                let visit = Visit::of(&request, nth);
                seen.note(&visit);
                let reply = script(&visit);
                async move { Ok::<_, Infallible>(reply.play(request).await) }
            });
            let server = auto::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
        }
    }
}

impl Visit {
    fn of<B>(request: &Request<B>, nth: usize) -> Visit {
        let host = request.headers().get(header::HOST).map(|host| host.to_str().unwrap().to_owned());
        let authority = request.uri().authority().map(|authority| authority.to_string());
        Visit {
            at: clock::now(),
            nth,
            version: request.version(),
            method: request.method().clone(),
            authority: authority.or(host).unwrap_or_default(),
            path: request.uri().path_and_query().map(|path| path.to_string()).unwrap_or_default(),
            headers: request.headers().clone(),
            head: String::new(),
        }
    }
}

type AnyBody = BoxBody<Bytes, Infallible>;

impl Reply {
    async fn play(self, request: Request<Incoming>) -> Response<AnyBody> {
        match self {
            Reply::WebSocket => echo(request),
            Reply::Answer(response) => response.map(|body| Full::from(body).boxed()),
            Reply::Gated(gate, response) => {
                gate.acquire().await.unwrap().forget();
                response.map(|body| Full::from(body).boxed())
            }
            Reply::Stream(response, pieces) => {
                let frames = futures_util::stream::unfold(pieces, |mut pieces| async move {
                    let piece = pieces.recv().await?;
                    Some((Ok(Frame::data(piece)), pieces))
                });
                response.map(|()| BodyExt::boxed(StreamBody::new(frames)))
            }
            Reply::Count(tell) => {
                let (mut body, mut octets) = (request.into_body(), 0);
                while let Some(Ok(frame)) = body.frame().await {
                    let length = frame.data_ref().map_or(0, Bytes::len);
                    octets += length;
                    if let Some(tell) = &tell {
                        let _ = tell.send(length);
                    }
                }
                Response::new(Full::from(octets.to_string()).boxed())
            }
        }
    }
}

/// Answers the handshake of a WebSocket (RFC 6455 §4.2.2), and echoes what comes.
fn echo(request: Request<Incoming>) -> Response<AnyBody> {
    let key = request.headers().get(header::SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes()));
    tokio::spawn(async move {
        let stream = TokioIo::new(hyper::upgrade::on(request).await.unwrap());
        let (to, from) = WebSocketStream::from_raw_socket(stream, Role::Server, None).await.split();
        let _ = from.try_filter(|message| future::ready(message.is_text())).forward(to).await;
    });
    Response::builder()
        .status(101)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_ACCEPT, key.unwrap_or_default())
        .body(Full::default().boxed())
        .unwrap()
}

/// One request after the other, without a body each.
async fn serve_raw(mut stream: Stream, script: &(dyn Fn(&Visit) -> Raw + Send + Sync), seen: &Seen) {
    for nth in 1.. {
        let Some(head) = read_head(&mut stream).await else { return };
        let visit = Visit { head: head.clone(), ..Visit::of(&parse_head(&head), nth) };
        seen.note(&visit);
        match script(&visit) {
            Raw::Keep(octets) => {
                if stream.write_all(&octets).await.is_err() {
                    return;
                }
            }
            Raw::Close(octets) => {
                let _ = stream.write_all(&octets).await;
                let _ = stream.shutdown().await;
                return;
            }
            Raw::Echo(octets) => {
                let _ = stream.write_all(&octets).await;
                let (mut from, mut to) = tokio::io::split(stream);
                let _ = tokio::io::copy(&mut from, &mut to).await;
                let _ = to.shutdown().await;
                return;
            }
            Raw::Drip(octets) => {
                for octet in octets.iter().cycle() {
                    if stream.write_all(&[*octet]).await.is_err() {
                        return;
                    }
                    clock::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
            Raw::Silence => std::future::pending().await,
            Raw::Reset => {
                let socket = match &stream {
                    Either::Left(socket) => socket,
                    Either::Right(tls) => tls.get_ref().0,
                };
                socket.set_zero_linger().unwrap();
                return;
            }
        }
    }
}

async fn read_head(stream: &mut Stream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

fn parse_head(head: &str) -> Request<()> {
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let mut request = Request::builder()
        .method(words.next().unwrap_or_default())
        .uri(words.next().unwrap_or_default())
        .version(Version::HTTP_11);
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        request = request.header(name, value);
    }
    request.body(()).unwrap()
}
