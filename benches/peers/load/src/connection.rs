//! One connection, direct, to the proxy, or through a tunnel of it; and requests on it, one after the other or, with HTTP/2, at once.

use std::future::Future;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use h2::client::SendRequest;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Error;
use crate::route::Checked;

/// Longer than any proxy may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What `work` yields, or an error where that takes too long.
pub async fn in_time<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(PATIENCE, work).await.map_err(|_| "no answer in 30 s")?
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

async fn open(route: &Checked, host: &str) -> Result<Box<dyn Stream>, Error> {
    let mut stream = TcpStream::connect(route.to).await?;
    stream.set_nodelay(true)?;
    if !route.is_tls {
        return Ok(Box::new(stream));
    }
    if route.proxy {
        let place = format!("{host}:{}", route.port);
        stream.write_all(format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n").as_bytes()).await?;
        let mut head = BytesMut::with_capacity(512);
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut head).await? == 0 {
                return Err("closed instead of a tunnel".into());
            }
        }
        if !head[8..].starts_with(b" 200") {
            return Err(format!("no tunnel: {}", String::from_utf8_lossy(&head)).into());
        }
    }
    Ok(Box::new(route.tls.connect(ServerName::try_from(host.to_owned())?, stream).await?))
}

/// HTTP/1.1.
pub struct Connection {
    stream: Box<dyn Stream>,
    request: Vec<u8>,
    /// What has come and is not used yet.
    came: BytesMut,
    is_kept: bool,
    pub is_closed: bool,
}

impl Connection {
    pub async fn open(route: &Checked, host: &str) -> Result<Connection, Error> {
        let authority = format!("{host}:{}", route.port);
        let to =
            if route.proxy && !route.is_tls { format!("http://{authority}{}", route.path) } else { route.path.clone() };
        let request = format!("GET {to} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: load/1\r\nAccept: */*\r\n\r\n");
        let stream = open(route, host).await?;
        Ok(Connection {
            stream,
            request: request.into_bytes(),
            came: BytesMut::new(),
            is_kept: false,
            is_closed: false,
        })
    }

    /// Asks, and takes the whole answer; returns the octets of its body. A connection that was kept may have been closed meanwhile, and
    /// there is nothing, then.
    pub async fn request(&mut self) -> Result<Option<u64>, Error> {
        let is_kept = std::mem::replace(&mut self.is_kept, true);
        self.came.reserve(2048);
        let sent = async {
            self.stream.write_all(&self.request).await?;
            self.stream.flush().await?;
            self.stream.read_buf(&mut self.came).await
        };
        match sent.await {
            Ok(0) | Err(_) if is_kept => return Ok(None),
            Ok(0) => return Err("closed without an answer".into()),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let length = loop {
            if let Some(length) = self.head()? {
                break length;
            }
            self.more(2048).await?;
        };
        let mut missing = length;
        loop {
            let taken = missing.min(self.came.len() as u64);
            self.came.advance(taken as usize);
            missing -= taken;
            if missing == 0 {
                return Ok(Some(length));
            }
            self.more(missing.min(256 << 10) as usize).await?;
        }
    }

    async fn more(&mut self, octets: usize) -> Result<(), Error> {
        self.came.reserve(octets);
        match self.stream.read_buf(&mut self.came).await? {
            0 => Err("closed before the end of the answer".into()),
            _ => Ok(()),
        }
    }

    /// The length of the body, if the head is there.
    fn head(&mut self) -> Result<Option<u64>, Error> {
        let mut fields = [httparse::EMPTY_HEADER; 32];
        let mut head = httparse::Response::new(&mut fields);
        let httparse::Status::Complete(end) = head.parse(&self.came)? else { return Ok(None) };
        if head.code != Some(200) {
            return Err(format!("status {}", head.code.unwrap_or_default()).into());
        }
        self.is_closed = head.version == Some(0);
        let mut length = None;
        for field in head.headers.iter() {
            let value = std::str::from_utf8(field.value)?;
            if field.name.eq_ignore_ascii_case("content-length") {
                length = Some(value.trim().parse()?);
            } else if field.name.eq_ignore_ascii_case("connection") {
                self.is_closed = value.eq_ignore_ascii_case("close");
            }
        }
        self.came.advance(end);
        Ok(Some(length.ok_or("no Content-Length")?))
    }
}

/// HTTP/2 in a tunnel.
pub async fn open_http2(route: &Checked, host: &str) -> Result<SendRequest<Bytes>, Error> {
    let stream = open(route, host).await?;
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(1 << 20).initial_connection_window_size(16 << 20);
    let (sender, connection) = builder.handshake(stream).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// The same as [`Connection::request`], beside others.
pub async fn request_http2(sender: &SendRequest<Bytes>, route: &Checked, host: &str) -> Result<u64, Error> {
    let uri = format!("https://{host}:{}{}", route.port, route.path);
    let request = http::Request::get(uri).header("user-agent", "load/1").body(())?;
    let (answer, _) = sender.clone().ready().await?.send_request(request, true)?;
    let answer = answer.await?;
    if answer.status() != 200 {
        return Err(format!("status {}", answer.status()).into());
    }
    let (mut body, mut octets) = (answer.into_body(), 0);
    while let Some(piece) = body.data().await {
        let piece = piece?.len();
        body.flow_control().release_capacity(piece)?;
        octets += piece as u64;
    }
    Ok(octets)
}
