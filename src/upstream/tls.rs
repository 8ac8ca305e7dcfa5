//! TLS towards origins and parent proxies: whom it trusts, and what its failures mean.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Error;
use super::dial::{HostPort, Io};

/// The trusted certificates cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A file of `upstream.ca_files`.
    #[error("cannot read {}, named in upstream.ca_files: {reason}", path.display())]
    CaFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// rustls does not take the settings.
    #[error("TLS towards origins cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

/// TLS to a host by its name.
pub(super) async fn handshake<S: Io>(tls: &TlsConnector, place: &HostPort, stream: S) -> Result<TlsStream<S>, Error> {
    let host = place.to_string();
    let name = ServerName::try_from(place.host.as_str().to_owned())
        .map_err(|error| Error::Tls { host: host.clone(), source: io::Error::other(error) })?;
    tls.connect(name, stream).await.map_err(|source| {
        let cause = source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match cause {
            Some(cause @ rustls::Error::InvalidCertificate(_)) => Error::Certificate { host, source: cause.clone() },
            Some(cause @ rustls::Error::AlertReceived(_)) => Error::TlsAlert { host, source: cause.clone() },
            _ => Error::Tls { host, source },
        }
    })
}

/// TLS with these roots, offering these protocols.
pub(super) fn connector(roots: &Arc<RootCertStore>, protocols: &[&[u8]]) -> Result<TlsConnector, SetupError> {
    let mut tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(Arc::clone(roots))
        .with_no_client_auth();
    tls.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(TlsConnector::from(Arc::new(tls)))
}

/// The system's certificates, or Mozilla's where the machine has none, and those of the settings.
pub(super) fn roots(ca_files: &[PathBuf]) -> Result<RootCertStore, SetupError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    for path in ca_files {
        let bad = |reason: String| SetupError::CaFile { path: path.clone(), reason };
        let certificates = read_certificates(path).map_err(bad)?;
        if certificates.is_empty() {
            return Err(bad("it holds no certificate in PEM form".into()));
        }
        for certificate in certificates {
            roots.add(certificate).map_err(|error| bad(error.to_string()))?;
        }
    }
    Ok(roots)
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    CertificateDer::pem_reader_iter(BufReader::new(file)).collect::<Result<_, _>>().map_err(|error| error.to_string())
}
