//! The guard of addresses: what is private, and what is the proxy itself.
//!
//! Every address of a host is asked about before any is connected to; what is special about one is in [`crate::policy::address`].

use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;

use tokio::net::TcpStream;

use super::Error;
use super::dial::HostPort;
use crate::policy::address::{PrivateAddresses, special_use};

/// Knows where the proxy listens, and what that means for private addresses.
pub(super) struct Guard {
    private_addresses: PrivateAddresses,
    own: OnceLock<Own>,
}

/// What the proxy knows of its own listeners.
struct Own {
    listeners: Vec<SocketAddr>,
    /// Whether special addresses are barred.
    guarded: bool,
}

impl Guard {
    pub(super) fn new(private_addresses: PrivateAddresses) -> Guard {
        Guard { private_addresses, own: OnceLock::new() }
    }

    /// Tells where the proxy listens.
    pub(super) fn listening_on(&self, listeners: Vec<SocketAddr>) {
        let guarded = self.private_addresses.bars(listeners.iter().map(SocketAddr::ip));
        // Told once, when the listeners are bound; a second telling changes nothing.
        let _ = self.own.set(Own { listeners, guarded });
    }

    /// SECURITY: one barred address bars the host. A name with a public and a private address is how the guard is tested for holes.
    pub(super) fn check(&self, place: &HostPort, addresses: &[SocketAddr], is_operators: bool) -> Result<(), Error> {
        if addresses.iter().any(|address| self.is_itself(*address)) {
            return Err(Error::Itself { host: place.to_string() });
        }
        let guarded =
            !is_operators && self.own.get().map_or(self.private_addresses == PrivateAddresses::Deny, |own| own.guarded);
        let special = |address: &SocketAddr| Some((address.ip(), special_use(address.ip())?));
        match addresses.iter().find_map(special).filter(|_| guarded) {
            Some((address, class)) => Err(Error::PrivateAddress { host: place.to_string(), address, class }),
            None => Ok(()),
        }
    }

    /// Where the proxy listens.
    pub(super) fn listeners(&self) -> &[SocketAddr] {
        self.own.get().map(|own| own.listeners.as_slice()).unwrap_or_default()
    }

    /// Whether an address is one of the proxy's listeners. An unspecified address leads to this machine, too.
    fn is_itself(&self, address: SocketAddr) -> bool {
        let is_here = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified();
        let to = address.ip().to_canonical();
        self.listeners().iter().any(|own| {
            let ip = own.ip().to_canonical();
            own.port() == address.port()
                && (ip == to || ip.is_unspecified() && is_here(to) || to.is_unspecified() && is_here(ip))
        })
    }

    /// Whether a connection has come back to this machine, to a listener on all its addresses: those are not known beforehand, but
    /// a connection to one of them comes from the very same.
    pub(super) fn is_own_end(&self, stream: &TcpStream) -> bool {
        let (Ok(here), Ok(there)) = (stream.local_addr(), stream.peer_addr()) else { return false };
        let is_open = |own: &SocketAddr| own.ip().is_unspecified() && own.port() == there.port();
        here.ip() == there.ip() && self.listeners().iter().any(is_open)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn bypass_a15_a_connection_that_comes_back_to_an_open_listener_is_known_by_its_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        for (listening, own) in [
            (format!("0.0.0.0:{}", address.port()), true),
            (format!("[::]:{}", address.port()), true),
            (format!("0.0.0.0:{}", address.port() ^ 1), false),
            (format!("192.0.2.1:{}", address.port()), false),
        ] {
            let guard = Guard::new(PrivateAddresses::Allow);
            guard.listening_on(vec![listening.parse().unwrap()]);
            assert_eq!(guard.is_own_end(&stream), own, "{listening}");
        }
    }
}
