//! Bodies, out of the octets of a stream (RFC 9112 §6 and §7.1).
//!
//! Chunks are read strictly: whatever two readers could see differently (a bare line feed, a size with a sign, octets between chunks)
//! is no chunk here.

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::Malformed;
use super::framing::Length;

/// How far a body has been read.
#[derive(Debug)]
pub(crate) enum Decoder {
    /// So many octets are left.
    Exactly(u64),
    /// In chunks.
    Chunked(Chunked),
    /// All that comes.
    ToEnd,
}

/// How far a body in chunks has been read.
#[derive(Debug, Default)]
pub(crate) struct Chunked {
    at: At,
    /// Octets of extensions so far, and of space in front of them.
    extensions: usize,
}

#[derive(Clone, Copy, Debug)]
enum At {
    /// In the digits of a size.
    Size {
        size: u64,
        digits: u32,
    },
    /// In the space behind them.
    Space {
        size: u64,
    },
    /// In an extension, up to the end of the line.
    Extension {
        size: u64,
    },
    /// At the line feed of that line.
    SizeEnd {
        size: u64,
    },
    /// In the octets of a chunk.
    Data {
        left: u64,
    },
    /// At the end of line behind them.
    DataEnd,
    /// In the trailer.
    Trailer,
    Over,
}

impl Default for At {
    fn default() -> At {
        At::Size { size: 0, digits: 0 }
    }
}

/// The next piece of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Octets of it.
    Data(Bytes),
    /// The fields behind it.
    Trailers(HeaderMap),
    /// None yet: more octets are needed.
    Wanting,
    /// None: it is over.
    End,
}

/// Digits of a size: all that a 64-bit number has.
const DIGITS_MAX: u32 = 16;

/// Octets of all extensions of a body together: nobody has a use for them, and they are read in vain.
const EXTENSIONS_MAX: usize = 16 * 1024;

/// Octets of a trailer, and its fields.
const TRAILER_MAX: usize = 16 * 1024;
const TRAILER_FIELDS_MAX: usize = 100;

const EXTENSION: Malformed = Malformed::Chunk("extension of a chunk");

impl Decoder {
    /// Of a body that begins.
    pub(crate) fn new(length: Length) -> Decoder {
        match length {
            Length::Exactly(octets) => Decoder::Exactly(octets),
            Length::Chunked => Decoder::Chunked(Chunked::default()),
            Length::ToEnd => Decoder::ToEnd,
        }
    }

    /// Whether all of it has been read; not known of one that ends with its stream.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Decoder::Exactly(0) | Decoder::Chunked(Chunked { at: At::Over, .. }))
    }

    /// Takes the next piece from the octets that have come.
    ///
    /// # Errors
    /// What comes is no body; nothing behind it can be read.
    pub(crate) fn next(&mut self, octets: &mut BytesMut) -> Result<Piece, Malformed> {
        match self {
            Decoder::Exactly(0) => Ok(Piece::End),
            _ if octets.is_empty() => Ok(Piece::Wanting),
            Decoder::Exactly(left) => Ok(Piece::Data(up_to(left, octets))),
            Decoder::Chunked(chunked) => chunked.next(octets),
            Decoder::ToEnd => Ok(Piece::Data(octets.split().freeze())),
        }
    }

    /// What the end of the stream means, when all that had come was taken.
    ///
    /// # Errors
    /// It is in the middle of the body.
    pub(crate) fn at_end_of_stream(&self) -> Result<(), Malformed> {
        match self {
            Decoder::ToEnd => Ok(()),
            _ if self.is_over() => Ok(()),
            _ => Err(Malformed::Ended),
        }
    }
}

/// The octets that have come, if so many are wanted.
fn up_to(left: &mut u64, octets: &mut BytesMut) -> Bytes {
    let taken = usize::try_from(*left).map_or(octets.len(), |left| left.min(octets.len()));
    *left -= taken as u64;
    octets.split_to(taken).freeze()
}

