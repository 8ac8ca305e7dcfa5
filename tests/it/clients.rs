//! The matrix: real clients of many languages behind the proxy, each with the very lines that docs/clients.md gives to its users.
//!
//! What a client is and what its user types stands in tests/clients/clients.toml, its program beside it. Each client has a proxy and
//! sites of its own, and is asked for everything in the table; what came of it is docs/clients.md. `CLIENTS=curl,Ruby` tries these alone.

mod page;
mod stage;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use stage::{CRAWL_DELAY, LARGE, RULE, Stage};

/// A client, as clients.toml describes it.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Client {
    name: String,
    program: Option<String>,
    #[serde(default)]
    setup: String,
    run: String,
    #[serde(default = "open_page")]
    page: String,
    #[serde(default = "open_page_text")]
    finds: String,
    #[serde(default)]
    single: bool,
    large: Option<String>,
    user_agent: Option<String>,
    user: Option<String>,
    #[serde(default)]
    notes: Vec<String>,
    #[serde(default)]
    cannot: BTreeMap<Cell, String>,
}

fn open_page() -> String {
    "/open".to_owned()
}

fn open_page_text() -> String {
    "page /open".to_owned()
}

/// What is asked of each client: the columns of the table.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "kebab-case")]
enum Cell {
    Allowed,
    Refused,
    Paced,
    Redirect,
    Large,
    Header,
    UserAgent,
    User,
}

const CELLS: [Cell; 8] =
    [Cell::Allowed, Cell::Refused, Cell::Paced, Cell::Redirect, Cell::Large, Cell::Header, Cell::UserAgent, Cell::User];

/// What came of a cell.
enum Outcome {
    Yes,
    /// It works where the proxy asks for it: a client that keeps its password until a 407 comes.
    IfAsked,
    Cannot,
}

/// A row of the table, and what the client showed of the refusal.
struct Row {
    client: Client,
    outcomes: BTreeMap<Cell, Outcome>,
    refusal: String,
}

