//! Octets in hexadecimal digits: digests, in records, copies and names.

/// Two lower-case digits an octet. By hand: with the formatting machinery a SHA-256 takes thirty times as long, and each link of the
/// audit log's chain is one.
pub(crate) fn hex(octets: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    octets
        .iter()
        .flat_map(|octet| [octet >> 4, octet & 15])
        .map(|digit| char::from(DIGITS[usize::from(digit)]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_octet_is_two_digits() {
        assert_eq!(hex(&[0x00, 0x0f, 0xa5, 0xff]), "000fa5ff");
        assert_eq!(hex(&[]), "");
    }
}
