//! The request for robots.txt itself.
//!
//! One deadline covers names, connections, redirects and body, so that a site that never answers stalls nobody for longer. A body
//! that ends early is a failure and not "the rules so far", since the missing lines may be the Disallow ones; only the size limit
//! may end it, counted after decoding, so that a compressed bomb is no larger than a file. No header of any client goes along.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZlibDecoder};
use futures_util::TryStreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use http::uri::PathAndQuery;
use http::{HeaderMap, Request, Response, StatusCode, Uri, header, response};
use http_body_util::BodyExt;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncReadExt};
use tokio_util::io::StreamReader;

use super::Fetch;
use crate::clock;
use crate::policy::target::{Origin, Target};
use crate::queue::Queue;
use crate::upstream::{self, RequestBody, Speech, Upstream};

/// How robots.txt is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The User-Agent of the request; it should name a contact.
    pub user_agent: String,
    /// For the whole fetch, redirects included.
    pub timeout: Duration,
    /// Decoded octets of the body that are read.
    pub max_bytes: usize,
    /// Redirects that are followed (RFC 9309 §2.3.1.2: at least five).
    pub max_redirects: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            user_agent: concat!(
                "robots-proxy/",
                env!("CARGO_PKG_VERSION"),
                " (+https://www.rfc-editor.org/rfc/rfc9309.html)"
            )
            .into(),
            timeout: Duration::from_secs(10),
            max_bytes: crate::robots::MAX_BYTES,
            max_redirects: 5,
        }
    }
}

/// The answer to a request for robots.txt.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The status of the last answer.
    pub status: StatusCode,
    /// Its header fields.
    pub headers: HeaderMap,
    /// Its body, decoded, one octet more than the limit at most.
    pub body: Vec<u8>,
    /// The URL that was answered, where redirects led to another one.
    pub final_url: Option<String>,
    /// More redirects than are followed, or a circle of them.
    pub too_many_redirects: bool,
}

/// Why robots.txt could not be had.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The deadline passed.
    #[error("no answer within {} s", .0.as_secs_f32())]
    TimedOut(Duration),
    /// The origin cannot be asked.
    #[error(transparent)]
    Upstream(#[from] upstream::Error),
    /// A redirect to where nobody may be connected to.
    #[error("robots.txt redirects to {url}, which cannot be followed: {source}")]
    BarredHop {
        /// Where it leads.
        url: String,
        /// What bars it.
        source: upstream::Error,
    },
    /// The body ended early or cannot be decoded.
    #[error("the body of robots.txt was cut short: {0}")]
    Incomplete(#[source] io::Error),
    /// The host has asked for a pause, which the question for its robots.txt keeps, too.
    #[error("the host asked to be left alone for another {} s", .0.as_secs())]
    Held(Duration),
    /// A redirect that may not be followed.
    #[error("robots.txt redirects to {location:?}, which cannot be followed")]
    Redirect {
        /// The Location field.
        location: String,
    },
    /// The body is compressed in a way that was not asked for.
    #[error("robots.txt has the unknown content coding {0:?}")]
    Coding(String),
}

/// The real [`Fetch`].
pub struct RobotsFetch {
    settings: Arc<Settings>,
    upstream: Arc<Upstream>,
    /// `None` where nobody else asks the hosts anything, as in `check`.
    queue: Option<Arc<Queue>>,
}

impl RobotsFetch {
    /// Fetches over the connections that pages use, too.
    pub fn new(settings: Settings, upstream: Arc<Upstream>, queue: Option<Arc<Queue>>) -> RobotsFetch {
        RobotsFetch { settings: Arc::new(settings), upstream, queue }
    }
}

impl RobotsFetch {
    /// Asks for a robots.txt that lies wherever it lies.
    pub fn fetch_from(
        &self,
        target: Target,
        speech: Speech,
        validators: Option<Validators>,
    ) -> BoxFuture<'static, Result<Fetched, FetchError>> {
        let (settings, upstream) = (Arc::clone(&self.settings), Arc::clone(&self.upstream));
        // What is switched to a WebSocket serves no page.
        let speech = if speech == Speech::WebSocket { Speech::Http1 } else { speech };
        let held_until = self.queue.as_ref().and_then(|queue| queue.held_until(&target.origin.host));
        async move {
            let timeout = settings.timeout;
            let held = held_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(clock::now()));
            if held > timeout {
                return Err(FetchError::Held(held));
            }
            clock::sleep(held).await;
            match clock::timeout(timeout, follow(&settings, &upstream, target, speech, validators.as_ref())).await {
                Some(fetched) => fetched,
                None => Err(FetchError::TimedOut(timeout)),
            }
        }
        .boxed()
    }
}

impl Fetch for RobotsFetch {
    fn fetch(
        &self,
        origin: &Origin,
        speech: Speech,
        validators: Option<Validators>,
    ) -> BoxFuture<'static, Result<Fetched, FetchError>> {
        let target = Target { origin: origin.clone(), path: PathAndQuery::from_static("/robots.txt") };
        self.fetch_from(target, speech, validators)
    }
}

