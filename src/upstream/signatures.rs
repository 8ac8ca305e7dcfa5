//! The signatures on the way from an origin's certificate to a root, each verified once.
//!
//! The origins of a crawl share some intermediates, and those of one hosting company a certificate, while a signature takes a tenth of the
//! time that a whole new host does. SECURITY: whether a signature is good depends on key, text and signature alone, so one that was
//! good is remembered, by the SHA-256 of all three; one that was not is verified again. Dates, names, constraints and the way itself are
//! webpki's to check, every time; and so is the signature of each handshake, which is never the same.

use std::sync::{Arc, LazyLock};

use quick_cache::sync::Cache;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{AlgorithmIdentifier, FipsStatus, InvalidSignature, SignatureVerificationAlgorithm};
use sha2::{Digest, Sha256};

/// The provider's algorithms, which remember what they verify of certificates.
pub(super) fn remembered() -> WebPkiSupportedAlgorithms {
    static ALL: LazyLock<Vec<&'static dyn SignatureVerificationAlgorithm>> = LazyLock::new(|| {
        let good = Arc::new(Cache::new(GOOD_MAX));
        let of_provider = aws_lc_rs::default_provider().signature_verification_algorithms.all;
        let remembering = of_provider.iter().map(|algorithm| Remembering { algorithm: *algorithm, good: good.clone() });
        // rustls takes them for as long as the process lives.
        remembering.map(|one| &*Box::leak(Box::new(one)) as &dyn SignatureVerificationAlgorithm).collect()
    });
    WebPkiSupportedAlgorithms { all: &ALL, ..aws_lc_rs::default_provider().signature_verification_algorithms }
}

/// More than the web has intermediates; some 300 KiB.
const GOOD_MAX: usize = 4096;

/// An algorithm that verifies the same signature once.
#[derive(Debug)]
struct Remembering {
    algorithm: &'static dyn SignatureVerificationAlgorithm,
    good: Arc<Cache<[u8; 32], ()>>,
}

impl SignatureVerificationAlgorithm for Remembering {
    fn verify_signature(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        let mut hash = Sha256::new();
        let (key_id, signature_id) = (self.public_key_alg_id(), self.signature_alg_id());
        for part in [key_id.as_ref(), signature_id.as_ref(), key, message, signature] {
            // With its length, so that no octet can move from one part to the next.
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let hash = hash.finalize().into();
        if self.good.get(&hash).is_none() {
            self.algorithm.verify_signature(key, message, signature)?;
            self.good.insert(hash, ());
        }
        Ok(())
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.signature_alg_id()
    }

    fn fips_status(&self) -> FipsStatus {
        self.algorithm.fips_status()
    }

    fn fips(&self) -> bool {
        self.algorithm.fips()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Takes the key for the signature, and counts.
    #[derive(Debug)]
    struct Counting(AtomicUsize);

    impl SignatureVerificationAlgorithm for Counting {
        fn verify_signature(&self, key: &[u8], _: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
            self.0.fetch_add(1, Ordering::Relaxed);
            if key == signature { Ok(()) } else { Err(InvalidSignature) }
        }

        fn public_key_alg_id(&self) -> AlgorithmIdentifier {
            AlgorithmIdentifier::from_slice(b"key")
        }

        fn signature_alg_id(&self) -> AlgorithmIdentifier {
            AlgorithmIdentifier::from_slice(b"signature")
        }
    }

    #[test]
    fn a_good_signature_is_verified_once_and_a_bad_one_each_time() {
        static COUNTING: Counting = Counting(AtomicUsize::new(0));
        let remembering = Remembering { algorithm: &COUNTING, good: Arc::new(Cache::new(10)) };
        for (key, message, signature, is_good, verified) in [
            ("a", "text", "a", true, 1),
            ("a", "text", "a", true, 1),
            // The same octets, cut elsewhere.
            ("at", "ext", "at", true, 2),
            ("a", "other text", "a", true, 3),
            ("a", "text", "b", false, 4),
            ("a", "text", "b", false, 5),
            ("a", "text", "a", true, 5),
        ] {
            let [key, message, signature] = [key, message, signature].map(str::as_bytes);
            assert_eq!(remembering.verify_signature(key, message, signature).is_ok(), is_good);
            assert_eq!(COUNTING.0.load(Ordering::Relaxed), verified);
        }
    }

    #[test]
    fn every_algorithm_of_the_provider_is_there_and_handshakes_are_left_alone() {
        let (ours, provider) = (remembered(), aws_lc_rs::default_provider().signature_verification_algorithms);
        assert_eq!(ours.all.len(), provider.all.len());
        assert!(ours.all.iter().all(|algorithm| format!("{algorithm:?}").starts_with("Remembering")));
        assert!(!format!("{:?}", ours.mapping).contains("Remembering"));
    }
}
