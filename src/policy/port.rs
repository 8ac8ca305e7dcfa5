//! Ports that no page is on.
//!
//! Behind some ports are services that take a request for one of their own, a mail server's most of all: who may ask a proxy for any
//! URL could make it send them mail. Browsers open none of these; neither does the proxy, unless its operator has pages there.

/// The ports that `upstream.ports` allows all the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    allowed: Vec<u16>,
}

impl Ports {
    /// All but the known ones, and these.
    pub fn allowing(allowed: Vec<u16>) -> Ports {
        Ports { allowed }
    }

    /// Whether nobody may be connected to there.
    pub fn bar(&self, port: u16) -> bool {
        BAD.binary_search(&port).is_ok() && !self.allowed.contains(&port)
    }
}

/// The Fetch standard's bad ports, <https://fetch.spec.whatwg.org/#port-blocking>, in order.
const BAD: [u16; 83] = [
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109,
    110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531,
    532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060,
    5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatwg_fetch_bad_ports_are_barred_and_others_are_not() {
        assert!(BAD.is_sorted());
        let (none, mail) = (Ports::default(), Ports::allowing(vec![25, 8080]));
        for (port, barred) in
            [(22, true), (25, true), (6667, true), (10080, true), (80, false), (443, false), (8080, false)]
        {
            assert_eq!(none.bar(port), barred, "{port}");
            assert_eq!(mail.bar(port), barred && port != 25, "{port}");
        }
    }
}
