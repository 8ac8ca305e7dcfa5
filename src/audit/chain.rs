//! The hash chain: each record names the hash of the one before it.
//!
//! With `audit.chain` a line ends in `"seq":N,"prev":"…","hash":"…"}`, where `hash` is the SHA-256 of the line's own octets up to
//! `,"hash":`. So a record that was changed, taken out, put in or moved breaks the chain at its place, and anyone can check it with
//! `sha256sum`. It proves order and completeness of what was written, not that it is true; who cuts off the end of the log is found
//! out only by one who noted the last hash elsewhere. Pure; the files are read in `log.rs` and by `audit verify`.

use sha2::{Digest, Sha256};

use crate::hex::hex;

/// What the first record of a chain names as the hash before it.
pub const NOTHING: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Where a chain stands: number and hash of its last record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The number; 0 before the first record.
    pub seq: u64,
    /// The hash, 64 hexadecimal digits.
    pub hash: String,
}

impl Head {
    /// Before the first record.
    pub fn start() -> Head {
        Head { seq: 0, hash: NOTHING.to_owned() }
    }

    /// Where the chain stands after a line; `None` where the line is no part of a chain.
    pub fn after(line: &[u8]) -> Option<Head> {
        Link::of(line).map(|link| Head { seq: link.seq, hash: link.hash.to_owned() })
    }

    /// The chain's next line, of a record that is a JSON object with a newline.
    pub fn append(&mut self, record: &[u8]) -> Vec<u8> {
        let object = record.trim_ascii_end();
        let mut line = object.strip_suffix(b"}").unwrap_or(object).to_vec();
        self.seq += 1;
        line.extend_from_slice(format!(",\"seq\":{},\"prev\":\"{}\"", self.seq, self.hash).as_bytes());
        self.hash = hash(&line);
        line.extend_from_slice(format!(",\"hash\":\"{}\"}}\n", self.hash).as_bytes());
        line
    }
}

/// What makes a line a part of a chain.
struct Link<'a> {
    seq: u64,
    prev: &'a str,
    hash: &'a str,
    /// What the hash is of.
    covered: &'a [u8],
}

impl<'a> Link<'a> {
    /// The members stand at the end of the line. What a client said cannot look like them, since its quotation marks are escaped.
    fn of(line: &'a [u8]) -> Option<Link<'a>> {
        let text = std::str::from_utf8(line).ok()?.trim_end_matches(['\n', '\r']);
        let (covered, hash) = text.strip_suffix("\"}")?.rsplit_once(",\"hash\":\"")?;
        let (before, prev) = covered.strip_suffix('"')?.rsplit_once(",\"prev\":\"")?;
        let (_, seq) = before.rsplit_once(",\"seq\":")?;
        let is_hash = |text: &str| text.len() == NOTHING.len() && text.bytes().all(|octet| octet.is_ascii_hexdigit());
        if !is_hash(hash) || !is_hash(prev) {
            return None;
        }
        Some(Link { seq: seq.parse().ok()?, prev, hash, covered: covered.as_bytes() })
    }
}

fn hash(octets: &[u8]) -> String {
    hex(&Sha256::digest(octets))
}

/// Why a line is not the next of its chain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// It has no hash.
    #[error("the record is not part of the chain: it was put in, or written while audit.chain was off")]
    Unchained,
    /// It is not what was hashed.
    #[error("the record was changed: its hash is not that of its text")]
    Changed,
    /// Something stood before it, or stands before it now, that belongs elsewhere.
    #[error("record {found} follows record {last}: what stood between was taken out, or the order was changed")]
    Missing {
        /// The number before.
        last: u64,
        /// The number found.
        found: u64,
    },
    /// The numbers fit, but another record was before it.
    #[error("record {0} does not follow the one before it: one of the two was replaced")]
    Replaced(u64),
}

/// Checks lines one after another.
#[derive(Clone, Debug, Default)]
pub struct Check {
    first: Option<u64>,
    head: Option<Head>,
    unchained: u64,
}

