//! `demo`: the whole job on one machine, without any network.
//!
//! A practice shop over HTTPS on loopback, the real proxy in front of it, and a real HTTP client that asks through it: twelve
//! questions, each of which shows one rule of RFC 9309, then a run at the shop's pace. Everything lives in a folder that is removed
//! at the end.

mod client;
mod shop;

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use serde_json::Value;

use self::client::{Asked, Client};
use self::shop::Shop;
use crate::app::{self, Running};
use crate::audit;
use crate::config::Config;
use crate::policy::identity::Source;

/// `demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Keep shop and proxy running afterwards, so that you can point curl at them
    #[arg(long)]
    pub(crate) stay: bool,
}

/// A question, and what RFC 9309 answers.
struct Question {
    bot: &'static str,
    path: &'static str,
    allowed: bool,
    shows: &'static str,
}

const fn question(bot: &'static str, path: &'static str, allowed: bool, shows: &'static str) -> Question {
    Question { bot, path, allowed, shows }
}

/// What a polite crawler sends as its User-Agent; its product token is NimbuBot.
const USER_AGENT: &str = "Mozilla/5.0 (compatible; NimbuBot/1.0; +https://bazaar.nimbu.test/bot)";

const QUESTIONS: [Question; 11] = [
    question("NimbuBot", "/prices/today", true, "the longer rule wins"),
    question("NimbuBot", "/prices/history", false, "only one rule matches"),
    question("NimbuBot", "/guides/size-chart.pdf", false, "* is anything, $ the end"),
    question("NimbuBot", "/guides/size-chart.pdf?print=1", true, "so here $ does not match"),
    question("NimbuBot", "/offers/weekend", true, "Allow wins a tie"),
    question("NimbuBot", "/drafts/new-range", false, "groups of one bot are merged"),
    question("NimbuBot", "/account/orders", true, "its own group replaces *"),
    question("OtherBot", "/account/orders", false, "no group of its own: *"),
    question("OtherBot", "/products/?sort=price", false, "* within a rule"),
    question("ArchiveBot", "/robots.txt", true, "robots.txt may always be read"),
    question("nimbubot", "/%70rices/history", false, "%70 is the letter p"),
];

/// The twelfth question is asked twice: who takes the whole User-Agent for a name finds no group for it.
const WHOLE: Question = question("(no token)", "/prices/history", true, "a whole User-Agent is no name: *");
const TOLD: Question = question("NimbuBot", "/prices/history", false, "its token read from User-Agent");

/// Requests of the paced run.
const PACED: usize = 4;

pub(crate) async fn run(options: Demo) -> anyhow::Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix("robots-proxy-demo-").tempdir()?;
    let shop = Shop::open(&folder.path().join("shop")).await?;
    let proxy = app::start(settings(&folder.path().join("proxy"), &shop, Source::UserAgent)).await?;
    let client = Client::new(proxy.addresses()[0], proxy.ca())?;
    println!(
        "The practice shop https://{} on {}, behind the proxy on {}.\n",
        shop::HOST,
        shop.address(),
        proxy.addresses()[0]
    );

    println!("Twelve questions, asked by a real client through the real proxy:\n");
    println!("{:10}  {:31} {:8} {:34} {:>7}  shows that", "bot", "path", "decision", "rule (line)", "wait");
    let mut right = true;
    for question in &QUESTIONS {
        right &= ask(&client, &proxy, question, &[("robots-agent", question.bot)]).await?;
    }
    let strict = app::start(settings(&folder.path().join("strict"), &shop, Source::Header)).await?;
    right &=
        ask(&Client::new(strict.addresses()[0], strict.ca())?, &strict, &WHOLE, &[("user-agent", USER_AGENT)]).await?;
    right &= ask(&client, &proxy, &TOLD, &[("user-agent", USER_AGENT)]).await?;
    strict.stop().await;

    println!("\n{PACED} requests of OtherBot at once; the shop asks for 2 s between them:\n");
    right &= paced_run(&client).await?;

    println!("\nThe audit log, one record a request:\n");
    proxy.audit().flush().await;
    print!("{}", std::fs::read_to_string(audit_file(&folder.path().join("proxy")))?);
    println!("\nThe shop saw {} requests, {} of them for robots.txt.", shop.visits(), shop.robots_visits());

    if options.stay {
        stay(&proxy).await?;
    }
    proxy.stop().await;
    println!(
        "{}",
        if right { "Every decision was as RFC 9309 has it." } else { "Some decisions were not as expected." }
    );
    Ok(ExitCode::from(u8::from(!right)))
}