impl Chunked {
    fn next(&mut self, octets: &mut BytesMut) -> Result<Piece, Malformed> {
        loop {
            if let At::Data { left } = &mut self.at {
                if octets.is_empty() {
                    return Ok(Piece::Wanting);
                }
                let data = up_to(left, octets);
                if *left == 0 {
                    self.at = At::DataEnd;
                }
                return Ok(Piece::Data(data));
            }
            match self.at {
                At::Over => return Ok(Piece::End),
                At::Trailer => return self.trailer(octets),
                At::DataEnd if octets.len() < 2 => return Ok(Piece::Wanting),
                At::DataEnd if octets.starts_with(b"\r\n") => {
                    octets.advance(2);
                    self.at = At::default();
                }
                At::DataEnd => return Err(Malformed::Chunk("end of a chunk")),
                _ if octets.is_empty() => return Ok(Piece::Wanting),
                _ => self.at = self.in_size(octets.get_u8())?,
            }
        }
    }

    /// The next octet of the line with the size.
    fn in_size(&mut self, octet: u8) -> Result<At, Malformed> {
        match (self.at, octet) {
            (At::Size { digits: 0, .. }, octet) if !octet.is_ascii_hexdigit() => {
                Err(Malformed::Chunk("size of a chunk"))
            }
            (At::Size { size, .. } | At::Space { size } | At::Extension { size }, b'\r') => Ok(At::SizeEnd { size }),
            (At::Size { size, .. } | At::Space { size }, b' ' | b'\t') => {
                self.passed_over().map(|()| At::Space { size })
            }
            (At::Size { size, .. } | At::Space { size }, b';') => Ok(At::Extension { size }),
            (At::Size { size, digits }, octet) => match char::from(octet).to_digit(16) {
                Some(digit) if digits < DIGITS_MAX => {
                    Ok(At::Size { size: size << 4 | u64::from(digit), digits: digits + 1 })
                }
                _ => Err(Malformed::Chunk("size of a chunk")),
            },
            (At::Extension { .. }, b'\n') => Err(EXTENSION),
            (At::Extension { size }, _) => self.passed_over().map(|()| At::Extension { size }),
            (At::SizeEnd { size: 0 }, b'\n') => Ok(At::Trailer),
            (At::SizeEnd { size }, b'\n') => Ok(At::Data { left: size }),
            _ => Err(Malformed::Chunk("size of a chunk")),
        }
    }

    /// Counts an octet that nobody has a use for.
    fn passed_over(&mut self) -> Result<(), Malformed> {
        self.extensions += 1;
        if self.extensions <= EXTENSIONS_MAX { Ok(()) } else { Err(EXTENSION) }
    }

    /// The fields behind the last chunk, when all of them have come.
    fn trailer(&mut self, octets: &mut BytesMut) -> Result<Piece, Malformed> {
        if octets.starts_with(b"\r\n") {
            octets.advance(2);
            self.at = At::Over;
            return Ok(Piece::End);
        }
        let mut fields = [httparse::EMPTY_HEADER; TRAILER_FIELDS_MAX];
        let (length, trailers) = match httparse::parse_headers(octets, &mut fields) {
            Ok(httparse::Status::Complete((length, fields))) => (length, self::fields(fields)?),
            Ok(httparse::Status::Partial) if octets.len() < TRAILER_MAX => return Ok(Piece::Wanting),
            Ok(httparse::Status::Partial) | Err(_) => return Err(Malformed::Chunk("trailer")),
        };
        octets.advance(length);
        self.at = At::Over;
        Ok(Piece::Trailers(trailers))
    }
}