/// What makes a request conditional: the answer is 304 where the copy at hand still holds (RFC 9110 §13.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validators {
    /// The URL whose answer is at hand.
    pub url: String,
    /// Its ETag.
    pub etag: Option<String>,
    /// Its Last-Modified.
    pub last_modified: Option<String>,
}

/// Asks, and follows redirects, also to other hosts: the rules count for the origin that was asked first (RFC 9309 §2.3.1.2).
async fn follow(
    settings: &Settings,
    upstream: &Arc<Upstream>,
    mut target: Target,
    speech: Speech,
    validators: Option<&Validators>,
) -> Result<Fetched, FetchError> {
    let mut visited = Vec::new();
    loop {
        let answer = ask(settings, upstream, &target, speech, validators).await;
        let (head, body) = answer
            .map_err(|error| match error {
                FetchError::Upstream(source) if !visited.is_empty() && source.off_limits().is_some() => {
                    FetchError::BarredHop { url: target.to_string(), source }
                }
                error => error,
            })?
            .into_parts();
        let final_url = (!visited.is_empty()).then(|| target.to_string());
        let next = next_hop(&target, &head)?;
        visited.push(target);
        match next {
            Some(next) if visited.len() <= settings.max_redirects && !visited.contains(&next) => target = next,
            too_many => {
                let body = match too_many {
                    Some(_) => Vec::new(),
                    None => read_body(&head.headers, body, settings.max_bytes).await?,
                };
                let too_many_redirects = too_many.is_some();
                return Ok(Fetched { status: head.status, headers: head.headers, body, final_url, too_many_redirects });
            }
        }
    }
}

async fn ask(
    settings: &Settings,
    upstream: &Arc<Upstream>,
    target: &Target,
    speech: Speech,
    validators: Option<&Validators>,
) -> Result<Response<upstream::Body>, FetchError> {
    let mut request = Request::get(target.path.as_str())
        .header(header::USER_AGENT, &settings.user_agent)
        .header(header::ACCEPT, "text/plain, */*;q=0.5")
        .header(header::ACCEPT_ENCODING, "gzip, br, deflate");
    if let Some(validators) = validators.filter(|validators| validators.url == target.to_string()) {
        for (name, value) in
            [(header::IF_NONE_MATCH, &validators.etag), (header::IF_MODIFIED_SINCE, &validators.last_modified)]
        {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
    }
    let request = request.body(RequestBody::Empty).map_err(|error| upstream::Error::Protocol(Box::new(error)))?;
    let connection = upstream.connect(&target.origin, speech).await?;
    match connection.send(target, Box::new(request), clock::now()).await {
        Err(upstream::Error::Lost(request)) => {
            Ok(upstream.connect(&target.origin, speech).await?.send(target, request, clock::now()).await?)
        }
        answer => Ok(answer?),
    }
}

/// Where a redirect leads; `None` for an answer that is no redirect.
fn next_hop(from: &Target, head: &response::Parts) -> Result<Option<Target>, FetchError> {
    if !matches!(head.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let location =
        head.headers.get(header::LOCATION).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let location = location.unwrap_or_default();
    let resolved = || -> Option<Target> {
        let base = url::Url::parse(&from.to_string()).ok()?;
        let mut url = base.join(Some(location.as_str()).filter(|text| !text.is_empty())?).ok()?;
        url.set_fragment(None);
        let uri: Uri = url.as_str().parse().ok()?;
        let path = uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        Some(Target { origin: Origin::of(&uri).ok()?, path })
    };
    resolved().map(Some).ok_or(FetchError::Redirect { location: location.clone() })
}

/// The body, decoded, up to one octet beyond `max_bytes`: that one tells that there was more.
async fn read_body(headers: &HeaderMap, body: upstream::Body, max_bytes: usize) -> Result<Vec<u8>, FetchError> {
    let raw = StreamReader::new(body.into_data_stream().map_err(io::Error::other));
    let coding = headers
        .get(header::CONTENT_ENCODING)
        .map(|value| String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase());
    let reader = decoder(coding.as_deref().unwrap_or("identity").trim(), raw)?;
    let mut octets = Vec::new();
    reader.take(max_bytes as u64 + 1).read_to_end(&mut octets).await.map_err(FetchError::Incomplete)?;
    Ok(octets)
}

fn decoder<R>(coding: &str, raw: R) -> Result<Box<dyn AsyncRead + Send + Unpin>, FetchError>
where
    R: AsyncBufRead + Send + Unpin + 'static,
{
    match coding {
        "" | "identity" => Ok(Box::new(raw)),
        "gzip" | "x-gzip" => Ok(Box::new(GzipDecoder::new(raw))),
        "deflate" => Ok(Box::new(ZlibDecoder::new(raw))),
        "br" => Ok(Box::new(BrotliDecoder::new(raw))),
        other => Err(FetchError::Coding(other.to_owned())),
    }
}
