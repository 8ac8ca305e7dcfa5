use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::thread;

use rustls::pki_types::ServerName;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use tempfile::TempDir;
use x509_parser::extensions::{GeneralName, ParsedExtension};

use super::*;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn now() -> SystemTime {
    clock::wall()
}

fn settings(dir: &Path) -> Settings {
    Settings { dir: dir.to_owned(), ..Settings::default() }
}

fn folder() -> (TempDir, Settings) {
    let folder = TempDir::new().unwrap();
    let settings = settings(folder.path());
    (folder, settings)
}

fn leaves(settings: &Settings) -> Leaves {
    Leaves::new(Arc::new(Ca::open(settings, now()).unwrap()), settings).unwrap()
}

fn parsed(der: &[u8]) -> X509Certificate<'_> {
    X509Certificate::from_der(der).unwrap().1
}

/// Runs `openssl`, which these tests need, in this folder.
fn openssl(dir: &Path, arguments: &str) -> String {
    let output = Command::new("openssl").args(arguments.split(' ')).current_dir(dir).output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "openssl {arguments}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Writes the leaf of a host and lets OpenSSL judge it as strictly as Python 3.13 does.
fn verify_strictly(dir: &Path, leaves: &Leaves, host: &str) {
    let leaf = leaves.certificate(host).unwrap();
    fs::write(dir.join("leaf.der"), &leaf.cert[0]).unwrap();
    openssl(dir, "x509 -inform der -in leaf.der -out leaf.pem");
    let check = match host.parse::<std::net::IpAddr>() {
        Ok(_) => format!("-verify_ip {host}"),
        Err(_) => format!("-verify_hostname {host}"),
    };
    openssl(dir, &format!("verify -x509_strict -purpose sslserver {check} -CAfile ca.pem leaf.pem"));
}

#[test]
fn the_first_open_makes_a_ca_and_the_second_reads_it() {
    let (folder, settings) = folder();
    let first = Ca::open(&settings, now()).unwrap();
    let second = Ca::open(&settings, now()).unwrap();
    assert!(first.was_made() && !second.was_made());
    assert_eq!(first.certificate_der(), second.certificate_der());
    assert_eq!(first.certificate_pem(), fs::read_to_string(first.certificate_path()).unwrap());
    let names: HashSet<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["ca.pem", "ca.key"].map(Into::into).into());
}

#[test]
fn the_folder_and_the_key_are_ours_alone() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path().join("state/certs");
    let ca = Ca::open(&settings(&dir), now()).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    assert_eq!(mode(ca.key_path()), 0o600);
    assert_eq!(mode(ca.certificate_path()) & 0o400, 0o400);
}

