//! Answers to what is no request, or none that goes through the pipeline.
//!
//! Its sender deserves a sentence and the log a line, like that of any refused request.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Method, Response, Version, header};
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::body::Body;
use super::listener::Proxy;
use super::pipeline::Client;
use crate::clock;
use crate::http1::head;
use crate::policy::answer::Rendering;
use crate::policy::reason::Reason;
use crate::upstream;

pub(super) const TOO_LARGE: &str = "the head of the request is larger than limits.header_bytes, or has too many fields";

pub(super) const NOT_HTTP: &str = "the request line or a header field is not HTTP/1.1";

/// The answer to a request of which no more is known than that it cannot be read. Its record is written when it is dropped here.
pub(super) fn explanation(proxy: &Proxy, client: &Client, reason: Reason, detail: &str) -> Vec<u8> {
    let unknown = Method::from_bytes(b"-").expect("a hyphen is a token");
    let mut record = client.record(&proxy.pipeline.audit, &proxy.pipeline.terms.load(), &unknown);
    let response = record.answer(reason, detail.to_owned()).render(Rendering::Text);
    record.answered(response.status());
    record.sent(response.body().len() as u64);
    record.failed(reason, Some(detail.to_owned()));
    written(response.map(Bytes::from), true)
}

/// An answer of our own as it goes over the wire.
pub(super) async fn octets(response: Response<Body>, is_last: bool) -> Result<Vec<u8>, upstream::Error> {
    let (head, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(written(Response::from_parts(head, body), is_last))
}

fn written(mut response: Response<Bytes>, is_last: bool) -> Vec<u8> {
    let length = response.body().len();
    response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    if is_last {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let mut octets = BytesMut::new();
    head::write_response(&mut octets, Version::HTTP_11, &response);
    octets.extend_from_slice(response.body());
    octets.into()
}

/// Closes a stream behind an answer. What the client is still sending is read for a moment: a stream that is closed on unread octets
/// is reset, and a reset takes the answer with it (RFC 9112 §9.6).
pub(super) async fn close<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    if stream.shutdown().await.is_ok() {
        let reading = async { tokio::io::copy(&mut stream.take(READ_AT_CLOSE), &mut tokio::io::sink()).await };
        let _ = clock::timeout(READ_AT_CLOSE_FOR, reading).await;
    }
}

/// Chosen; enough for what is under way when the answer comes.
const READ_AT_CLOSE: u64 = 1024 * 1024;
const READ_AT_CLOSE_FOR: Duration = Duration::from_secs(2);
