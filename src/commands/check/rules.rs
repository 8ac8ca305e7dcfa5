//! What `check` decides by: a file, a URL, a kept copy of some time, or the robots.txt of each origin.

use std::cell::Cell;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, bail};

use super::Check;
use crate::clock;
use crate::commands::evidence;
use crate::config::Loaded;
use crate::lookup::copy::{self, Copy, Judged};
use crate::lookup::fetch::RobotsFetch;
use crate::lookup::{self, Lookup};
use crate::policy::explained::{self, FileNotes};
use crate::policy::standing::{Effect, Evidence, Standing};
use crate::policy::target::{Origin, Target};
use crate::policy::typed;
use crate::proxy::socket::Listen;
use crate::robots::RobotsTxt;
use crate::upstream::{Speech, Upstream};

/// A standing, with what is told of its file.
pub(super) struct Known {
    pub(super) standing: Arc<Standing>,
    pub(super) notes: FileNotes,
    told: Cell<bool>,
}

impl Known {
    fn of(standing: Arc<Standing>) -> Known {
        let notes = FileNotes::of(&standing);
        Known { standing, notes, told: Cell::new(false) }
    }

    /// The rules, where there are any.
    pub(super) fn robots(&self) -> Option<&RobotsTxt> {
        explained::rules(&self.standing)
    }

    /// True once: what is told of the file need not be told for each URL.
    pub(super) fn first_use(&self) -> bool {
        !self.told.replace(true)
    }
}

/// Where the rules come from.
pub(super) enum Rules {
    /// The same for all URLs.
    Given(Box<Known>),
    /// Those of each origin, remembered.
    Fetched(Lookup, HashMap<Origin, Known>),
}

impl Rules {
    pub(super) async fn of(config: Option<&Path>, options: &Check) -> anyhow::Result<Rules> {
        let given = match (&options.robots, options.at) {
            (Some(_), Some(_)) => bail!("--robots and --at exclude each other"),
            (Some(place), None) if place.contains("://") => from_url(config, place).await?,
            (Some(file), None) => from_file(Path::new(file))?,
            (None, Some(time)) => from_store(config, options, time.into())?,
            (None, None) => return Ok(Rules::Fetched(lookup(config)?, HashMap::new())),
        };
        Ok(Rules::Given(Box::new(Known::of(Arc::new(given)))))
    }

    /// What holds at an origin.
    pub(super) async fn at(&mut self, origin: &Origin) -> &Known {
        match self {
            Rules::Given(known) => known,
            Rules::Fetched(lookup, known) => {
                if !known.contains_key(origin) {
                    known.insert(origin.clone(), Known::of(lookup.standing(origin, Speech::Http2).await));
                }
                &known[origin]
            }
        }
    }
}

fn fetch(config: Option<&Path>) -> anyhow::Result<(RobotsFetch, lookup::Settings)> {
    let settings = Loaded::load(config)?.settings();
    let upstream = Upstream::new(&settings.upstream)?;
    // What the proxy would not connect to is not connected to here.
    upstream.listening_on(settings.listen.iter().filter_map(Listen::address).collect());
    Ok((RobotsFetch::new(settings.fetch, upstream, None), settings.lookup))
}

fn lookup(config: Option<&Path>) -> anyhow::Result<Lookup> {
    let (fetch, settings) = fetch(config)?;
    Ok(Lookup::new(settings, Arc::new(fetch), None))
}

async fn from_url(config: Option<&Path>, place: &str) -> anyhow::Result<Standing> {
    let (fetch, settings) = fetch(config)?;
    let (origin, path) = typed::split(place)?;
    let target = Target { origin, path: path.parse().with_context(|| format!("{place:?} cannot be asked for"))? };
    let outcome = fetch.fetch_from(target, Speech::Http2, None).await;
    match copy::judge(&settings, place.to_owned(), false, outcome, clock::wall()) {
        Judged::Good(copy, body) => Ok(standing(&copy, &body, &settings)),
        Judged::Bad { failure, .. } => bail!("{place}: {failure}"),
        Judged::Confirmed(_) => bail!("{place} answered 304, although it was not asked whether anything has changed"),
    }
}

fn from_file(file: &Path) -> anyhow::Result<Standing> {
    let mut body = Vec::new();
    match file == Path::new("-") {
        true => std::io::stdin().read_to_end(&mut body).context("cannot read robots.txt from standard input")?,
        false => std::fs::File::open(file)
            .and_then(|mut file| file.read_to_end(&mut body))
            .with_context(|| format!("cannot read {}", file.display()))?,
    };
    let robots = RobotsTxt::parse(&body);
    let name = if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() };
    let evidence = Evidence { truncated: robots.is_truncated(), ..copy::no_evidence(name, clock::wall()) };
    Ok(holding(Effect::Rules(Arc::new(robots)), evidence))
}

/// The copy that was in force at a time, as the store has it.
fn from_store(config: Option<&Path>, options: &Check, time: SystemTime) -> anyhow::Result<Standing> {
    let settings = Loaded::load(config)?.settings();
    let origin = match (&options.origin, options.urls.first()) {
        (Some(origin), _) => typed::origin(origin.trim_end_matches('/'))?,
        (None, Some(first)) if first != "-" => typed::split(first)?.0,
        _ => bail!("--at wants --origin where URLs come from standard input"),
    };
    let found = evidence::copy(&settings.state_dir, &origin, Some(time))?;
    let told = found.with_context(|| format!("no copy of {origin} is kept from {}", clock::rfc3339(time)))?;
    let body = told.body().with_context(|| format!("the text of that copy of {origin} is kept no more"))?;
    Ok(standing(&told.copy, &body, &settings.lookup))
}

fn standing(copy: &Copy, body: &[u8], settings: &lookup::Settings) -> Standing {
    holding(copy.effect(body, settings), copy.evidence())
}

fn holding(effect: Effect, evidence: Evidence) -> Standing {
    Standing { effect, evidence: Arc::new(evidence), stale: false, failure: None, ask_again_at: clock::now() }
}
