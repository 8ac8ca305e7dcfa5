//! Where a message ends (RFC 9112 §6.3).
//!
//! A request is refused where it could be read in two ways, since so one is hidden inside another, and no decent client sends it: a
//! length beside a coding, two lengths, a coding that is not chunks alone. Towards origins the reading is the one of browsers and curl:
//! what an origin says cannot hide a request.

use http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header};

use super::Malformed;

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// After so many octets; 0 where there is none.
    Exactly(u64),
    /// With a chunk of no length, and the trailer.
    Chunked,
    /// With the connection.
    ToEnd,
}

impl Length {
    /// There is no body.
    pub(crate) const NONE: Length = Length::Exactly(0);
}

/// Where the body of a request ends.
///
/// # Errors
/// It has more than one end, or one that is unknown here.
pub(crate) fn of_request(version: Version, headers: &HeaderMap) -> Result<Length, Malformed> {
    if !headers.contains_key(header::TRANSFER_ENCODING) {
        let length =
            content_length(headers).ok_or(Malformed::Framing("the Content-Length of the request is no number"))?;
        return Ok(Length::Exactly(length.unwrap_or(0)));
    }
    if headers.contains_key(header::CONTENT_LENGTH) {
        return Err(Malformed::Framing("the request has both Content-Length and Transfer-Encoding"));
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") && version == Version::HTTP_11 => {
            Ok(Length::Chunked)
        }
        // The origin would get octets of which it is not told how they are coded. HTTP/1.0 has no codings.
        _ => Err(Malformed::Framing("the only Transfer-Encoding that is understood is chunked")),
    }
}

/// Where the body of a final answer ends.
///
/// # Errors
/// Its length is no number, or it has several; or HTTP/1.0 has a coding.
pub(crate) fn of_response(
    asked: &Method,
    status: StatusCode,
    version: Version,
    headers: &HeaderMap,
) -> Result<Length, Malformed> {
    if !has_body(asked, status) {
        return Ok(Length::NONE);
    }
    if let Some(coding) = headers.get_all(header::TRANSFER_ENCODING).iter().next_back() {
        return match version {
            Version::HTTP_10 => Err(Malformed::Framing("an answer in HTTP/1.0 has a Transfer-Encoding")),
            _ if ends_in_chunks(coding) => Ok(Length::Chunked),
            _ => Ok(Length::ToEnd),
        };
    }
    match content_length(headers) {
        Some(Some(length)) => Ok(Length::Exactly(length)),
        Some(None) => Ok(Length::ToEnd),
        None => Err(Malformed::Framing("the Content-Length of the answer is no number")),
    }
}

/// Whether an answer can have a body (RFC 9110 §6.4.1).
pub(crate) fn has_body(asked: &Method, status: StatusCode) -> bool {
    let never = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) || status.is_informational();
    !never && *asked != Method::HEAD && !(*asked == Method::CONNECT && status.is_success())
}

/// The length that the header gives, all fields alike: `Some(None)` where there is none, `None` where it is no length.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<Option<u64>> {
    let mut told = None;
    for value in headers.get_all(header::CONTENT_LENGTH) {
        let length = number(value.as_bytes())?;
        if told.replace(length).is_some_and(|before| before != length) {
            return None;
        }
    }
    Some(told)
}

