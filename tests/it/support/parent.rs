//! A proxy behind the proxy: HTTP, HTTPS or SOCKS5, with a log of what it was asked for.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use super::authority;

/// What the parent speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Http,
    Https,
    Socks5,
}

/// The parent proxy. It is gone when it is dropped.
pub(crate) struct Parent {
    pub(crate) address: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
    _accepting: AbortOnDropHandle<()>,
}

/// What one connection is served by.
#[derive(Clone)]
struct Rules {
    kind: Kind,
    /// `host:port` and where it leads.
    names: Vec<(String, SocketAddr)>,
    /// The user and password that it wants.
    credentials: Option<(&'static str, &'static str)>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Parent {
    /// A parent that knows these names, and lets in whoever has the credentials.
    pub(crate) async fn start(
        kind: Kind,
        names: &[(&str, SocketAddr)],
        credentials: Option<(&'static str, &'static str)>,
    ) -> Parent {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Mutex::default());
        let names = names.iter().map(|(name, address)| ((*name).to_owned(), *address)).collect();
        let rules = Rules { kind, names, credentials, log: Arc::clone(&log) };
        let accepting = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let rules = rules.clone();
                connections.spawn(async move {
                    let _ = rules.serve(stream).await;
                });
            }
        });
        Parent { address, log, _accepting: AbortOnDropHandle::new(accepting) }
    }

    /// What it was asked for: heads of requests, or `SOCKS host:port`.
    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }
}

impl Rules {
    async fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        match self.kind {
            Kind::Http => self.serve_http(stream).await,
            Kind::Https => {
                let tls = TlsAcceptor::from(authority::every_name(&[b"http/1.1"]));
                self.serve_http(tls.accept(stream).await?).await
            }
            Kind::Socks5 => self.serve_socks(stream).await,
        }
    }

    fn leads_to(&self, place: &str) -> Option<SocketAddr> {
        self.names.iter().find(|(name, _)| name == place).map(|(_, address)| *address)
    }

    async fn serve_http<S: AsyncRead + AsyncWrite + Unpin>(&self, mut stream: S) -> std::io::Result<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8(head).unwrap();
        self.log.lock().unwrap().push(head.clone());
        use base64::Engine as _;
        let wanted = self
            .credentials
            .map(|(user, password)| base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}")));
        if wanted.is_some_and(|wanted| {
            !head.to_lowercase().contains(&format!("proxy-authorization: basic {}", wanted.to_lowercase()))
        }) {
            let answer = "HTTP/1.1 407 Who?\r\nProxy-Authenticate: Basic realm=\"parent\"\r\nContent-Length: 0\r\n\r\n";
            return stream.write_all(answer.as_bytes()).await;
        }
        let mut words = head.split(' ');
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let place = match target.strip_prefix("http://") {
            Some(rest) => {
                let authority = rest.split('/').next().unwrap();
                if authority.ends_with(']') || !authority.contains(':') {
                    format!("{authority}:80")
                } else {
                    authority.into()
                }
            }
            None => target.to_owned(),
        };
        let Some(address) = self.leads_to(&place) else {
            return stream.write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n").await;
        };
        let mut origin = TcpStream::connect(address).await?;
        match method {
            "CONNECT" => stream.write_all(b"HTTP/1.1 200 Connection established\r\nX-Parent: 1\r\n\r\n").await?,
            _ => {
                let lines = head.split_inclusive('\n').filter(|line| !line.to_lowercase().starts_with("proxy-"));
                origin.write_all(lines.collect::<String>().as_bytes()).await?;
            }
        }
        tokio::io::copy_bidirectional(&mut stream, &mut origin).await.map(drop)
    }

    async fn serve_socks(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut greeting = [0; 2];
        stream.read_exact(&mut greeting).await?;
        let mut methods = vec![0; greeting[1].into()];
        stream.read_exact(&mut methods).await?;
        let wanted = if self.credentials.is_some() { 2 } else { 0 };
        if !methods.contains(&wanted) {
            return stream.write_all(&[5, 0xff]).await;
        }
        stream.write_all(&[5, wanted]).await?;
        if let Some((user, password)) = self.credentials {
            assert_eq!(stream.read_u8().await?, 1);
            let (given, secret) = (counted(&mut stream).await?, counted(&mut stream).await?);
            let wrong = u8::from((given.as_str(), secret.as_str()) != (user, password));
            stream.write_all(&[1, wrong]).await?;
        }
        let mut request = [0; 4];
        stream.read_exact(&mut request).await?;
        let host = match request[3] {
            1 => {
                let mut octets = [0; 4];
                stream.read_exact(&mut octets).await?;
                std::net::Ipv4Addr::from(octets).to_string()
            }
            4 => {
                let mut octets = [0; 16];
                stream.read_exact(&mut octets).await?;
                format!("[{}]", std::net::Ipv6Addr::from(octets))
            }
            _ => counted(&mut stream).await?,
        };
        let place = format!("{host}:{}", stream.read_u16().await?);
        self.log.lock().unwrap().push(format!("SOCKS {place}"));
        let Some(address) = self.leads_to(&place) else {
            return stream.write_all(&[5, 4, 0, 1, 0, 0, 0, 0, 0, 0]).await;
        };
        let mut origin = TcpStream::connect(address).await?;
        // A name as its own address, which clients must be able to skip.
        stream.write_all(&[5, 0, 0, 3, 2, b'm', b'e', 0, 0]).await?;
        tokio::io::copy_bidirectional(&mut stream, &mut origin).await.map(drop)
    }
}

async fn counted(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut octets = vec![0; stream.read_u8().await?.into()];
    stream.read_exact(&mut octets).await?;
    Ok(String::from_utf8(octets).unwrap())
}