fn fields(fields: &[httparse::Header<'_>]) -> Result<HeaderMap, Malformed> {
    let field = |field: &httparse::Header<'_>| {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_bytes(field.value).ok()?))
    };
    fields.iter().map(field).collect::<Option<HeaderMap>>().ok_or(Malformed::Chunk("trailer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a body holds, with its octets coming in pieces of a size; what is behind it stays.
    fn read(length: Length, octets: &str, size: usize) -> Result<(String, HeaderMap, String), Malformed> {
        let (mut decoder, mut buffer) = (Decoder::new(length), BytesMut::new());
        let (mut data, mut trailers) = (Vec::new(), HeaderMap::new());
        let mut pieces = octets.as_bytes().chunks(size);
        loop {
            match decoder.next(&mut buffer)? {
                Piece::Data(octets) => data.extend_from_slice(&octets),
                Piece::Trailers(fields) => trailers = fields,
                Piece::End => break,
                Piece::Wanting => match pieces.next() {
                    Some(piece) => buffer.extend_from_slice(piece),
                    None => {
                        decoder.at_end_of_stream()?;
                        break;
                    }
                },
            }
        }
        buffer.extend(pieces.flatten());
        let text = |octets: &[u8]| String::from_utf8(octets.to_vec()).unwrap();
        Ok((text(&data), trailers, text(&buffer)))
    }

    #[test]
    fn rfc9112_7_1_chunks_are_put_together_however_they_come() {
        for (octets, data) in [
            ("0\r\n\r\n", ""),
            ("5\r\nhello\r\n0\r\n\r\n", "hello"),
            ("5 \r\nhello\r\n006;x=\"y\"\r\n world\r\n0;z\r\n\r\n", "hello world"),
            ("A\r\n0123456789\r\n1\r\n\r\r\n0\r\n\r\n", "0123456789\r"),
        ] {
            for size in 1..=octets.len() + 4 {
                let read = read(Length::Chunked, &format!("{octets}NEXT"), size);
                assert_eq!(read, Ok((data.into(), HeaderMap::new(), "NEXT".into())), "{octets:?} by {size}");
            }
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_no_chunk() {
        for octets in [
            "\r\n",
            "x\r\n",
            "+5\r\nhello\r\n0\r\n\r\n",
            "0x5\r\nhello\r\n0\r\n\r\n",
            "5\nhello\r\n0\r\n\r\n",
            "5\r\nhello\n0\r\n\r\n",
            "5\r\nhello0\r\n\r\n",
            "5\r\nhello world\r\n0\r\n\r\n",
            "5 6\r\nhello\r\n0\r\n\r\n",
            "5;a\nb\r\nhello\r\n0\r\n\r\n",
            "5\r\r\nhello\r\n0\r\n\r\n",
            " 5\r\nhello\r\n0\r\n\r\n",
            "10000000000000005\r\nhello\r\n0\r\n\r\n",
            "0\r\nno field\r\n\r\n",
        ] {
            for size in [1, octets.len()] {
                let read = read(Length::Chunked, octets, size);
                assert!(matches!(read, Err(Malformed::Chunk(_))), "{octets:?} by {size}: {read:?}");
            }
        }
        let endless = format!("5;{}", "x".repeat(EXTENSIONS_MAX + 1));
        assert_eq!(read(Length::Chunked, &endless, 100), Err(EXTENSION));
        let endless = format!("0\r\nX: {}", "x".repeat(TRAILER_MAX + 100));
        assert_eq!(read(Length::Chunked, &endless, 100), Err(Malformed::Chunk("trailer")));
    }

    #[test]
    fn trailers_are_read_and_nothing_behind_them() {
        let octets = "3\r\nabc\r\n0\r\nX-Sum: 1\r\nx-sum: 2\r\n\r\nNEXT";
        for size in 1..octets.len() {
            let (data, trailers, rest) = read(Length::Chunked, octets, size).unwrap();
            let sums: Vec<_> = trailers.get_all("x-sum").iter().map(|sum| sum.to_str().unwrap()).collect();
            assert_eq!((data.as_str(), sums, rest.as_str()), ("abc", vec!["1", "2"], "NEXT"), "by {size}");
        }
    }

    #[test]
    fn a_body_that_ends_early_is_not_taken_for_a_whole_one() {
        for octets in ["", "5", "5\r\nhel", "5\r\nhello\r\n", "5\r\nhello\r\n0\r\n"] {
            assert_eq!(read(Length::Chunked, octets, 3), Err(Malformed::Ended), "{octets:?}");
        }
        assert_eq!(read(Length::Exactly(5), "hell", 3), Err(Malformed::Ended));
        assert_eq!(
            read(Length::Exactly(5), "helloNEXT", 3).map(|read| (read.0, read.2)),
            Ok(("hello".into(), "NEXT".into()))
        );
        assert_eq!(read(Length::ToEnd, "hello", 3).map(|read| read.0), Ok("hello".into()));
    }
}
