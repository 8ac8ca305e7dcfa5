//! HTTP/2 frame by frame: for requests that no library lets one send.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::in_time;

/// A connection, with the preface sent.
pub(crate) struct Frames<S> {
    stream: S,
    next: u32,
    /// The server's settings, by number.
    pub(crate) settings: Vec<(u16, u32)>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Frames<S> {
    pub(crate) async fn begin(mut stream: S) -> Frames<S> {
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        // One setting: the server shall keep no table of fields, so that each answer can be read for itself.
        stream.write_all(b"\0\0\x06\x04\0\0\0\0\0\0\x01\0\0\0\0").await.unwrap();
        stream.flush().await.unwrap();
        let mut frames = Frames { stream, next: 1, settings: Vec::new() };
        let (kind, _, _, settings) = frames.frame().await.unwrap();
        assert_eq!(kind, 4, "settings come first");
        frames.settings = settings
            .chunks(6)
            .map(|one| (u16::from_be_bytes([one[0], one[1]]), u32::from_be_bytes([one[2], one[3], one[4], one[5]])))
            .collect();
        frames
    }

    /// Type, flags, stream and payload.
    async fn frame(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        in_time("a frame", self.stream.read_exact(&mut head)).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        in_time("a frame", self.stream.read_exact(&mut payload)).await.ok()?;
        Some((head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
    }

    /// Sends a request without a body, its fields as given, and returns the status of the answer; `None` where the stream was reset.
    pub(crate) async fn ask(&mut self, fields: &[(&str, &str)]) -> Option<u16> {
        let mut block = Vec::new();
        for text in fields.iter().flat_map(|(name, value)| [Some(*name), None, Some(*value)]) {
            let Some(text) = text else { continue };
            let is_name = fields.iter().any(|(name, _)| std::ptr::eq(*name, text));
            if is_name {
                // A literal with a new name, not put into the table (RFC 7541 §6.2.2).
                block.push(0);
            }
            match text.len() {
                short @ 0..127 => block.push(short as u8),
                long => {
                    let mut rest = long - 127;
                    block.push(127);
                    while rest >= 128 {
                        block.push((rest % 128) as u8 | 128);
                        rest /= 128;
                    }
                    block.push(rest as u8);
                }
            }
            block.extend_from_slice(text.as_bytes());
        }
        let stream = self.next;
        self.next += 2;
        let pieces: Vec<&[u8]> = block.chunks(16_384).collect();
        for (number, piece) in pieces.iter().enumerate() {
            let kind = if number == 0 { 1 } else { 9 };
            let flags = u8::from(number == 0) | if number + 1 == pieces.len() { 4 } else { 0 };
            let mut frame = (piece.len() as u32).to_be_bytes()[1..].to_vec();
            frame.extend([kind, flags]);
            frame.extend(stream.to_be_bytes());
            frame.extend_from_slice(piece);
            self.stream.write_all(&frame).await.unwrap();
        }
        self.stream.flush().await.unwrap();
        loop {
            match self.frame().await {
                Some((1, _, of, block)) if of == stream => return Some(status(&block)),
                Some((3, _, of, _)) if of == stream => return None,
                Some((7, ..)) | None => return None,
                Some(_) => {}
            }
        }
    }
}

/// `:status`, which comes first: from the static table, or as digits in Huffman's code.
fn status(block: &[u8]) -> u16 {
    // An update of the table's size may stand in front.
    let block = if block[0] & 0xe0 == 0x20 { &block[1..] } else { block };
    match block[0] {
        indexed @ 0x88..=0x8e => [200, 204, 206, 304, 400, 404, 500][usize::from(indexed - 0x88)],
        _ => {
            let length = usize::from(block[1] & 0x7f);
            let text = &block[2..2 + length];
            if block[1] & 0x80 == 0 {
                return std::str::from_utf8(text).unwrap().parse().unwrap();
            }
            let bits: Vec<u8> = text.iter().flat_map(|octet| (0..8).rev().map(move |bit| octet >> bit & 1)).collect();
            let (mut at, mut number) = (0, 0);
            for _ in 0..3 {
                // RFC 7541 appendix B: 0 to 2 are five bits long, 3 to 9 six.
                let value =
                    |length: usize| bits[at..at + length].iter().fold(0, |value, bit| value << 1 | u16::from(*bit));
                let (digit, length) = if value(5) < 3 { (value(5), 5) } else { (value(6) - 0b011001 + 3, 6) };
                at += length;
                number = number * 10 + digit;
            }
            number
        }
    }
}
