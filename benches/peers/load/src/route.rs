//! The way of a request: which URL, through which proxy, and whom to trust.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use http::Uri;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_rustls::TlsConnector;

use crate::Error;

#[derive(Args)]
pub struct Route {
    /// "http://h{}.bench.test:8080/page", {} being the number of the host
    #[arg(long)]
    url: String,
    /// The proxy; without one, --origin is asked directly
    #[arg(long)]
    proxy: Option<SocketAddr>,
    #[arg(long)]
    origin: Option<SocketAddr>,
    /// The CA to trust; without one any certificate will do, so that checking takes none of the client's time
    #[arg(long)]
    ca: Option<PathBuf>,
    /// HTTP/2 with so many requests at once on each connection
    #[arg(long)]
    streams: Option<usize>,
}

/// A route that can be gone.
pub struct Checked {
    pub proxy: bool,
    pub to: SocketAddr,
    pub is_tls: bool,
    pub streams: Option<usize>,
    pub tls: TlsConnector,
    /// In two parts, around the number.
    host: (String, String),
    pub port: u16,
    pub path: String,
}

impl Route {
    pub fn checked(self) -> Result<Checked, Error> {
        let uri: Uri = self.url.replace("{}", "0").parse()?;
        let is_tls = uri.scheme_str() == Some("https");
        let authority = self.url.split('/').nth(2).ok_or("the URL has no host")?;
        let host = authority.rsplit_once(':').ok_or("the URL has no port")?.0;
        let (before, after) = host.split_once("{}").unwrap_or((host, ""));
        let to = self.proxy.or(self.origin).ok_or("--proxy or --origin is needed")?;
        if !to.ip().is_loopback() {
            return Err(format!("{to} is not on loopback").into());
        }
        Ok(Checked {
            proxy: self.proxy.is_some(),
            to,
            is_tls,
            streams: self.streams,
            tls: connector(self.ca, self.streams.is_some())?,
            host: (before.to_owned(), after.to_owned()),
            port: uri.port_u16().ok_or("the URL has no port")?,
            path: uri.path().to_owned(),
        })
    }
}

impl Checked {
    /// The name of a host.
    pub fn host(&self, number: u64) -> String {
        let (before, after) = &self.host;
        if after.is_empty() { before.clone() } else { format!("{before}{number}{after}") }
    }
}

/// TLS as browsers speak it, but with a key exchange and a cipher that every proxy has, so that all do the same cryptographic work. No
/// session is resumed: each handshake is a full one.
fn connector(ca: Option<PathBuf>, is_http2: bool) -> Result<TlsConnector, Error> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites = vec![
        aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256,
        aws_lc_rs::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        aws_lc_rs::cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ];
    // The second for the curve of the certificates; a key is offered for the first alone.
    provider.kx_groups = vec![aws_lc_rs::kx_group::X25519, aws_lc_rs::kx_group::SECP256R1];
    let provider = Arc::new(provider);
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let mut config = match ca {
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_file_iter(ca)? {
                roots.add(certificate?)?;
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        }
        None => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider))).with_no_client_auth(),
    };
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![if is_http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Trusts anybody, unseen.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
