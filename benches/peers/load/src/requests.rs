//! Requests as fast as they are answered, for some seconds or up to a number; and what they took, the proxy's processor time included.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use futures_util::future::join_all;
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::Error;
use crate::connection::{self, Connection, in_time};
use crate::processes;
use crate::route::Checked;

#[derive(Args)]
pub struct Plan {
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// What is made anew for each request
    #[arg(long, value_enum, default_value_t = Fresh::Nothing)]
    fresh: Fresh,
    /// The number of the first host
    #[arg(long, default_value_t = 0)]
    first_host: u64,
    /// How long to go on before anything is counted, in seconds
    #[arg(long, default_value_t = 0.0)]
    warm_up: f64,
    /// How long to count
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// Ends after so many requests
    #[arg(long, default_value_t = u64::MAX)]
    number: u64,
    /// The processes of the proxy
    #[arg(long, value_delimiter = ',')]
    processes: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Fresh {
    Nothing,
    Connection,
    Host,
}

/// What is printed.
#[derive(Serialize)]
struct Outcome {
    /// Counted.
    requests: u64,
    /// All, those before and after the count included.
    started: u64,
    errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    seconds: f64,
    octets: u64,
    p50_us: f64,
    p99_us: f64,
    /// Processor time of the proxy.
    cpu_seconds: f64,
    /// Processor time of this program.
    client_cpu_seconds: f64,
}

struct Run {
    route: Checked,
    plan: Plan,
    counted: Cell<bool>,
    over: Cell<bool>,
    started: Cell<u64>,
    tally: RefCell<Tally>,
}

struct Tally {
    /// In nanoseconds.
    times: Histogram<u64>,
    octets: u64,
    errors: u64,
    error: Option<String>,
}

pub async fn run(route: Checked, plan: Plan) -> Result<String, Error> {
    let tally = Tally { times: Histogram::new_with_bounds(1, 60_000_000_000, 3)?, octets: 0, errors: 0, error: None };
    let run = Run {
        route,
        plan,
        counted: Cell::new(false),
        over: Cell::new(false),
        started: Cell::new(0),
        tally: tally.into(),
    };
    let run = Rc::new(run);
    let workers = join_all((0..run.plan.connections).map(|_| work(Rc::clone(&run))));
    let (outcome, _) = tokio::join!(watch(&run), async {
        workers.await;
        run.over.set(true);
    });
    Ok(serde_json::to_string(&outcome)?)
}

/// Counts from the end of the warm-up to the end of the time, or of the work.
async fn watch(run: &Run) -> Outcome {
    let pause = |seconds: f64| tokio::time::sleep(Duration::from_secs_f64(seconds));
    if run.plan.warm_up > 0.0 {
        // A pause of nothing is one of a millisecond, in which a short run is over.
        pause(run.plan.warm_up).await;
    }
    run.counted.set(true);
    let cpu = || (processes::cpu_seconds(&run.plan.processes), processes::cpu_seconds(&[std::process::id()]));
    let (before, began) = (cpu(), Instant::now());
    let end = began + Duration::from_secs_f64(run.plan.seconds);
    while Instant::now() < end && !run.over.get() {
        pause(0.005).await;
    }
    run.counted.set(false);
    run.over.set(true);
    let (after, seconds) = (cpu(), began.elapsed().as_secs_f64());
    let tally = run.tally.borrow();
    let quantile = |share: f64| tally.times.value_at_quantile(share) as f64 / 1000.0;
    Outcome {
        requests: tally.times.len(),
        started: run.started.get(),
        errors: tally.errors,
        error: tally.error.clone(),
        seconds,
        octets: tally.octets,
        p50_us: quantile(0.5),
        p99_us: quantile(0.99),
        cpu_seconds: after.0 - before.0,
        client_cpu_seconds: after.1 - before.1,
    }
}

/// A connection after the other, for as long as the run goes on.
async fn work(run: Rc<Run>) {
    while run.goes_on() {
        let connected = match run.route.streams {
            Some(streams) => on_http2(&run, streams).await,
            None => on_http1(&run).await,
        };
        if let Err(error) = connected {
            run.failed(&error);
            // A proxy that is gone must not be asked in a tight loop.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn on_http1(run: &Run) -> Result<(), Error> {
    let mut kept: Option<Connection> = None;
    while let Some(number) = run.next() {
        let began = Instant::now();
        let octets = in_time(async {
            loop {
                let mut connection = match kept.take() {
                    Some(connection) => connection,
                    None => Connection::open(&run.route, &run.host(number)).await?,
                };
                if let Some(octets) = connection.request().await? {
                    kept = Some(connection).filter(|kept| run.plan.fresh == Fresh::Nothing && !kept.is_closed);
                    return Ok(octets);
                }
            }
        });
        run.answered(began, octets.await?);
    }
    Ok(())
}

async fn on_http2(run: &Run, streams: usize) -> Result<(), Error> {
    let host = run.host(0);
    let sender = in_time(connection::open_http2(&run.route, &host)).await?;
    let stream = || async {
        while run.next().is_some() {
            let began = Instant::now();
            run.answered(began, in_time(connection::request_http2(&sender, &run.route, &host)).await?);
        }
        Ok(())
    };
    join_all((0..streams).map(|_| stream())).await.into_iter().collect()
}

impl Run {
    fn goes_on(&self) -> bool {
        !self.over.get() && self.started.get() < self.plan.number
    }

    /// The number of the next request, if there is to be one.
    fn next(&self) -> Option<u64> {
        self.goes_on().then(|| self.started.replace(self.started.get() + 1))
    }

    fn host(&self, number: u64) -> String {
        let number = if self.plan.fresh == Fresh::Host { number } else { 0 };
        self.route.host(self.plan.first_host + number)
    }

    fn answered(&self, began: Instant, octets: u64) {
        if self.counted.get() {
            let tally = &mut *self.tally.borrow_mut();
            tally.times.saturating_record(began.elapsed().as_nanos() as u64);
            tally.octets += octets;
        }
    }

    fn failed(&self, error: &Error) {
        let tally = &mut *self.tally.borrow_mut();
        tally.errors += 1;
        tally.error.get_or_insert_with(|| error.to_string());
    }
}