impl Check {
    /// Checks the next line.
    ///
    /// # Errors
    /// It breaks the chain. The check then goes on from this line, if it has a hash.
    pub fn line(&mut self, line: &[u8]) -> Result<(), Broken> {
        let Some(link) = Link::of(line) else {
            // A log may have begun without a chain.
            if self.head.is_none() {
                self.unchained += 1;
                return Ok(());
            }
            return Err(Broken::Unchained);
        };
        let before = self.head.replace(Head { seq: link.seq, hash: link.hash.to_owned() });
        self.first.get_or_insert(link.seq);
        if hash(link.covered) != link.hash {
            return Err(Broken::Changed);
        }
        match before {
            Some(before) if link.seq != before.seq + 1 => Err(Broken::Missing { last: before.seq, found: link.seq }),
            Some(before) if link.prev != before.hash => Err(Broken::Replaced(link.seq)),
            // Records without a hash are followed by the first of a chain, and by no other.
            None if self.unchained > 0 && (link.seq != 1 || link.prev != NOTHING) => Err(Broken::Unchained),
            _ => Ok(()),
        }
    }

    /// The number of the first record of the chain.
    pub fn first(&self) -> Option<u64> {
        self.first
    }

    /// The last record of the chain.
    pub fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    /// Records before the chain began.
    pub fn unchained(&self) -> u64 {
        self.unchained
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(records: &[&str]) -> Vec<Vec<u8>> {
        let mut head = Head::start();
        records.iter().map(|record| head.append(record.as_bytes())).collect()
    }

    /// Which lines are bad, and why.
    fn check(lines: &[Vec<u8>]) -> Vec<(usize, Broken)> {
        let mut check = Check::default();
        let check = |(at, line): (usize, &Vec<u8>)| check.line(line).err().map(|broken| (at + 1, broken));
        lines.iter().enumerate().filter_map(check).collect()
    }

    #[test]
    fn a_line_is_hashed_up_to_its_hash() {
        let line = &chain(&["{\"id\":\"a\"}\n"])[0];
        let covered = format!("{{\"id\":\"a\",\"seq\":1,\"prev\":\"{NOTHING}\"");
        assert_eq!(String::from_utf8_lossy(line), format!("{covered},\"hash\":\"{}\"}}\n", hash(covered.as_bytes())));
        assert_eq!(hash(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(Head::after(line).unwrap().seq, 1);
    }

    #[test]
    fn every_change_breaks_the_chain_at_its_place() {
        let whole = || chain(&["{\"id\":\"a\"}\n", "{\"id\":\"b\"}\n", "{\"id\":\"c\"}\n", "{\"id\":\"d\"}\n"]);
        assert_eq!(check(&whole()), []);
        assert_eq!(check(&whole()[2..]), [], "what came before was rotated away");

        let mut changed = whole();
        changed[1][7] = b'x';
        assert_eq!(check(&changed), [(2, Broken::Changed)]);

        let mut taken_out = whole();
        taken_out.remove(1);
        assert_eq!(check(&taken_out), [(2, Broken::Missing { last: 1, found: 3 })]);

        let mut put_in = whole();
        put_in.insert(2, b"{\"id\":\"x\"}\n".to_vec());
        assert_eq!(check(&put_in), [(3, Broken::Unchained)]);

        let mut replaced = whole();
        replaced[1] = chain(&["{\"id\":\"a\"}\n", "{\"id\":\"x\"}\n"]).remove(1);
        assert_eq!(check(&replaced), [(3, Broken::Replaced(3))]);

        let mut moved = whole();
        moved.swap(1, 2);
        assert_eq!(check(&moved).first(), Some(&(2, Broken::Missing { last: 1, found: 3 })));
    }

    #[test]
    fn a_log_may_begin_without_a_chain_but_not_lose_it() {
        let mut lines = vec![b"{\"id\":\"before\"}\n".to_vec()];
        lines.extend(chain(&["{\"id\":\"a\"}\n", "{\"id\":\"b\"}\n"]));
        assert_eq!(check(&lines), []);
        lines.remove(1);
        assert_eq!(check(&lines), [(2, Broken::Unchained)]);
    }

    #[test]
    fn what_a_client_says_is_no_link() {
        let said = serde_json::to_string(&format!("x\",\"seq\":9,\"prev\":\"{NOTHING}\",\"hash\":\"{NOTHING}\"}}"));
        let line = format!("{{\"user_agent\":{}}}\n", said.unwrap());
        assert_eq!(Head::after(line.as_bytes()), None);
        let chained = &chain(&[&line])[0];
        assert_eq!((Head::after(chained).unwrap().seq, check(std::slice::from_ref(chained))), (1, vec![]));
    }
}
