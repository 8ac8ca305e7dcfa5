//! hudsucker as its documentation puts it together, with a handler that does nothing.
//!
//! `hudsucker-peer PORT CA.pem CA.key ORIGINS.pem [nodelay]`. With `nodelay` what it accepts has TCP_NODELAY, which hudsucker does not set
//! by itself: each TLS handshake then waits 40 ms for a delayed ACK.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use hudsucker::certificate_authority::RcgenAuthority;
use hudsucker::rcgen::{Issuer, KeyPair};
use hudsucker::rustls::crypto::aws_lc_rs;
use hudsucker::{HttpHandler, Proxy};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpSocket;

#[derive(Clone)]
struct Nothing;

impl HttpHandler for Nothing {}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, ca, key, origins, options @ ..] = &arguments[..] else {
        return Err("wanted: PORT CA.pem CA.key ORIGINS.pem [nodelay]".into());
    };

    let key = KeyPair::from_pem(&std::fs::read_to_string(key)?)?;
    let issuer = Issuer::from_ca_cert_pem(&std::fs::read_to_string(ca)?, key)?;
    let authority = RcgenAuthority::new(issuer, 100_000, aws_lc_rs::default_provider());

    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(origins)? {
        roots.add(certificate?)?;
    }
    let tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(http);

    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    // What a listening socket has, those that it accepts have.
    socket.set_nodelay(options.iter().any(|option| option == "nodelay"))?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse()?)))?;
    let proxy = Proxy::builder()
        .with_listener(socket.listen(4096)?)
        .with_ca(authority)
        .with_http_connector(connector)
        .with_http_handler(Nothing)
        .build()?;
    Ok(proxy.start().await?)
}
