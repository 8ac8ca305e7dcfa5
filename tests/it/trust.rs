//! `ca export`, `ca install` and `ca uninstall`, in homes and roots of their own: nothing here touches what this machine trusts.

use std::path::Path;

use tempfile::TempDir;
use tokio::process::Command;

use super::support::in_time;
use super::support::program::{Ran, Serving, command, folder, run};

/// A folder with a CA.
async fn home() -> TempDir {
    let home = folder("listen = [\"127.0.0.1:0\"]\n");
    let serving = Serving::start(home.path(), &[]).await;
    serving.terminate().await;
    assert_eq!(serving.ended().await.exit, 0);
    home
}

/// What a shell script prints; it fails where one of its commands does.
async fn shell(home: &Path, script: &str) -> String {
    let mut shell = Command::new("bash");
    shell
        .args(["-o", "pipefail", "-e", "-c", script])
        .current_dir(home)
        .env("HOME", home)
        .env_remove("JAVA_TOOL_OPTIONS");
    let output = in_time("a script", shell.output()).await.unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn assert_done(ran: &Ran, says: &[&str]) {
    assert_eq!(ran.exit, 0, "{ran:?}");
    for word in says {
        assert!(ran.out.contains(word), "{word} is not in\n{}", ran.out);
    }
}

#[tokio::test]
async fn the_certificate_is_handed_out_in_every_form() {
    let home = home().await;
    let pem = shell(home.path(), "openssl x509 -in certs/ca.pem -outform der | sha256sum").await;
    for (format, read) in [
        ("pem", "openssl x509 -in out -outform der | sha256sum"),
        ("der", "openssl x509 -inform der -in out -outform der | sha256sum"),
        ("p12", "openssl pkcs12 -in out -nokeys -passin pass:changeit | openssl x509 -outform der | sha256sum"),
        ("p12", "keytool -exportcert -keystore out -storepass changeit -alias robots-proxy-0 2>/dev/null | sha256sum"),
    ] {
        let ran = run(home.path(), &["ca", "export", "--format", format, "--output", "out"]).await;
        assert_eq!((ran.exit, ran.out.as_str()), (0, ""), "{ran:?}");
        assert_eq!(shell(home.path(), read).await, pem, "{format}: {read}");
    }
    // Java trusts only what is marked so, and there is no key in it.
    let listed = shell(home.path(), "keytool -list -keystore out -storepass changeit").await;
    assert!(listed.contains("trustedCertEntry") && listed.contains("contains 1 entry"), "{listed}");
    let keys = shell(
        home.path(),
        "openssl pkcs12 -in out -nocerts -passin pass:changeit -passout pass:x | grep -c KEY || true",
    )
    .await;
    assert_eq!(keys, "0\n");

    let spki = run(home.path(), &["ca", "export", "--format", "spki"]).await;
    let pin = "openssl x509 -in certs/ca.pem -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | base64";
    assert_eq!(spki.out, shell(home.path(), pin).await);

    let ran = run(home.path(), &["ca", "export", "--output", "nowhere/out"]).await;
    assert!(ran.exit == 1 && ran.err.contains("nowhere/out") && ran.err.lines().count() == 1, "{ran:?}");
}

#[tokio::test]
async fn nss_databases_of_chromium_and_firefox_are_changed_once_and_changed_back() {
    let home = home().await;
    let profile = ".mozilla/firefox/x1.default-release";
    let make = format!("mkdir -p {profile} .mozilla/firefox/empty; certutil -d sql:{profile} -N --empty-password");
    shell(home.path(), &make).await;
    let count = format!(
        "for d in .pki/nssdb {profile}; do certutil -d sql:$d -L 2>/dev/null | grep -c 'robots-proxy-[0-9a-f]* *C,,' || true; done"
    );

    let ran = run(home.path(), &["ca", "install", "--nss", "--dry-run"]).await;
    assert_done(&ran, &["certs/ca.key can then pose", "any host", "certutil -d sql:", "-N --empty-password"]);
    assert!(!home.path().join(".pki").exists());

    let ran = run(home.path(), &["ca", "install", "--nss"]).await;
    assert_done(&ran, &["the NSS database", "-A -t C,, -n robots-proxy-"]);
    assert_eq!(shell(home.path(), &count).await, "1\n1\n");
    let again = run(home.path(), &["ca", "install", "--nss"]).await;
    assert_done(&again, &["nothing to do"]);
    assert!(!again.out.contains("certutil"), "{}", again.out);
    assert_eq!(shell(home.path(), &count).await, "1\n1\n");

    // What was trusted before a renewal is taken back, too.
    assert_eq!(run(home.path(), &["ca", "renew"]).await.exit, 0);
    assert_done(&run(home.path(), &["ca", "install", "--nss"]).await, &["-A -t C,, -n robots-proxy-"]);
    assert_done(&run(home.path(), &["ca", "uninstall", "--nss"]).await, &["-D -n robots-proxy-"]);
    assert_eq!(shell(home.path(), &count).await, "0\n0\n");
    assert_done(&run(home.path(), &["ca", "uninstall", "--nss"]).await, &["nothing to do"]);
}

#[tokio::test]
async fn a_trust_store_of_java_is_changed_once_and_changed_back() {
    let home = home().await;
    let make = "mkdir -p java/bin java/lib/security; tool=$(readlink -f \"$(command -v keytool)\"); ln -s \"$tool\" java/bin/keytool; \
        cp \"$(dirname \"$tool\")/../lib/security/cacerts\" java/lib/security/cacerts; chmod u+w java/lib/security/cacerts";
    shell(home.path(), make).await;
    let count = "keytool -list -keystore java/lib/security/cacerts -storepass changeit 2>/dev/null | grep -c ^robots-proxy- || true";
    let ca = |words: &'static str| {
        let mut command = command(home.path(), &words.split(' ').collect::<Vec<_>>());
        command.env("JAVA_HOME", home.path().join("java"));
        async move { Ran::from(in_time("ca", command.output()).await.unwrap()) }
    };
    for (words, says, after) in [
        ("ca install --java", "-importcert", "1\n"),
        ("ca install --java", "nothing to do", "1\n"),
        ("ca uninstall --java", "-delete", "0\n"),
        ("ca uninstall --java", "nothing to do", "0\n"),
    ] {
        assert_done(&ca(words).await, &["Java's trust store", says]);
        assert_eq!(shell(home.path(), count).await, after, "{words}");
    }
}

