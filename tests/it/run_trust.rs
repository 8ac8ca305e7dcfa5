//! `run --java` and `run --browser`: clients that have a trust store of their own.

use std::path::Path;

use super::run::{ALLOWED, REFUSED, home, run_with, shop};
use super::support::origin::{Origin, Reply};

/// The client of Java's own library, from one source file.
const MAIN: &str = "import java.net.URI;\nimport java.net.http.*;\n\
    public class Main { public static void main(String[] urls) throws Exception { for (var url : urls) {\n\
    var request = HttpRequest.newBuilder(URI.create(url)).build();\n\
    var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());\n\
    System.out.println(System.getProperty(\"own\") + \" \" + answer.statusCode() + \" \" + answer.body());\n} } }\n";

#[tokio::test]
async fn java_asks_through_the_proxy_and_trusts_it() {
    let shop = shop().await;
    let home = home(&shop, "");
    std::fs::write(home.path().join("Main.java"), MAIN).unwrap();
    // The user's certificates are in Java's store as well: what is passed through is vouched for by them alone.
    let roots = home.path().join("roots.pem");
    let own = [("JAVA_TOOL_OPTIONS", "-Down=kept"), ("SSL_CERT_FILE", roots.to_str().unwrap())];
    let words = ["java", "Main.java", ALLOWED, REFUSED, "https://through.nimbu.test/offers"];
    let ran = run_with(home.path(), &own, &["--java"], &words).await;
    let lines: Vec<&str> = ran.out.lines().filter(|line| line.starts_with("kept ")).collect();
    assert_eq!(lines.len(), 3, "{ran:?}");
    assert_eq!(lines[0], "kept 200 page /prices/today");
    assert!(lines[1].starts_with("kept 403 ") && lines[1].contains("line 10 of"), "{}", lines[1]);
    assert_eq!(lines[2], "kept 200 page /offers");

    let ran = run_with(home.path(), &[], &[], &["java", "Main.java", ALLOWED]).await;
    assert!(ran.err.contains("nothing came through the proxy") && ran.err.contains("run --java"), "{}", ran.err);
}

/// The options of a quiet Chromium; it finds the proxy through its environment.
fn chromium<'a>(profile: &'a str, url: &'a str) -> Vec<&'a str> {
    let quiet =
        ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"];
    let silent = ["--disable-background-networking", "--disable-component-update", "--disable-sync"];
    [&["chromium"][..], &quiet, &silent, &[profile, "--dump-dom", url]].concat()
}

#[tokio::test]
async fn chromium_asks_through_the_proxy_and_trusts_it_while_the_users_own_home_stays_as_it_is() {
    let shop = Origin::https(|visit| {
        Reply::with(
            200,
            &[("content-type", "text/html")],
            match visit.is_robots() {
                true => super::support::SHOP_ROBOTS.to_owned(),
                false => format!("<p>page {}", visit.path),
            },
        )
    });
    let shop = shop.await;
    let home = home(&shop, "");
    std::fs::write(home.path().join("notes"), "kept").unwrap();
    let profile = format!("--user-data-dir={}", home.path().join("profile").display());
    let ran = run_with(home.path(), &[], &["--browser"], &chromium(&profile, ALLOWED)).await;
    assert!(ran.out.contains("page /prices/today"), "{ran:?}");
    let ran = run_with(home.path(), &[], &["--browser"], &chromium(&profile, REFUSED)).await;
    assert!(ran.out.contains("<h1>Disallowed by robots.txt</h1>") && ran.out.contains("line 10"), "{ran:?}");
    assert!(ran.err.contains(" refused"), "{}", ran.err);
    assert!(!home.path().join(".pki").exists(), "nothing of the user's trusts the CA");

    let script = "cat ~/notes; echo new > ~/made; certutil -d sql:$HOME/.pki/nssdb -L | grep -c 'robots-proxy run *C,,'; \
        certutil -d sql:$(echo $HOME/.mozilla/firefox/run) -L | grep -c 'robots-proxy run *C,,'";
    let ran = run_with(home.path(), &[], &["--browser"], &["sh", "-c", script]).await;
    assert_eq!(ran.out, "kept1\n1\n", "{ran:?}");
    assert_eq!(std::fs::read_to_string(home.path().join("made")).unwrap(), "new\n", "it is in the real home");
}

#[tokio::test]
async fn the_certificates_of_the_users_own_browser_are_kept_in_the_copy() {
    let shop = shop().await;
    let home = home(&shop, "");
    let own = "mkdir -p .pki/nssdb; certutil -d sql:$PWD/.pki/nssdb -N --empty-password; \
        certutil -d sql:$PWD/.pki/nssdb -A -t C,, -n own -i roots.pem";
    shell(home.path(), own).await;
    let script = "certutil -d sql:$HOME/.pki/nssdb -L | grep -cE '(own|robots-proxy run) *C,,'";
    let ran = run_with(home.path(), &[], &["--browser"], &["sh", "-c", script]).await;
    assert_eq!(ran.out, "2\n", "{ran:?}");
    assert_eq!(
        shell(home.path(), "certutil -d sql:$PWD/.pki/nssdb -L | grep -c C,,").await,
        "1\n",
        "the user's own is as it was"
    );
}

/// What a shell script prints.
async fn shell(folder: &Path, script: &str) -> String {
    let output = tokio::process::Command::new("sh").args(["-c", script]).current_dir(folder).output();
    let output = super::support::in_time("a script", output).await.unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}
