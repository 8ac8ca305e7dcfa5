//! WebSockets (RFC 6455), the one protocol that HTTP/1.1 is switched to.
//!
//! The handshake is a request like any other: decided on by its path, paced as one request, and answered by the proxy where it is
//! refused. Only when the origin has answered 101 are octets copied, unread, both ways. Its record is written at its end. HTTP/2 is
//! not offered a way to open one (RFC 8441): browsers then use a connection with HTTP/1.1, which every origin understands.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use http::{HeaderMap, Method, Request, Version, header};
use http_body::Body as _;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio_util::sync::CancellationToken;

use super::pipeline::Client;
use crate::audit::Record;
use crate::clock;
use crate::upstream::{RequestBody, WebSocket};

/// Whether a request asks for a WebSocket; marks it then, so that the origin is asked too.
pub(super) fn is_asked(request: &mut Request<RequestBody>) -> bool {
    let is_handshake = request.method() == Method::GET
        && request.version() == Version::HTTP_11
        && request.body().is_end_stream()
        && names(request.headers(), header::CONNECTION, "upgrade")
        && is_only(request.headers(), header::UPGRADE, "websocket");
    if is_handshake {
        request.extensions_mut().insert(WebSocket);
    }
    is_handshake
}

/// Whether an origin's 101 switches to WebSocket, and to nothing else.
pub(super) fn is_granted(headers: &HeaderMap) -> bool {
    is_only(headers, header::UPGRADE, "websocket")
}

fn names(headers: &HeaderMap, name: header::HeaderName, option: &str) -> bool {
    let values = headers.get_all(name);
    let mut options = values.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    options.any(|named| named.trim().eq_ignore_ascii_case(option))
}

fn is_only(headers: &HeaderMap, name: header::HeaderName, option: &str) -> bool {
    let mut values = headers.get_all(name).iter();
    let first = values.next().is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(option.as_bytes()));
    first && values.next().is_none()
}

/// Copies octets until both sides have ended. `_client` keeps the connection counted.
pub(super) async fn serve(
    client_side: impl AsyncRead + AsyncWrite,
    origin_side: impl AsyncRead + AsyncWrite,
    mut record: Record,
    stopping: CancellationToken,
    _client: Client,
) {
    let (mut from_client, mut to_client) = split(client_side);
    let (mut from_origin, mut to_origin) = split(origin_side);
    let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
    let copying = async {
        let up = copy(&mut from_client, &mut to_origin, &received);
        let down = copy(&mut from_origin, &mut to_client, &sent);
        either_then_other(up, down).await;
    };
    let octets = || sent.load(Ordering::Relaxed) + received.load(Ordering::Relaxed);
    tokio::select! {
        () = copying => {}
        () = quiet_for(IDLE, octets) => {}
        () = async { stopping.cancelled().await; quiet_for(QUIET_AT_STOP, octets).await } => {}
    }
    record.sent(sent.load(Ordering::Relaxed));
}

/// Chosen; applications send pings within minutes, so that this long a silence is a peer that is gone.
const IDLE: Duration = Duration::from_secs(3600);

/// A stop lets messages finish that are under way. It cannot say good-bye, not knowing where one message ends and the next begins.
const QUIET_AT_STOP: Duration = Duration::from_secs(1);

/// RFC 6455 §7.1.1: the origin closes first and the client follows at once. A side that does not is cut off.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// Enough for most messages; two of them are held per WebSocket.
const BUFFER: usize = 8 * 1024;

async fn copy<R, W>(from: &mut R, to: &mut W, octets: &AtomicU64) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; BUFFER];
    loop {
        let came = from.read(&mut buffer).await?;
        if came == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..came]).await?;
        to.flush().await?;
        octets.fetch_add(came as u64, Ordering::Relaxed);
    }
}

/// When one side has ended the other has a moment for what it still has to say; when one is broken there is nothing to say.
async fn either_then_other(one: impl Future<Output = io::Result<()>>, other: impl Future<Output = io::Result<()>>) {
    tokio::pin!(one, other);
    match select(one, other).await {
        Either::Left((Ok(()), other)) => drop(clock::timeout(LAST_WORDS, other).await),
        Either::Right((Ok(()), one)) => drop(clock::timeout(LAST_WORDS, one).await),
        Either::Left((Err(_), _)) | Either::Right((Err(_), _)) => {}
    }
}

/// Returns when the number has not changed for so long.
async fn quiet_for(span: Duration, octets: impl Fn() -> u64) {
    loop {
        let before = octets();
        clock::sleep(span).await;
        if octets() == before {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_websocket_alone_is_an_upgrade_that_goes_on() {
        for (values, alone) in [
            (&["websocket"][..], true),
            (&["WebSocket"], true),
            (&["h2c"], false),
            (&["websocket, h2c"], false),
            (&["websocket", "h2c"], false),
            (&["websocket/13"], false),
            (&[], false),
        ] {
            let headers = values.iter().map(|value| (header::UPGRADE, value.parse().unwrap()));
            assert_eq!(is_granted(&headers.collect()), alone, "{values:?}");
        }
    }
}