/// Has the header say the length once, where it says it several times.
pub(crate) fn say_once(headers: &mut HeaderMap) {
    if headers.get_all(header::CONTENT_LENGTH).iter().nth(1).is_some()
        && let Some(Some(length)) = content_length(headers)
    {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
}

/// Digits and nothing else: a sign is read by some and not by others. The largest number is left to those that count.
fn number(text: &[u8]) -> Option<u64> {
    let digits = str::from_utf8(text).ok().filter(|text| text.bytes().all(|octet| octet.is_ascii_digit()))?;
    digits.parse().ok().filter(|&length| length < u64::MAX)
}

fn ends_in_chunks(coding: &HeaderValue) -> bool {
    let codings = coding.as_bytes();
    let last = codings.rsplit(|&octet| octet == b',').next().unwrap_or_default();
    last.trim_ascii().eq_ignore_ascii_case(b"chunked")
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    fn headers(fields: &[(&str, &str)]) -> HeaderMap {
        let field = |(name, value): &(&str, &str)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        fields.iter().map(field).collect()
    }

    #[test]
    fn rfc9112_6_3_a_request_has_one_end() {
        const CODING: &str = "transfer-encoding";
        const LENGTH: &str = "content-length";
        for (fields, length) in [
            (&[][..], Some(Length::NONE)),
            (&[(LENGTH, "7")], Some(Length::Exactly(7))),
            (&[(LENGTH, "7"), (LENGTH, "7")], Some(Length::Exactly(7))),
            (&[(LENGTH, "7"), (LENGTH, "8")], None),
            (&[(LENGTH, "7, 7")], None),
            (&[(LENGTH, "+7")], None),
            (&[(LENGTH, "-7")], None),
            (&[(LENGTH, "0x7")], None),
            (&[(LENGTH, "")], None),
            (&[(LENGTH, "18446744073709551615")], None),
            (&[(LENGTH, "18446744073709551616")], None),
            (&[(CODING, "chunked")], Some(Length::Chunked)),
            (&[(CODING, "Chunked")], Some(Length::Chunked)),
            (&[(CODING, "gzip, chunked")], None),
            (&[(CODING, "chunked, chunked")], None),
            (&[(CODING, "chunked"), (CODING, "chunked")], None),
            (&[(CODING, "identity")], None),
            (&[(CODING, "chunked"), (LENGTH, "7")], None),
            (&[(LENGTH, "7"), (CODING, "chunked")], None),
            (&[(LENGTH, "x"), (CODING, "x")], None),
        ] {
            assert_eq!(of_request(Version::HTTP_11, &headers(fields)).ok(), length, "{fields:?}");
        }
        assert!(of_request(Version::HTTP_10, &headers(&[(CODING, "chunked")])).is_err());
        assert_eq!(of_request(Version::HTTP_10, &headers(&[(LENGTH, "7")])), Ok(Length::Exactly(7)));
    }

    #[test]
    fn rfc9112_6_3_an_answer_ends_as_its_request_and_status_have_it() {
        const LENGTH: (&str, &str) = ("content-length", "7");
        const CHUNKED: (&str, &str) = ("transfer-encoding", "chunked");
        for (method, status, fields, length) in [
            ("GET", 200, &[LENGTH][..], Some(Length::Exactly(7))),
            ("GET", 200, &[], Some(Length::ToEnd)),
            ("GET", 200, &[CHUNKED], Some(Length::Chunked)),
            ("GET", 200, &[CHUNKED, LENGTH], Some(Length::Chunked)),
            ("GET", 200, &[("transfer-encoding", "gzip, chunked")], Some(Length::Chunked)),
            ("GET", 200, &[("transfer-encoding", "gzip")], Some(Length::ToEnd)),
            ("GET", 200, &[("content-length", "x")], None),
            ("GET", 204, &[LENGTH], Some(Length::NONE)),
            ("GET", 304, &[LENGTH], Some(Length::NONE)),
            ("HEAD", 200, &[LENGTH], Some(Length::NONE)),
            ("POST", 500, &[LENGTH], Some(Length::Exactly(7))),
        ] {
            let (method, status) = (method.parse().unwrap(), StatusCode::from_u16(status).unwrap());
            let told = of_response(&method, status, Version::HTTP_11, &headers(fields));
            assert_eq!(told.ok(), length, "{method} {status} {fields:?}");
        }
        assert!(of_response(&Method::GET, StatusCode::OK, Version::HTTP_10, &headers(&[CHUNKED])).is_err());
    }
}