#[derive(Deserialize)]
struct Clients {
    client: Vec<Client>,
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_obeys_with_the_lines_that_its_users_are_given() {
    let Clients { client: mut clients } =
        toml::from_str(&std::fs::read_to_string(programs().join("clients.toml")).unwrap()).unwrap();
    let chosen = std::env::var("CLIENTS").ok();
    if let Some(chosen) = &chosen {
        clients.retain(|client| chosen.split(',').any(|name| client.name.contains(name)));
    }
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for client in clients {
        let name = client.name.clone();
        let started = robots_proxy::clock::now();
        let (row, failed) = try_client(client).await;
        println!("{name}: {:.1} s", (robots_proxy::clock::now() - started).as_secs_f32());
        failures.extend(failed.into_iter().map(|failed| format!("== {name}, {failed}")));
        rows.push(row);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    if chosen.is_none() {
        page::compare(&rows);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_client_hides_the_page_rule_and_line_stand_beside_the_status() {
    let stage = Stage::set(false).await;
    let clients: Clients = toml::from_str(&std::fs::read_to_string(programs().join("clients.toml")).unwrap()).unwrap();
    for (name, run) in [
        ("wget", "wget -nv -O - --ca-certificate=ca.pem --header='Robots-Agent: NimbuBot' URL"),
        ("curl", "curl -sSLf -w '%header{proxy-status}\\n' -H 'Robots-Agent: NimbuBot' URL"),
        ("curl", "curl -sSL --fail-with-body -H 'Robots-Agent: NimbuBot' URL"),
        ("curl", "curl -s -I --http1.1 -H 'Robots-Agent: NimbuBot' URL"),
    ] {
        let client = clients.client.iter().find(|client| client.name == name).unwrap();
        refused(&Client { run: run.to_owned(), ..client.clone() }, &stage, "/private").await.unwrap();
    }
}

async fn try_client(client: Client) -> (Row, Vec<String>) {
    let stage = Stage::set(false).await;
    let mut row = Row { client, outcomes: BTreeMap::new(), refusal: String::new() };
    let mut failures = Vec::new();
    for cell in CELLS {
        let outcome = match row.client.cannot.get(&cell) {
            Some(_) => Ok(Outcome::Cannot),
            None => try_cell(&mut row, &stage, cell).await,
        };
        match outcome {
            Ok(outcome) => drop(row.outcomes.insert(cell, outcome)),
            Err(what) => failures.push(format!("{cell:?}: {what}")),
        }
    }
    (row, failures)
}

async fn try_cell(row: &mut Row, stage: &Stage, cell: Cell) -> Result<Outcome, String> {
    let client = &row.client;
    match cell {
        Cell::Allowed => allowed(client, stage).await,
        Cell::Refused => {
            row.refusal = refused(client, stage, "/private").await?;
            Ok(Outcome::Yes)
        }
        Cell::Paced => paced(client, stage).await,
        Cell::Redirect => refused(client, stage, "/moved").await.map(|_| Outcome::Yes),
        Cell::Large => large(client, stage).await,
        Cell::Header => identified(client, stage, &client.run, ("NimbuBot", "header")).await,
        Cell::UserAgent => {
            let run = client.run.replace("Robots-Agent: NimbuBot", "User-Agent: NimbuBot/1.0");
            identified(client, stage, client.user_agent.as_ref().unwrap_or(&run), ("NimbuBot", "user-agent")).await
        }
        Cell::User => user(client, stage).await,
    }
}

/// Shows a page of both schemes.
async fn allowed(client: &Client, stage: &Stage) -> Result<Outcome, String> {
    for site in ["https://shop.nimbu.test", "http://plain.nimbu.test"] {
        let said = stage.run(client, &client.run, &[&format!("{site}{}", client.page)]).await;
        holds(said.contains(&client.finds), "the page is not shown", &said)?;
    }
    Ok(Outcome::Yes)
}

/// Shows why a page was refused, over both schemes, and the site saw nothing of it. What was shown is yielded.
async fn refused(client: &Client, stage: &Stage, folder: &str) -> Result<String, String> {
    let mut shown = String::new();
    for site in ["http://plain.nimbu.test", "https://shop.nimbu.test"] {
        shown = stage.run(client, &client.run, &[&format!("{site}{folder}{}", client.page)]).await;
        holds(shown.contains(RULE), "the rule is not shown", &shown)?;
        holds(shown.contains("line 6") || shown.contains("line: 6"), "its line is not shown", &shown)?;
    }
    let paths = [stage.shop.paths(), stage.plain.paths()].concat();
    holds(!paths.iter().any(|path| path.starts_with("/private")), "the site was asked", &paths.join(" "))?;
    Ok(shown)
}

/// Its requests arrive at the site's pace. A client that takes one URL follows redirects, or asks for several files of its own.
async fn paced(client: &Client, stage: &Stage) -> Result<Outcome, String> {
    let urls: Vec<String> = match client.single && client.page == open_page() {
        true => vec!["https://slow.nimbu.test/again/and/again".to_owned()],
        false if client.single => vec![format!("https://slow.nimbu.test{}", client.page)],
        false => (1..=3).map(|number| format!("https://slow.nimbu.test/open/{number}")).collect(),
    };
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let said = stage.run(client, &client.run, &urls).await;
    // The icon of a site is part of a page, and waits for nothing.
    let pages = stage.slow.pages().into_iter().filter(|visit| visit.path != "/favicon.ico");
    let starts: Vec<_> = pages.map(|visit| visit.at).collect();
    let gaps: Vec<Duration> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    holds(!gaps.is_empty() && (client.single || gaps.len() == 2), "not everything was asked for", &said)?;
    let paced = gaps.iter().all(|gap| *gap >= CRAWL_DELAY - stage::TOLERANCE);
    holds(paced, "too fast", &format!("{gaps:?}"))?;
    Ok(Outcome::Yes)
}

/// Gets 20 MiB in full.
async fn large(client: &Client, stage: &Stage) -> Result<Outcome, String> {
    let url = match client.page == open_page() {
        true => "https://shop.nimbu.test/large.txt".to_owned(),
        false => format!("https://shop.nimbu.test{}", client.page),
    };
    let said = stage.run(client, client.large.as_ref().unwrap_or(&client.run), &[&url]).await;
    let start: String = said.chars().take(2000).collect();
    holds(said.contains(LARGE.as_str()), &format!("{} octets came", said.len()), &start)?;
    Ok(Outcome::Yes)
}

/// The record of what it did names the bot, and how it was told.
async fn identified(client: &Client, stage: &Stage, run: &str, want: (&str, &str)) -> Result<Outcome, String> {
    let site = stage.fresh_site();
    let said = stage.run(client, run, &[&format!("{site}{}", client.page)]).await;
    holds(said.contains(&client.finds), "the page is not shown", &said)?;
    let record = stage.record_of(&site).await;
    let got = (record["agent"].as_str().unwrap_or_default(), record["agent_source"].as_str().unwrap_or_default());
    holds(got == want, &format!("{got:?} was told"), &said)?;
    Ok(Outcome::Yes)
}

/// Its user of the proxy is known, unasked or with a password that is asked for.
async fn user(client: &Client, stage: &Stage) -> Result<Outcome, String> {
    let run = stage::with_user(client.user.as_ref().unwrap_or(&client.run));
    let with_user = Client { setup: stage::with_user(&client.setup), run, ..client.clone() };
    let mapped = ("MappedBot", "map");
    if identified(&with_user, stage, &with_user.run, mapped).await.is_ok() {
        return Ok(Outcome::Yes);
    }
    let guarded = Stage::set(true).await;
    identified(&with_user, &guarded, &with_user.run, mapped).await.map(|_| Outcome::IfAsked)
}

fn holds(holds: bool, what: &str, said: &str) -> Result<(), String> {
    let said: String = said.chars().take(3000).collect();
    if holds { Ok(()) } else { Err(format!("{what}:\n{said}")) }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where the programs of the clients are.
fn programs() -> PathBuf {
    root().join("tests/clients")
}
