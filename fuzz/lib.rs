//! The robots engine and its slow model, and the readers of what clients send, for the fuzz targets. Run with
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run parse -- -max_total_time=1200 -dict=robots.dict` in the project's folder, or another of the targets.

#[path = "../src/robots/mod.rs"]
pub mod robots;

/// What a connection begins with, and what requests are for.
#[path = "../src/policy"]
pub mod policy {
    pub mod decision;
    pub mod opening;
    pub mod reason;
    pub mod standing;
    pub mod target;
}

/// How bodies are read.
#[allow(dead_code, reason = "heads are read elsewhere")]
#[path = "../src/http1"]
mod http1 {
    pub(crate) mod body;
    pub(crate) mod framing;
    mod malformed;

    pub(crate) use self::malformed::Malformed;
}

#[path = "../tests/robots/model.rs"]
mod slow;

use bytes::BytesMut;
use http1::body::{Decoder, Piece};
use http1::framing::Length;
use robots::{RobotsTxt, RuleKind};
use slow::Model;

/// Splits what the fuzzer gives into token, path and file at the first two zero octets.
pub fn question(data: &[u8]) -> Option<(&str, &[u8], &[u8])> {
    let mut parts = data.splitn(3, |octet| *octet == 0);
    let token = std::str::from_utf8(parts.next()?).ok()?;
    Some((token, parts.next()?, parts.next()?))
}

/// Panics where the engine and the model disagree.
pub fn agree(body: &[u8], max_bytes: usize, token: &str, path: &[u8]) {
    let robots = RobotsTxt::parse_within(body, max_bytes);
    let model = Model::read(body, max_bytes);
    assert_eq!(robots.crawl_delay(token), model.crawl_delay(token));
    let verdict = robots.verdict(token, path);
    let answer = model.answer(token, path);
    let rule = verdict.rule.map(|rule| (rule.kind == RuleKind::Allow, rule.value.to_vec(), rule.line));
    assert_eq!((verdict.allow, rule, verdict.group.is_some()), (answer.allow, answer.rule, answer.has_group));
    assert_eq!(robots.matching(token, path).first().map(|(_, rule)| *rule), verdict.rule);
}

/// The octets of a body in chunks which come in pieces, whether it has ended, and how many octets were left behind it; `None` where it
/// is none.
pub fn in_chunks(octets: &[u8], piece: usize) -> Option<(Vec<u8>, bool, usize)> {
    let (mut decoder, mut buffer, mut body) = (Decoder::new(Length::Chunked), BytesMut::new(), Vec::new());
    let mut pieces = octets.chunks(piece);
    loop {
        match decoder.next(&mut buffer).ok()? {
            Piece::Data(data) => body.extend_from_slice(&data),
            Piece::Trailers(_) => {}
            Piece::End => return Some((body, true, buffer.len() + pieces.map(<[u8]>::len).sum::<usize>())),
            Piece::Wanting => match pieces.next() {
                Some(piece) => buffer.extend_from_slice(piece),
                None => return Some((body, decoder.is_over(), 0)),
            },
        }
    }
}