#[test]
fn processes_that_start_at_once_end_with_one_ca() {
    let (_folder, settings) = folder();
    let cas: Vec<Ca> = thread::scope(|scope| {
        let starts: Vec<_> = (0..16).map(|_| scope.spawn(|| Ca::open(&settings, now()).unwrap())).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    assert_eq!(cas.iter().filter(|ca| ca.was_made()).count(), 1);
    let different: HashSet<_> = cas.iter().map(|ca| ca.certificate_der().to_vec()).collect();
    assert_eq!(different.len(), 1);
}

#[test]
fn the_ca_is_what_clients_want_a_ca_to_be() {
    let (folder, settings) = folder();
    let ca = Ca::open(&settings, now()).unwrap();
    let certificate = parsed(ca.certificate_der());
    let constraints = certificate.basic_constraints().unwrap().unwrap();
    assert!(constraints.critical && constraints.value.ca);
    assert_eq!(constraints.value.path_len_constraint, Some(0));
    let usage = certificate.key_usage().unwrap().unwrap();
    assert!(usage.critical && usage.value.key_cert_sign() && usage.value.crl_sign());
    assert_eq!(usage.value.flags.count_ones(), 2);
    let has_identifier =
        |extension: &ParsedExtension<'_>| matches!(extension, ParsedExtension::SubjectKeyIdentifier(_));
    assert!(certificate.extensions().iter().any(|extension| has_identifier(extension.parsed_extension())));
    assert!(ca.not_before() < now() - DAY && ca.not_after() > now() + 3600 * DAY);
    assert_eq!(certificate.raw_serial().len(), 16);
    openssl(folder.path(), "verify -x509_strict -CAfile ca.pem ca.pem");
}

#[test]
fn two_cas_differ_in_subject_and_serial() {
    let (_one, one) = folder();
    let (_two, two) = folder();
    let (one, two) = (Ca::open(&one, now()).unwrap(), Ca::open(&two, now()).unwrap());
    assert_ne!(one.subject(), two.subject());
    assert_ne!(parsed(one.certificate_der()).raw_serial(), parsed(two.certificate_der()).raw_serial());
    assert!(one.subject().contains("CN=robots-proxy CA "), "{}", one.subject());
}

#[test]
fn hashes_are_those_that_openssl_prints() {
    let (folder, settings) = folder();
    let ca = Ca::open(&settings, now()).unwrap();
    let printed = openssl(folder.path(), "x509 -in ca.pem -noout -fingerprint -sha256");
    assert_eq!(printed.trim().rsplit('=').next().unwrap(), ca.fingerprint());
    openssl(folder.path(), "x509 -in ca.pem -pubkey -noout -out public.pem");
    openssl(folder.path(), "pkey -pubin -in public.pem -outform der -out public.der");
    assert_eq!(
        ca.spki_sha256_base64(),
        BASE64.encode(Sha256::digest(fs::read(folder.path().join("public.der")).unwrap()))
    );
}

#[test]
fn what_is_wrong_with_a_folder_is_said_in_one_line_and_left_alone() {
    type Spoil = fn(&Path);
    let cases: [(Spoil, &str); 9] = [
        (|dir| fs::remove_file(dir.join("ca.key")).unwrap(), "ca.pem has no key: put its key at"),
        (|dir| fs::remove_file(dir.join("ca.pem")).unwrap(), "ca.key has no certificate: put its certificate at"),
        (|dir| chmod(&dir.join("ca.key"), 0o640), "ca.key can be read by others (mode 0640): run `chmod 600 '"),
        (|dir| fs::write(dir.join("ca.pem"), "hello").unwrap(), "ca.pem holds no certificate that can be read"),
        (|dir| fs::write(dir.join("ca.key"), "hello").unwrap(), "ca.key holds no key that can be used"),
        (encrypt_key, "unencrypted PEM"),
        (
            |dir| fs::write(dir.join("ca.key"), KeyPair::generate().unwrap().serialize_pem()).unwrap(),
            "is not the key of",
        ),
        (append_key_to_certificate, "holds a private key and is given to clients: move the key to"),
        (
            |dir| {
                drop(openssl(
                    dir,
                    "req -x509 -key ca.key -subj /CN=host -addext basicConstraints=critical,CA:FALSE -out ca.pem",
                ))
            },
            "ca.pem is not the certificate of a CA",
        ),
    ];
    for (spoil, says) in cases {
        let (folder, settings) = folder();
        Ca::open(&settings, now()).unwrap();
        spoil(folder.path());
        let before = files_of(folder.path());
        let error = Ca::open(&settings, now()).unwrap_err().to_string();
        assert!(error.contains(says) && !error.contains('\n'), "{says}: {error}");
        assert_eq!(files_of(folder.path()), before, "{says}");
    }
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn encrypt_key(dir: &Path) {
    openssl(dir, "pkey -in ca.key -aes256 -passout pass:secret -out encrypted.key");
    fs::rename(dir.join("encrypted.key"), dir.join("ca.key")).unwrap();
}

fn append_key_to_certificate(dir: &Path) {
    let both = fs::read_to_string(dir.join("ca.pem")).unwrap() + &fs::read_to_string(dir.join("ca.key")).unwrap();
    fs::write(dir.join("ca.pem"), both).unwrap();
}

fn files_of(dir: &Path) -> Vec<Option<Vec<u8>>> {
    ["ca.pem", "ca.key"].map(|name| fs::read(dir.join(name)).ok()).into()
}

#[test]
fn load_never_makes_a_ca() {
    let (folder, _) = folder();
    let error = Ca::load(folder.path()).unwrap_err();
    assert!(matches!(error, Error::Absent(_)), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn an_expired_ca_can_be_shown_but_not_opened() {
    let (folder, settings) = folder();
    let then = now() - 4000 * DAY;
    Ca::open(&settings, then).unwrap();
    assert!(Ca::load(folder.path()).is_ok());
    assert!(matches!(Ca::open(&settings, now()), Err(Error::Expired { .. })));
    assert!(matches!(Ca::open(&settings, then - 3 * DAY), Err(Error::Early { .. })));
}

#[test]
fn openssl_strict_accepts_the_leaf_of_every_kind_of_host() {
    let (folder, settings) = folder();
    let leaves = leaves(&settings);
    let long = format!("{}.{}.example", "a".repeat(63), "b".repeat(63));
    for host in ["shop.example", &long, "under_score.example", "localhost", "127.0.0.1", "::1", "2001:db8::1"] {
        verify_strictly(folder.path(), &leaves, host);
    }
}

#[test]
fn case_10_the_leaf_has_the_extensions_that_clients_check() {
    let (_folder, settings) = folder();
    let leaves = leaves(&settings);
    let leaf = leaves.certificate("shop.example").unwrap();
    let certificate = parsed(&leaf.cert[0]);
    let usage = certificate.key_usage().unwrap().unwrap();
    assert!(usage.critical && usage.value.digital_signature() && usage.value.flags.count_ones() == 1);
    let extended = certificate.extended_key_usage().unwrap().unwrap();
    assert!(extended.value.server_auth && !extended.value.client_auth && !extended.value.any);
    assert!(!certificate.is_ca());
    assert_eq!(authority(&certificate), identifier(&parsed(&leaf.cert[1])));
    assert_eq!(leaf.cert[1], *leaves.ca().certificate_der());
    assert_ne!(certificate.public_key().raw, parsed(&leaf.cert[1]).public_key().raw);
}

fn authority(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(authority) => authority.key_identifier.as_ref().map(|id| id.0.to_vec()),
        _ => None,
    })
}

fn identifier(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(identifier) => Some(identifier.0.to_vec()),
        _ => None,
    })
}

#[test]
fn case_14_addresses_are_addresses_in_the_certificate() {
    let (_folder, settings) = folder();
    let leaves = leaves(&settings);
    let mut v6 = [0; 16];
    v6[15] = 1;
    let cases: [(&str, GeneralName<'_>); 7] = [
        ("192.0.2.1", GeneralName::IPAddress(&[192, 0, 2, 1])),
        ("::1", GeneralName::IPAddress(&v6)),
        ("[::1]", GeneralName::IPAddress(&v6)),
        ("Shop.Example", GeneralName::DNSName("shop.example")),
        ("shop.example.", GeneralName::DNSName("shop.example")),
        ("under_score.example", GeneralName::DNSName("under_score.example")),
        ("xn--mnchen-3ya.example", GeneralName::DNSName("xn--mnchen-3ya.example")),
    ];
    for (host, name) in cases {
        let leaf = leaves.certificate(host).unwrap();
        let certificate = parsed(&leaf.cert[0]);
        let names = certificate.subject_alternative_name().unwrap().unwrap();
        assert_eq!(names.value.general_names, [name], "{host}");
    }
    assert_eq!(leaves.minted(), 5, "spellings of one host share one certificate");
}

#[test]
fn what_is_no_host_gets_no_certificate() {
    let (_folder, settings) = folder();
    let leaves = leaves(&settings);
    for host in
        ["", ".", "*.example.com", "a b", "a..b", "[shop.example]", "::1%eth0", "müller.example", &"a".repeat(64)]
    {
        assert!(matches!(leaves.certificate(host), Err(Error::Host(_))), "{host}");
    }
}

#[test]
fn case_04_no_two_certificates_share_a_serial() {
    let (_folder, settings) = folder();
    let mut serials = HashSet::new();
    for _start in 0..3 {
        let leaves = leaves(&settings);
        for host in ["a.example", "b.example", "c.example"] {
            let leaf = leaves.certificate(host).unwrap();
            let serial = parsed(&leaf.cert[0]).raw_serial().to_vec();
            assert!(serial.len() == 16 && serial[0] & 0x80 == 0, "{serial:02x?}");
            serials.insert(serial);
        }
    }
    assert_eq!(serials.len(), 9);
}

#[test]
fn case_09_the_whole_span_is_at_most_45_days() {
    let (folder, _) = folder();
    for days in [0, 1, 7, 45, 199, 100_000] {
        let settings = Settings { dir: folder.path().to_owned(), leaf_ttl: days * DAY, ..Settings::default() };
        let leaf = leaves(&settings).certificate("shop.example").unwrap();
        let (from, to) = validity(&leaf);
        assert!(to.duration_since(from).unwrap() <= 45 * DAY, "{days}");
        assert!(from <= now() - DAY && to > now(), "{days}");
        assert!(days != 7 || to < now() + 7 * DAY + Duration::from_secs(1));
    }
}

fn validity(leaf: &CertifiedKey) -> (SystemTime, SystemTime) {
    let facts = Facts::of(&parsed(&leaf.cert[0]));
    (facts.not_before, facts.not_after)
}

#[test]
fn a_leaf_does_not_outlive_its_ca() {
    let (_folder, settings) = folder();
    let leaves = leaves(&settings);
    let end = leaves.ca().not_after();
    let late = end - DAY;
    assert_eq!(validity(&leaves.certificate_at("shop.example", late).unwrap()).1, end);
    assert!(matches!(leaves.certificate_at("shop.example", end), Err(Error::Expired { .. })));
    let begin = leaves.ca().not_before();
    assert_eq!(validity(&leaves.certificate_at("other.example", begin).unwrap()).0, begin);
}

#[test]
fn a_leaf_is_kept_and_renewed_before_it_expires() {
    let (_folder, settings) = folder();
    let leaves = leaves(&settings);
    let start = now();
    let first = leaves.certificate_at("shop.example", start).unwrap();
    let kept = leaves.certificate_at("shop.example", start + 4 * DAY).unwrap();
    assert!(Arc::ptr_eq(&first, &kept));
    let renewed = leaves.certificate_at("shop.example", start + 5 * DAY).unwrap();
    assert!(!Arc::ptr_eq(&first, &renewed));
    assert!(validity(&renewed).1 > start + 11 * DAY);
    let set_back = leaves.certificate_at("shop.example", start - DAY).unwrap();
    assert!(validity(&set_back).0 < start - DAY, "a clock that was set back meets no certificate from the future");
    assert_eq!(leaves.minted(), 3);
}

#[test]
fn a_thousand_who_ask_at_once_cost_one_signature() {
    let (_folder, settings) = folder();
    let leaves = leaves(&settings);
    let barrier = Barrier::new(1000);
    let ask = || {
        barrier.wait();
        leaves.certificate("shop.example").unwrap()
    };
    let leaf = thread::scope(|scope| {
        let askers: Vec<_> = (0..1000).map(|_| scope.spawn(ask)).collect();
        let all: Vec<_> = askers.into_iter().map(|asker| asker.join().unwrap()).collect();
        assert!(all.iter().all(|leaf| Arc::ptr_eq(leaf, &all[0])));
        all[0].clone()
    });
    assert_eq!(leaves.minted(), 1);
    assert!(Arc::ptr_eq(&leaf, &leaves.certificate("shop.example").unwrap()));
}

/// Case 11: the identifier of the issuer is copied, whatever it is, and every kind of key that the provider knows can
/// sign.
#[test]
fn case_11_an_operators_own_ca_works() {
    let keys = [
        "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out ca.key",
        "genrsa -traditional -out ca.key 2048",
        "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-384 -out ca.key",
        "ecparam -name prime256v1 -genkey -out ca.key",
        "genpkey -algorithm ED25519 -out ca.key",
    ];
    for key in keys {
        let (folder, settings) = folder();
        openssl(folder.path(), key);
        chmod(&folder.path().join("ca.key"), 0o600);
        fs::write(folder.path().join("config"), OWN_CA).unwrap();
        openssl(folder.path(), "req -x509 -config config -key ca.key -days 30 -out ca.pem");
        let leaves = leaves(&settings);
        let leaf = leaves.certificate("shop.example").unwrap();
        let expected = [0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99];
        assert_eq!(authority(&parsed(&leaf.cert[0])).unwrap(), expected, "{key}");
        assert!(!leaves.ca().was_made());
        // The CA is younger than the backdating, so the leaf begins with it.
        verify_strictly(folder.path(), &leaves, "shop.example");
    }
}

const OWN_CA: &str = "
[req]
prompt = no
distinguished_name = subject
x509_extensions = extensions
[subject]
C = DE
O = Example
OU = Crawling
CN = Example CA
[extensions]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = 00112233445566778899
";

#[test]
fn a_subject_that_cannot_be_repeated_is_refused_at_start() {
    let (folder, settings) = folder();
    Ca::open(&settings, now()).unwrap();
    openssl(folder.path(), "req -x509 -key ca.key -subj /DC=com/DC=example/CN=Corp -out ca.pem");
    let error = Ca::open(&settings, now()).unwrap_err();
    assert!(matches!(error, Error::Subject(_)), "{error}");
}

#[test]
fn an_intermediate_is_served_with_the_way_to_its_root() {
    let (folder, settings) = folder();
    let dir = folder.path();
    openssl(
        dir,
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout root.key -subj /CN=Root -out root.pem",
    );
    openssl(dir, "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -subj /CN=Between -out ca.csr");
    fs::write(dir.join("extensions"), "basicConstraints=critical,CA:TRUE,pathlen:0\nsubjectKeyIdentifier=hash\n")
        .unwrap();
    openssl(dir, "x509 -req -in ca.csr -CA root.pem -CAkey root.key -CAcreateserial -extfile extensions -out ca.pem");
    let chain = fs::read_to_string(dir.join("ca.pem")).unwrap() + &fs::read_to_string(dir.join("root.pem")).unwrap();
    fs::write(dir.join("ca.pem"), chain).unwrap();
    chmod(&dir.join("ca.key"), 0o600);
    let leaf = leaves(&settings).certificate("shop.example").unwrap();
    let subjects: Vec<_> = leaf.cert.iter().map(|der| parsed(der).subject().to_string()).collect();
    assert_eq!(subjects, ["O=robots-proxy", "CN=Between", "CN=Root"]);
}

#[test]
fn rustls_shakes_hands_with_names_and_addresses() {
    let (_folder, settings) = folder();
    let leaves = leaves(&settings);
    for host in ["shop.example", "under_score.example", "192.0.2.1", "2001:db8::1"] {
        shake_hands(leaves.ca(), &leaves.certificate(host).unwrap(), host).unwrap();
    }
    let wrong = leaves.certificate("shop.example").unwrap();
    assert!(shake_hands(leaves.ca(), &wrong, "other.example").is_err());
}

/// One handshake in memory.
fn shake_hands(ca: &Ca, leaf: &Arc<CertifiedKey>, host: &str) -> Result<(), rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(ca.certificate_der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let client = Arc::new(client.with_root_certificates(roots).with_no_client_auth());
    let server = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let resolver = Arc::new(SingleCertAndKey::from(leaf.clone()));
    let server = Arc::new(server.with_no_client_auth().with_cert_resolver(resolver));
    let mut client = ClientConnection::new(client, ServerName::try_from(host.to_owned()).unwrap())?;
    let mut server = ServerConnection::new(server)?;
    while client.is_handshaking() || server.is_handshaking() {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets()?;
        let mut wire = Vec::new();
        server.write_tls(&mut wire).unwrap();
        client.read_tls(&mut wire.as_slice()).unwrap();
        client.process_new_packets()?;
    }
    Ok(())
}

#[test]
fn a_constrained_ca_is_refused_by_clients_for_all_other_hosts() {
    for (permitted, admitted, refused) in [
        (&["example.com"][..], &["example.com", "a.b.example.com"][..], &["a.test", "127.0.0.1", "::1"][..]),
        (&["example.com", "127.0.0.0/8"], &["www.example.com", "127.0.0.1"], &["a.test", "192.0.2.1", "::1"]),
        (&["::1"], &["::1"], &["a.test", "127.0.0.1", "2001:db8::1"]),
    ] {
        let (folder, mut settings) = folder();
        settings.permitted = permitted.iter().map(|permit| permit.parse().unwrap()).collect();
        let leaves = leaves(&settings);
        let certificate = parsed(leaves.ca().certificate_der());
        assert!(certificate.name_constraints().unwrap().unwrap().critical);
        assert_eq!(
            (leaves.ca().constraints_differ(&settings), leaves.ca().permitted()),
            (None, &Permitted::new(&settings.permitted))
        );
        for host in admitted {
            verify_strictly(folder.path(), &leaves, host);
            shake_hands(leaves.ca(), &leaves.certificate(host).unwrap(), host).unwrap();
        }
        for host in refused {
            assert!(matches!(leaves.certificate(host), Err(Error::NotPermitted { .. })), "{host}");
            // And if somebody signs with the key all the same:
            let key = KeyPair::generate().unwrap();
            let stolen =
                CertificateParams::new(vec![(*host).to_owned()]).unwrap().signed_by(&key, &leaves.ca().issuer).unwrap();
            fs::write(folder.path().join("stolen.pem"), stolen.pem()).unwrap();
            let verify = Command::new("openssl")
                .args(["verify", "-CAfile", "ca.pem", "stolen.pem"])
                .current_dir(folder.path())
                .output()
                .unwrap();
            assert!(!verify.status.success(), "openssl takes {host} from a CA for {permitted:?}");
            let der = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
            let signing = aws_lc_rs::sign::any_ecdsa_type(&der).unwrap();
            let stolen = Arc::new(CertifiedKey::new(vec![stolen.der().clone()], signing));
            assert!(
                shake_hands(leaves.ca(), &stolen, host).is_err(),
                "rustls takes {host} from a CA for {permitted:?}"
            );
        }
    }
}

#[test]
fn an_existing_ca_keeps_its_constraints_and_the_difference_is_told_in_one_line() {
    let (_folder, mut settings) = folder();
    settings.permitted = vec!["example.com".parse().unwrap()];
    leaves(&settings);
    settings.permitted = vec!["a.example.com".parse().unwrap(), "b.test".parse().unwrap()];
    let narrower = leaves(&settings);
    let told = narrower.ca().constraints_differ(&settings).unwrap();
    assert!(
        told.starts_with("ca.permitted says a.example.com, b.test, but ") && told.contains("is made for example.com: "),
        "{told}"
    );
    assert!(!told.contains('\n'));
    for (host, admitted) in [("a.example.com", true), ("example.com", false), ("b.test", false)] {
        assert_eq!(narrower.check(host).is_ok(), admitted, "{host}: both must permit it");
    }
    settings.permitted.clear();
    assert!(leaves(&settings).ca().constraints_differ(&settings).unwrap().contains("says any host, but"));
}

#[test]
fn a_renewed_certificate_and_the_old_one_stand_for_each_other() {
    let (folder, settings) = folder();
    let old = Ca::open(&settings, now()).unwrap();
    let old_leaf = leaves(&settings).certificate("a.test").unwrap();
    let later = now() + 3000 * DAY;
    assert!(old.ends_soon(later).is_none() && old.ends_soon(old.not_after() - 59 * DAY).is_some());
    let renewed = renew(&settings, later, false).unwrap();
    assert_eq!((renewed.ca.subject(), renewed.ca.spki_sha256_base64()), (old.subject(), old.spki_sha256_base64()));
    assert_ne!(parsed(renewed.ca.certificate_der()).raw_serial(), parsed(old.certificate_der()).raw_serial());
    assert_eq!((renewed.old_not_after, renewed.old_key.is_none()), (old.not_after(), true));
    assert!(renewed.ca.not_after() > old.not_after() + 2900 * DAY);
    assert_eq!(fs::read_to_string(&renewed.old_certificate).unwrap(), old.certificate_pem());
    // A client that trusts either takes a certificate of either, for as long as the one that it trusts lives.
    let (when, before) = (later + DAY, renewed.old_certificate.file_name().unwrap().to_string_lossy().into_owned());
    let not_before = renewed.ca.not_before();
    let new_leaf = Leaves::new(Arc::new(renewed.ca), &settings).unwrap().certificate_at("a.test", when).unwrap();
    let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap().as_secs();
    for (leaf, at) in [(&old_leaf, now()), (&new_leaf, when)] {
        fs::write(folder.path().join("leaf.der"), &leaf.cert[0]).unwrap();
        openssl(folder.path(), "x509 -inform der -in leaf.der -out leaf.pem");
        for (trusted, lives) in [("ca.pem", at >= not_before), (before.as_str(), true)] {
            if lives {
                let check = format!("verify -x509_strict -purpose sslserver -attime {}", seconds(at));
                openssl(folder.path(), &format!("{check} -CAfile {trusted} leaf.pem"));
            }
        }
    }
}

#[test]
fn a_new_key_makes_a_new_ca_and_loses_nothing() {
    let (folder, settings) = folder();
    let old = Ca::open(&settings, now()).unwrap();
    let old_key = fs::read_to_string(old.key_path()).unwrap();
    // Whoever asks for a new key may do so because the old one could be read.
    fs::set_permissions(old.key_path(), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(renew(&settings, now(), false), Err(Error::KeyReadable { .. })));
    let constrained = Settings { permitted: vec!["example.com".parse().unwrap()], ..settings.clone() };
    let renewed = renew(&constrained, now(), true).unwrap();
    assert_ne!((renewed.ca.subject(), renewed.ca.spki_sha256_base64()), (old.subject(), old.spki_sha256_base64()));
    assert_eq!(renewed.ca.constraints_differ(&constrained), None);
    assert_eq!(fs::read_to_string(renewed.old_key.unwrap()).unwrap(), old_key);
    assert_eq!(fs::read_to_string(&renewed.old_certificate).unwrap(), old.certificate_pem());
    assert_eq!(fs::metadata(renewed.ca.key_path()).unwrap().permissions().mode() & 0o777, 0o600);
    verify_strictly(folder.path(), &leaves(&constrained), "example.com");
    assert_eq!(
        fs::read_dir(folder.path())
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("ca"))
            .count(),
        4
    );
}

#[test]
fn a_ca_of_somebody_else_is_not_renewed() {
    let (folder, settings) = folder();
    assert!(matches!(renew(&settings, now(), true), Err(Error::Absent(_))));
    openssl(
        folder.path(),
        "req -x509 -newkey rsa:2048 -nodes -subj /O=Example/CN=Own -days 30 -keyout ca.key -out ca.pem",
    );
    fs::set_permissions(folder.path().join("ca.key"), fs::Permissions::from_mode(0o600)).unwrap();
    let before = fs::read(folder.path().join("ca.pem")).unwrap();
    for new_key in [false, true] {
        assert!(matches!(renew(&settings, now(), new_key), Err(Error::NotOurs(_))));
    }
    assert_eq!(fs::read(folder.path().join("ca.pem")).unwrap(), before);
}
