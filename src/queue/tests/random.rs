//! Random days at the queue: arrivals, hang-ups, answers good and bad, changes of delay and of settings.
//!
//! What must hold on all of them: starts in a line are never closer than the delay in force and in the order of arrival, nothing
//! starts while its host is held, every request starts, is told or leaves, and when all have gone nothing is kept. On days without
//! holds every start is at the very instant that the arithmetic names.

use std::sync::Mutex;

use proptest::prelude::*;

use super::*;

/// Something that happens, `after` the previous thing.
#[derive(Clone, Debug)]
enum Event {
    Arrives {
        bot: usize,
        host: usize,
        patience: Duration,
        stays: Duration,
        answer: Option<Sign>,
        answer_after: Duration,
    },
    DelayChanges {
        host: usize,
        gap: Duration,
    },
    Reload {
        max_queue: usize,
        overlap: bool,
        hold_max: Duration,
    },
}

const BOTS: [&str; 2] = ["Ant", "Bee"];
const HOSTS: [&str; 2] = ["a.test", "b.test"];

fn millis(range: std::ops::Range<u64>) -> impl Strategy<Value = Duration> {
    // Multiples of 20, so that a twentieth of a delay is a whole millisecond, which is how finely timers count.
    range.prop_map(|number| Duration::from_millis(20 * number))
}

fn event() -> impl Strategy<Value = Event> {
    let answer = prop_oneof![
        20 => Just(None),
        1 => Just(sign(429, Some("1"))),
        1 => Just(sign(429, Some("3"))),
        1 => Just(sign(503, Some("2"))),
        1 => Just(sign(429, None)),
        2 => Just(sign(503, None)),
    ];
    let arrives = (0..2usize, 0..2usize, millis(0..1000), prop_oneof![4 => Just(Duration::MAX), 1 => millis(0..200)])
        .prop_flat_map(move |(bot, host, patience, stays)| {
            (answer.clone(), millis(0..30)).prop_map(move |(answer, answer_after)| Event::Arrives {
                bot,
                host,
                patience,
                stays,
                answer,
                answer_after,
            })
        });
    prop_oneof![
        20 => arrives,
        2 => (0..2usize, prop_oneof![Just(Duration::ZERO), millis(0..60)]).prop_map(|(host, gap)| Event::DelayChanges { host, gap }),
        1 => (1..20usize, any::<bool>(), millis(50..500)).prop_map(|(max_queue, overlap, hold_max)| Event::Reload { max_queue, overlap, hold_max }),
    ]
}

/// What is known of all requests.
#[derive(Default)]
struct Log {
    arrived: usize,
    starts: Vec<Started>,
    told: usize,
    left: usize,
}

struct Started {
    line: (usize, usize),
    order: usize,
    at: Instant,
    gap: Duration,
    paced: bool,
}

/// The delays that the hosts ask for now.
type Gaps = Arc<Mutex<[Duration; 2]>>;

/// A request, done as the pipeline does it.
async fn go(queue: Arc<Queue>, gaps: Gaps, log: Arc<Mutex<Log>>, order: usize, event: Event) {
    let Event::Arrives { bot, host: at, patience, stays, answer, answer_after } = event else { return };
    let mut gap = gaps.lock().unwrap()[at];
    let arrival = Arrival { patience, ..arrival(BOTS[bot], HOSTS[at], gap) };
    let Ok(mut place) = queue.arrive(&arrival) else {
        log.lock().unwrap().told += 1;
        return;
    };
    let waiting = async {
        loop {
            place.ready(gap).await?;
            let now_asked = gaps.lock().unwrap()[at];
            if place.is_paced() == Some(true) && std::mem::replace(&mut gap, now_asked) != now_asked {
                continue;
            }
            // Opening a connection.
            tokio::task::yield_now().await;
            if place.may_start(gap) {
                return Ok::<(), Refused>(());
            }
        }
    };
    let ready = tokio::select! {
        ready = waiting => Some(ready),
        () = clock::sleep(stays.min(3600 * SECOND)) => None,
    };
    match ready {
        None => log.lock().unwrap().left += 1,
        Some(Err(refused)) => {
            assert!(matches!(refused, Refused::Held { .. } | Refused::TooLong { .. }), "{refused:?}");
            log.lock().unwrap().told += 1;
        }
        Some(Ok(())) => {
            let paced = place.is_paced() == Some(true);
            assert_eq!(queue.held_until(&host(HOSTS[at])), None, "nothing starts while its host is held");
            let started = Started { line: (bot, at), order, at: clock::now(), gap, paced };
            log.lock().unwrap().starts.push(started);
            let start = place.start();
            clock::sleep(answer_after).await;
            start.answered(answer, None);
        }
    }
}