/// The default settings, in a folder of their own, with the way to the shop. `last` is the last source of identity before the default.
fn settings(folder: &Path, shop: &Shop, last: Source) -> app::Settings {
    let mut settings = Config::default().settings_in(folder, folder);
    settings.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()];
    settings.audit.record = audit::Which::All;
    settings.upstream.ca_files = vec![shop.ca_file()];
    settings.upstream.connect_to = vec![shop.connect_to()];
    if last == Source::Header {
        settings.identity.order.retain(|source| *source != Source::UserAgent);
    }
    settings
}

fn audit_file(folder: &Path) -> std::path::PathBuf {
    folder.join("audit.jsonl")
}

/// Asks a question, prints its line of the table, and returns whether the answer was right.
async fn ask(client: &Client, proxy: &Running, question: &Question, headers: &[(&str, &str)]) -> anyhow::Result<bool> {
    let answer = client.get(question.path, headers).await?;
    proxy.audit().flush().await;
    let record = last_record(proxy)?;
    let text = |key: &str| record[key].as_str().unwrap_or_default().to_owned();
    let allowed = answer.status == 200;
    let rule = match record["line"].as_u64() {
        Some(line) => format!("{} ({line})", text("rule")),
        None => "–".to_owned(),
    };
    let wait = record["wait_ms"].as_u64().map_or("–".to_owned(), |wait| format!("{:.1} s", wait as f64 / 1000.0));
    let decision = if allowed { "allowed" } else { "refused" };
    println!("{:10}  {:31} {decision:8} {rule:34} {wait:>7}  {}", question.bot, question.path, question.shows);
    Ok(allowed == question.allowed)
}

fn last_record(proxy: &Running) -> anyhow::Result<Value> {
    let path = proxy.audit().path().context("the demo's audit log is a file")?;
    let log = std::fs::read_to_string(path)?;
    serde_json::from_str(log.lines().last().unwrap_or("null")).context("the last record is not JSON")
}

/// Sends several requests at once, and tells when each was let through.
async fn paced_run(client: &Client) -> anyhow::Result<bool> {
    let paths: Vec<String> = (1..=PACED).map(|page| format!("/products/?page={page}")).collect();
    let headers = [("robots-agent", "OtherBot")];
    let mut answers: Vec<(&String, Asked)> = Vec::new();
    for (path, answer) in
        paths.iter().zip(futures_util::future::join_all(paths.iter().map(|path| client.get(path, &headers))).await)
    {
        answers.push((path, answer?));
    }
    answers.sort_by_key(|(_, answer)| answer.wait_ms);
    for (path, answer) in &answers {
        println!("  {} {path:20} waited {:.1} s", answer.status, answer.wait_ms as f64 / 1000.0);
    }
    Ok(answers.windows(2).all(|pair| pair[1].1.wait_ms >= pair[0].1.wait_ms + 1900))
}

/// Keeps everything running until Ctrl-C.
async fn stay(proxy: &Running) -> anyhow::Result<()> {
    let curl = format!(
        "curl --proxy http://{} --cacert {} -H 'Robots-Agent: NimbuBot'",
        proxy.addresses()[0],
        proxy.ca().certificate_path().display()
    );
    println!("\nStill running, until Ctrl-C. An allowed page, a refused one, and the rules:\n");
    for path in ["/prices/today", "/prices/history", "/robots.txt"] {
        println!("  {curl} https://{}{path}", shop::HOST);
    }
    println!();
    Ok(tokio::signal::ctrl_c().await?)
}
