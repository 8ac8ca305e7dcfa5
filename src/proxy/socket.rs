//! Where clients connect: a TCP port in clear text, one with TLS, or a Unix socket.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener, UnixStream};

use crate::clock;
use crate::http1::Stream;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// HTTP in clear text: `127.0.0.1:3128`.
    Http(SocketAddr),
    /// HTTP inside TLS, for clients that are told `https://` as their proxy: `https://127.0.0.1:3129`.
    Https(SocketAddr),
    /// HTTP in clear text, for programs of the same user: `unix:/run/robots-proxy.sock`.
    Unix(PathBuf),
}

impl Listen {
    /// What a client is given as its proxy.
    pub fn url(&self) -> String {
        match self {
            Listen::Http(address) => format!("http://{address}"),
            _ => self.to_string(),
        }
    }

    /// The address, where it is one.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Listen::Http(address) | Listen::Https(address) => Some(*address),
            Listen::Unix(_) => None,
        }
    }

    /// With a path that starts from `base`.
    pub fn in_folder(&self, base: &Path) -> Listen {
        match self {
            Listen::Unix(path) => Listen::Unix(base.join(path)),
            other => other.clone(),
        }
    }
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Listen {
        Listen::Http(address)
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        let listen = match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Some(Listen::Unix(path.into())),
            Some(("https", rest)) => rest.strip_prefix("//").and_then(|rest| rest.parse().ok()).map(Listen::Https),
            Some(("http", rest)) => rest.strip_prefix("//").and_then(|rest| rest.parse().ok()).map(Listen::Http),
            _ => text.parse().ok().map(Listen::Http),
        };
        let forms = "\"127.0.0.1:3128\", \"https://127.0.0.1:3129\" or \"unix:/run/robots-proxy.sock\"";
        listen.ok_or_else(|| format!("{text:?} is no place to listen at such as {forms}"))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Http(address) => address.fmt(f),
            Listen::Https(address) => write!(f, "https://{address}"),
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// An open socket that accepts clients.
pub struct Listener(Socket);

enum Socket {
    Tcp { listener: TcpListener, is_tls: bool },
    Unix(PrivateSocket),
}

/// A client that has connected.
pub(crate) struct Accepted {
    pub(crate) stream: Stream,
    /// The peer. A Unix socket is for this machine alone, so its clients count as one address of loopback.
    pub(crate) address: SocketAddr,
    /// Where it came in: the address that it connected to, or the socket.
    pub(crate) entrance: Listen,
}

impl Listener {
    /// Opens a socket.
    ///
    /// # Errors
    /// The address is in use, or this process may not have it.
    pub async fn open(listen: &Listen) -> io::Result<Listener> {
        Ok(Listener(match listen {
            Listen::Http(address) => Socket::Tcp { listener: TcpListener::bind(address).await?, is_tls: false },
            Listen::Https(address) => Socket::Tcp { listener: TcpListener::bind(address).await?, is_tls: true },
            Listen::Unix(path) => Socket::Unix(PrivateSocket::open(path)?),
        }))
    }

    /// Where it listens, with the port that the system chose.
    pub fn place(&self) -> io::Result<Listen> {
        Ok(match &self.0 {
            Socket::Tcp { listener, is_tls: false } => Listen::Http(listener.local_addr()?),
            Socket::Tcp { listener, is_tls: true } => Listen::Https(listener.local_addr()?),
            Socket::Unix(socket) => Listen::Unix(socket.path.clone()),
        })
    }

    /// The next client. A failure to accept is told of, and the next try comes a little later.
    pub(crate) async fn accept(&self) -> Accepted {
        loop {
            match self.try_accept().await {
                Ok(accepted) => return accepted,
                Err(error) => pause_after(error).await,
            }
        }
    }

    async fn try_accept(&self) -> io::Result<Accepted> {
        match &self.0 {
            Socket::Tcp { listener, is_tls } => {
                let (stream, address) = listener.accept().await?;
                // Answers and handshakes are small writes that somebody waits for.
                let _ = stream.set_nodelay(true);
                let own = stream.local_addr()?;
                let own = SocketAddr::new(own.ip().to_canonical(), own.port());
                let entrance = if *is_tls { Listen::Https(own) } else { Listen::Http(own) };
                Ok(Accepted { stream: Box::new(stream), address, entrance })
            }
            Socket::Unix(socket) => {
                let stream = socket.accept().await;
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
                Ok(Accepted { stream: Box::new(stream), address, entrance: Listen::Unix(socket.path.clone()) })
            }
        }
    }
}

/// What cannot be accepted now (out of file descriptors, mostly) cannot in the next instant either.
async fn pause_after(error: io::Error) {
    tracing::warn!(%error, "cannot accept a client; raise the limit of open files if this goes on");
    clock::sleep(ACCEPT_PAUSE).await;
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A Unix socket for the user of this process alone. Its file is removed when it is dropped.
#[derive(Debug)]
pub struct PrivateSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl PrivateSocket {
    /// Opens a socket, in place of one that a dead process left.
    ///
    /// # Errors
    /// Another process has it open, something else is there, or the folder cannot be written.
    pub fn open(path: &Path) -> io::Result<PrivateSocket> {
        use std::os::unix::fs::FileTypeExt;
        match path.symlink_metadata() {
            Ok(there) if !there.file_type().is_socket() => {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something that is no socket is there"));
            }
            Ok(_) if std::os::unix::net::UnixStream::connect(path).is_ok() => {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "another proxy answers there"));
            }
            _ => {}
        }
        // SECURITY: made under another name and closed to others before it can be found.
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".{}", std::process::id()));
        let _ = std::fs::remove_file(&temporary);
        let listener = UnixListener::bind(&temporary)?;
        std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(&temporary, path)?;
        Ok(PrivateSocket { listener, path: path.to_owned() })
    }

    /// The next client, as with [`Listener`].
    pub(crate) async fn accept(&self) -> UnixStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return stream,
                Err(error) => pause_after(error).await,
            }
        }
    }
}

impl Drop for PrivateSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_printed_alike() {
        for (text, url) in [
            ("127.0.0.1:3128", "http://127.0.0.1:3128"),
            ("[::1]:0", "http://[::1]:0"),
            ("https://127.0.0.1:3129", "https://127.0.0.1:3129"),
            ("https://[::]:3129", "https://[::]:3129"),
            ("unix:/run/x.sock", "unix:/run/x.sock"),
            ("unix:x.sock", "unix:x.sock"),
        ] {
            let listen: Listen = text.parse().unwrap();
            assert_eq!((listen.to_string().as_str(), listen.url().as_str()), (text, url));
        }
        assert_eq!("http://127.0.0.1:1".parse(), Ok(Listen::Http(SocketAddr::from(([127, 0, 0, 1], 1)))));
        for text in ["", "here", "3128", "localhost:3128", "https://", "https:127.0.0.1:1", "https://a.test:1", "unix:"]
        {
            assert!(text.parse::<Listen>().unwrap_err().contains("is no place to listen at"), "{text}");
        }
    }

    #[tokio::test]
    async fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "it was left behind");
        let socket = PrivateSocket::open(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(PrivateSocket::open(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(socket);
        assert!(!path.exists());
        std::fs::write(&path, "a file").unwrap();
        assert_eq!(PrivateSocket::open(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