async fn play(events: Vec<(Duration, Event)>) {
    let queue = Queue::new(Settings::default());
    let gaps: Gaps = Arc::new(Mutex::new([SECOND / 5, Duration::ZERO]));
    let log = Arc::new(Mutex::new(Log::default()));
    let mut requests = Vec::new();
    for (after, event) in events {
        clock::sleep(after).await;
        match event {
            Event::DelayChanges { host, gap } => gaps.lock().unwrap()[host] = gap,
            Event::Reload { max_queue, overlap, hold_max } => {
                queue.reload(Settings { max_queue, overlap, hold_max, ..Settings::default() });
            }
            arrives => {
                log.lock().unwrap().arrived += 1;
                let going = go(Arc::clone(&queue), Arc::clone(&gaps), Arc::clone(&log), requests.len(), arrives);
                requests.push(tokio::spawn(going));
            }
        }
    }
    let all = clock::timeout(3600 * SECOND, join_all(requests)).await.expect("no waiter is forgotten");
    all.into_iter().for_each(|request| request.unwrap());
    clock::sleep(61 * SECOND).await;
    nothing_kept(&queue);
    check(&log.lock().unwrap());
}

fn check(log: &Log) {
    assert_eq!(log.starts.len() + log.told + log.left, log.arrived);
    for bot in 0..2 {
        for host in 0..2 {
            let line: Vec<_> = log.starts.iter().filter(|start| start.line == (bot, host) && start.paced).collect();
            for pair in line.windows(2) {
                let apart = pair[1].at.duration_since(pair[0].at);
                // Where a host asks for no delay, starts are not counted, and a delay begins with the first of its own.
                let had_delay = !pair[0].gap.is_zero();
                assert!(!had_delay || apart >= pair[1].gap, "{apart:?} apart, {:?} in force", pair[1].gap);
                assert!(pair[1].order > pair[0].order, "out of order");
            }
        }
    }
}

/// With one delay, instant answers and nobody who complains, every start is where the arithmetic puts it: no slot is lost.
async fn play_plainly(arrivals: Vec<(Duration, Option<Duration>)>, gap: Duration) {
    let (queue, mut expected, mut requests) = (Queue::new(Settings::default()), Vec::new(), Vec::new());
    let mut waiting: Vec<(Instant, Option<Instant>)> = Vec::new();
    for (after, stays) in arrivals {
        clock::sleep(after).await;
        let leaves = stays.map(|stays| clock::now() + stays);
        waiting.push((clock::now(), leaves));
        let queue = Arc::clone(&queue);
        requests.push(tokio::spawn(async move {
            let mut place = queue
                .arrive(&Arrival { patience: Duration::from_secs(3600), ..arrival("Bot", "a.test", gap) })
                .unwrap();
            tokio::select! {
                biased;
                ready = place.ready(gap) => ready.unwrap(),
                () = clock::sleep(stays.unwrap_or(36_000 * SECOND)) => return None,
            }
            place.start().answered(None, None);
            Some(clock::now())
        }));
        tokio::task::yield_now().await;
    }
    let mut next: Option<Instant> = None;
    for (arrived, leaves) in waiting {
        let slot = next.map_or(arrived, |next| next.max(arrived));
        let starts = leaves.is_none_or(|leaves| slot <= leaves);
        expected.push(starts.then_some(slot));
        if starts {
            next = Some(slot + gap);
        }
    }
    let got: Vec<_> = join_all(requests).await.into_iter().map(Result::unwrap).collect();
    for (got, expected) in got.iter().zip(&expected) {
        // Who leaves at the very instant of its slot may do either.
        assert_eq!(got, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn on_any_day_the_pace_is_kept_and_nobody_is_forgotten(events in prop::collection::vec((millis(0..20), event()), 1..80)) {
        paused(play(events));
    }

    #[test]
    fn no_slot_is_lost(arrivals in prop::collection::vec((millis(0..50), prop::option::weighted(0.3, millis(0..100).prop_map(|stays| stays + Duration::from_millis(1)))), 1..60), gap in millis(1..50)) {
        paused(play_plainly(arrivals, gap));
    }
}

fn paused(day: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(day);
}