#[tokio::test]
async fn a_systems_trust_store_gets_a_file_and_loses_it_again() {
    let home = home().await;
    shell(home.path(), "mkdir -p image/usr/local/share/ca-certificates").await;
    let anchors = "ls image/usr/local/share/ca-certificates";
    for (verb, says, after) in [
        ("install", "install -m 644", 1),
        ("install", "nothing to do", 1),
        ("uninstall", "rm -f", 0),
        ("uninstall", "nothing to do", 0),
    ] {
        let ran = run(home.path(), &["ca", verb, "--system", "--root", "image"]).await;
        assert_done(&ran, &["the system's trust store (image/usr/local/share/ca-certificates)", says]);
        assert!(!ran.out.contains("update-ca-certificates"), "that program would work on this machine: {}", ran.out);
        assert_eq!(shell(home.path(), anchors).await.lines().count(), after, "{verb}");
    }
    let ran = run(home.path(), &["ca", "install", "--system", "--root", "nowhere"]).await;
    assert!(ran.exit == 1 && ran.err.lines().count() == 1, "{ran:?}");
    let ran = run(home.path(), &["ca", "install", "--nss", "--root", "image"]).await;
    assert!(ran.exit == 1 && ran.err.contains("--system"), "{ran:?}");
}

#[tokio::test]
async fn the_manual_page_has_every_subcommand() {
    let home = folder("");
    let ran = run(home.path(), &["man"]).await;
    assert!(ran.exit == 0 && ran.out.starts_with(".ie"), "{ran:?}");
    let help = run(home.path(), &["--help"]).await.out;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = commands.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    for name in names {
        assert!(ran.out.contains(&format!("\n.SH \"ROBOTS-PROXY {}\"", name.to_uppercase())), "{name} is missing");
    }
}
