//! Certificates in the forms that clients read: PEM, and the PKCS#12 trust store of Java.
//!
//! Neither holds a private key. Java takes a certificate of a PKCS#12 file for trusted only if it carries an attribute of Oracle's own,
//! which `openssl pkcs12` cannot write; that is what the crate is for.

use p12_keystore::{Certificate, KeyStore, KeyStoreEntry};
use rustls::pki_types::CertificateDer;

/// The password of a trust store. It keeps nothing secret, but Java wants one, and this is what its own has.
pub const PASSWORD: &str = "changeit";

/// These certificates, one PEM block each.
pub fn pem(certificates: &[CertificateDer<'_>]) -> String {
    let blocks: Vec<pem::Pem> = certificates.iter().map(|der| pem::Pem::new("CERTIFICATE", der.to_vec())).collect();
    pem::encode_many_config(&blocks, pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF))
}

/// A trust store of these certificates, under [`PASSWORD`]. What the crate cannot read is left out.
///
/// # Errors
/// The store cannot be written.
pub fn pkcs12(certificates: &[CertificateDer<'_>]) -> Result<Vec<u8>, p12_keystore::error::Error> {
    let mut store = KeyStore::new();
    for (number, der) in certificates.iter().enumerate() {
        if let Ok(certificate) = Certificate::from_der(der) {
            store.add_entry(&format!("robots-proxy-{number}"), KeyStoreEntry::Certificate(certificate));
        }
    }
    store.writer(PASSWORD).write()
}
