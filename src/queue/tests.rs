//! The queue in paused time: hours of it in an instant.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::{HeaderMap, StatusCode};

use super::*;

mod random;

const SECOND: Duration = Duration::from_secs(1);

fn host(name: &str) -> Host {
    Host::parse(name).unwrap()
}

/// A request of a bot at a host, as curl sends it.
fn arrival(bot: &str, at: &str, gap: Duration) -> Arrival {
    Arrival {
        visitor: Visitor::new(None, [127, 0, 0, 1].into(), &bot.parse().unwrap()),
        host: host(at),
        gap: Some(gap),
        patience: 120 * SECOND,
        load: Load::Alone,
        page: None,
    }
}

fn sign(status: u16, retry_after: Option<&str>) -> Option<Sign> {
    let fields = retry_after.map(|value| (http::header::RETRY_AFTER, value.parse().unwrap()));
    Sign::read(StatusCode::from_u16(status).unwrap(), &HeaderMap::from_iter(fields), clock::wall)
}

/// Starts a request and sees its answer at once; returns when it started, in milliseconds.
async fn request(queue: &Arc<Queue>, arrival: Arrival, began: Instant) -> u128 {
    let gap = arrival.gap.unwrap();
    let mut place = queue.arrive(&arrival).unwrap();
    place.ready(gap).await.unwrap();
    place.start().answered(None, None);
    clock::now().duration_since(began).as_millis()
}

fn nothing_kept(queue: &Queue) {
    assert_eq!(queue.lines(None), []);
    assert_eq!(queue.lock().lines.kept(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn starts_are_a_gap_apart_and_in_order_of_arrival() {
    let (queue, began) = (Queue::new(Settings::default()), clock::now());
    let starts = join_all((0..5).map(|_| request(&queue, arrival("Bot", "a.test", SECOND), began))).await;
    assert_eq!(starts, [0, 1000, 2000, 3000, 4000]);
}

#[tokio::test(start_paused = true)]
async fn another_host_or_bot_is_not_delayed() {
    let (queue, began) = (Queue::new(Settings::default()), clock::now());
    let arrivals = [("Bot", "a.test"), ("bot", "a.test"), ("Bot", "b.test"), ("Other", "a.test")];
    let starts = join_all(arrivals.map(|(bot, at)| request(&queue, arrival(bot, at, SECOND), began))).await;
    assert_eq!(starts, [0, 1000, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn bots_that_share_a_line_wait_for_each_other_each_with_its_own_delay() {
    let settings = Settings { shared: Shared::Host, ..Settings::default() };
    let (queue, began) = (Queue::new(settings), clock::now());
    let arrivals = [("A", SECOND), ("B", 5 * SECOND), ("A", SECOND), ("B", 5 * SECOND)];
    let places = arrivals.map(|(bot, gap)| queue.arrive(&arrival(bot, "a.test", gap)).unwrap());
    let predicted = queue.lock().lines.predict(&LineKey::new(&host("a.test"), None), SECOND, None, began) - began;
    assert_eq!(predicted, 12 * SECOND, "the delays of all in front");
    drop(places);
    let starts = join_all(arrivals.map(|(bot, gap)| request(&queue, arrival(bot, "a.test", gap), began))).await;
    assert_eq!(starts, [0, 5000, 6000, 11_000]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_leaves_costs_nobody_a_slot() {
    let (queue, began) = (Queue::new(Settings::default()), clock::now());
    request(&queue, arrival("Bot", "a.test", SECOND), began).await;
    let places: Vec<Place> = (0..3).map(|_| queue.arrive(&arrival("Bot", "a.test", SECOND)).unwrap()).collect();
    let last = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { request(&queue, arrival("Bot", "a.test", SECOND), began).await }
    });
    tokio::task::yield_now().await;
    drop(places);
    assert_eq!(last.await.unwrap(), 1000);
}

#[tokio::test(start_paused = true)]
async fn the_next_start_waits_for_the_head_of_the_previous_answer() {
    for (overlap, answer_after, next_start) in [(false, 5, 5000), (true, 5, 1000), (false, 90, 30_000)] {
        let (queue, began) = (Queue::new(Settings { overlap, ..Settings::default() }), clock::now());
        let start = queue.arrive(&arrival("Bot", "a.test", SECOND)).unwrap().start();
        tokio::spawn(async move {
            clock::sleep(answer_after * SECOND).await;
            start.answered(None, None);
        });
        assert_eq!(request(&queue, arrival("Bot", "a.test", SECOND), began).await, next_start, "overlap {overlap}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_line_is_kept_while_an_answer_is_waited_for() {
    let (queue, began) = (Queue::new(Settings::default()), clock::now());
    let start = queue.arrive(&arrival("Bot", "a.test", SECOND)).unwrap().start();
    clock::sleep(3 * SECOND).await;
    tokio::spawn(async move {
        clock::sleep(5 * SECOND).await;
        drop(start);
    });
    assert_eq!(request(&queue, arrival("Bot", "a.test", SECOND), began).await, 8000);
}

#[tokio::test(start_paused = true)]
async fn bypass_e5_who_would_wait_too_long_is_told_on_arrival_and_each_a_gap_later() {
    let queue = Queue::new(Settings { max_queue: 3, ..Settings::default() });
    let patient_for = |patience| Arrival { patience, ..arrival("Bot", "a.test", SECOND) };
    let refused = |patience| queue.arrive(&patient_for(patience)).unwrap_err();
    drop(queue.arrive(&patient_for(SECOND)).unwrap().start());
    let _one = queue.arrive(&patient_for(SECOND)).unwrap();
    assert_eq!(refused(SECOND), Refused::TooLong { wait: 2 * SECOND, retry_after: 2 * SECOND });
    assert_eq!(refused(SECOND), Refused::TooLong { wait: 2 * SECOND, retry_after: 3 * SECOND });
    let _two = queue.arrive(&patient_for(2 * SECOND)).unwrap();
    let _three = queue.arrive(&patient_for(60 * SECOND)).unwrap();
    assert_eq!(refused(60 * SECOND), Refused::Full { retry_after: 6 * SECOND });
    assert_eq!(queue.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_start_begins_the_count_of_refusals_anew() {
    let queue = Queue::new(Settings::default());
    let impatient = || Arrival { patience: SECOND, ..arrival("Bot", "a.test", 10 * SECOND) };
    let began = clock::now();
    let retry_after = || match queue.arrive(&impatient()).unwrap_err() {
        Refused::TooLong { retry_after, .. } => retry_after.as_secs(),
        other => panic!("{other:?}"),
    };
    request(&queue, impatient(), began).await;
    assert_eq!([retry_after(), retry_after(), retry_after()], [10, 20, 30]);
    clock::sleep(10 * SECOND).await;
    request(&queue, impatient(), began).await;
    assert_eq!([retry_after(), retry_after()], [10, 20]);
}

#[tokio::test(start_paused = true)]
async fn a_host_without_a_delay_has_no_line() {
    let queue = Queue::new(Settings::default());
    let mut place = queue.arrive(&arrival("Bot", "a.test", Duration::ZERO)).unwrap();
    place.ready(Duration::ZERO).await.unwrap();
    assert!(place.is_paced().is_none() && place.start().waited().is_zero());
    nothing_kept(&queue);
}

#[tokio::test(start_paused = true)]
async fn a_changed_delay_holds_from_the_next_start() {
    let (queue, began) = (Queue::new(Settings::default()), clock::now());
    request(&queue, arrival("Bot", "a.test", 10 * SECOND), began).await;
    assert_eq!(request(&queue, arrival("Bot", "a.test", 3 * SECOND), began).await, 3000);
    let mut place = queue.arrive(&arrival("Bot", "a.test", 3 * SECOND)).unwrap();
    place.ready(3 * SECOND).await.unwrap();
    assert!(!place.may_start(10 * SECOND), "a longer one, read at the head of the line");
    place.ready(10 * SECOND).await.unwrap();
    assert_eq!(clock::now().duration_since(began), 13 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn the_way_to_the_origin_does_not_shorten_the_gap() {
    let (queue, began) = (Queue::new(Settings::default()), clock::now());
    let start = queue.arrive(&arrival("Bot", "a.test", SECOND)).unwrap().start();
    clock::sleep(SECOND / 50).await;
    start.answered(None, None);
    assert_eq!(request(&queue, arrival("Bot", "a.test", SECOND), began).await, 1020);
    let start = queue.arrive(&arrival("Bot", "b.test", SECOND)).unwrap().start();
    let sent_again = clock::now() + SECOND / 2;
    clock::sleep(SECOND).await;
    start.answered(None, Some(sent_again));
    assert_eq!(request(&queue, arrival("Bot", "b.test", SECOND), clock::now()).await, 600, "sent a second time");
}

#[tokio::test(start_paused = true)]
async fn idle_lines_are_forgotten() {
    let (queue, began) = (Queue::new(Settings { max_delay: SECOND / 10, ..Settings::default() }), clock::now());
    for number in 0..1000 {
        request(&queue, arrival("Bot", &format!("h{number}.test"), SECOND / 10), began).await;
        clock::sleep(SECOND / 50).await;
        assert!(queue.lock().lines.kept().0 <= 6, "{:?}", queue.lock().lines.kept());
    }
    clock::sleep(SECOND).await;
    nothing_kept(&queue);
}

/// Lets requests of two bots be answered so at one instant, and returns when the next ones start, in milliseconds.
async fn starts_after(queue: &Arc<Queue>, answers: &[Option<Sign>]) -> Vec<u128> {
    let began = clock::now();
    let bots = ["A", "B"];
    let places = answers.iter().zip(bots.iter().cycle());
    let starts: Vec<Start> =
        places.map(|(_, bot)| queue.arrive(&arrival(bot, "a.test", Duration::ZERO)).unwrap().start()).collect();
    for (start, sign) in starts.into_iter().zip(answers) {
        start.answered(*sign, None);
    }
    join_all(bots.map(|bot| request(queue, arrival(bot, "a.test", Duration::ZERO), began))).await
}

#[tokio::test(start_paused = true)]
async fn p19_an_origins_429_holds_the_host_for_every_bot_and_a_burst_counts_once() {
    let queue = Queue::new(Settings::default());
    assert_eq!(starts_after(&queue, &[sign(429, Some("2")); 10]).await, [2000, 2000]);
    let other = request(&queue, arrival("A", "b.test", Duration::ZERO), clock::now()).await;
    assert_eq!(other, 0, "another host is not held");
    let wait = starts_after(&queue, &[sign(429, None); 10]).await[0];
    assert!((9000..=11_000).contains(&wait), "{wait}");
    let wait = starts_after(&queue, &[sign(429, None); 10]).await[0];
    assert!((18_000..=22_000).contains(&wait), "{wait}");
    assert_eq!(starts_after(&queue, &[sign(503, Some("3")), sign(429, Some("1"))]).await, [3000, 3000]);
    assert_eq!(starts_after(&queue, &[sign(503, None), sign(503, None)]).await, [0, 0]);
    assert!(starts_after(&queue, &[sign(503, None); 3]).await[0] > 30_000);
    clock::sleep(31 * 60 * SECOND).await;
    assert!(starts_after(&queue, &[sign(429, None)]).await[0] <= 11_000, "forgiven");
    nothing_kept(&queue);
}

#[tokio::test(start_paused = true)]
async fn who_cannot_wait_for_the_end_of_a_hold_is_told() {
    let queue = Queue::new(Settings::default());
    let patient_for = |patience| Arrival { patience, ..arrival("Bot", "a.test", SECOND) };
    let start = queue.arrive(&patient_for(SECOND)).unwrap().start();
    let waiting: Vec<Place> =
        [20, 60, 21, 60].map(|seconds| queue.arrive(&patient_for(seconds * SECOND)).unwrap()).into();
    let waiting: Vec<_> = waiting
        .into_iter()
        .map(|mut place| {
            tokio::spawn(async move {
                let ready = place.ready(SECOND).await;
                let at = clock::now();
                if ready.is_ok() {
                    place.start().answered(None, None);
                }
                (ready.is_ok(), at)
            })
        })
        .collect();
    tokio::task::yield_now().await;
    let began = clock::now();
    let asked = sign(429, Some("30"));
    start.answered(asked, None);
    let told: Vec<_> = join_all(waiting).await.into_iter().map(Result::unwrap).collect();
    let told: Vec<_> = told.into_iter().map(|(started, at)| (started, at.duration_since(began).as_secs())).collect();
    assert_eq!(told, [(false, 0), (true, 30), (false, 0), (true, 31)]);

    queue.arrive(&patient_for(60 * SECOND)).unwrap().start().answered(asked, None);
    let expected = |bot: &str, gap, retry_after| {
        let refused = queue.arrive(&Arrival { gap, patience: 5 * SECOND, ..arrival(bot, "a.test", SECOND) });
        let expected = Refused::Held { wait: 30 * SECOND, retry_after: retry_after * SECOND, sign: asked.unwrap() };
        assert_eq!(refused.unwrap_err(), expected, "{bot} {gap:?}");
    };
    expected("Bot", Some(SECOND), 30);
    expected("Bot", Some(SECOND), 31);
    expected("Other", Some(SECOND), 30);
    expected("Bot", None, 30);
    assert_eq!(queue.held_until(&host("a.test")), Some(clock::now() + 30 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn after_a_hold_one_request_tries_before_the_others_follow() {
    let (queue, began) = (Queue::new(Settings::default()), clock::now());
    queue.arrive(&arrival("Bot", "a.test", Duration::ZERO)).unwrap().start().answered(sign(429, Some("2")), None);
    let follow = |answer_after: u32| {
        let mut place = queue.arrive(&arrival("Bot", "a.test", Duration::ZERO)).unwrap();
        async move {
            place.ready(Duration::ZERO).await.unwrap();
            let start = place.start();
            let at = clock::now().duration_since(began).as_secs();
            clock::sleep(answer_after * SECOND).await;
            start.answered(None, None);
            at
        }
    };
    assert_eq!(join_all([follow(3), follow(3), follow(3)]).await, [2, 5, 5]);
    nothing_kept(&queue);
}

#[tokio::test(start_paused = true)]
async fn robots_txt_is_not_paced_but_held() {
    let (queue, began) = (Queue::new(Settings::default()), clock::now());
    let robots_txt = || Arrival { gap: None, ..arrival("Bot", "a.test", SECOND) };
    let start = queue.arrive(&arrival("Bot", "a.test", SECOND)).unwrap().start();
    let _waiting = queue.arrive(&arrival("Bot", "a.test", SECOND)).unwrap();
    let mut place = queue.arrive(&robots_txt()).unwrap();
    place.ready(Duration::ZERO).await.unwrap();
    assert_eq!(clock::now(), began);
    start.answered(sign(429, Some("7")), None);
    assert!(!place.may_start(Duration::ZERO), "held while its connection was opened");
    place.ready(Duration::ZERO).await.unwrap();
    assert_eq!(clock::now().duration_since(began), 7 * SECOND);
}

fn of_page(load: Load, at: &str) -> Arrival {
    let page = (load == Load::Navigation).then(|| format!("https://{at}/page"));
    Arrival { load, page, patience: SECOND, ..arrival("Bot", at, 5 * SECOND) }
}

/// How many of so many requests pass the line.
fn passing(queue: &Arc<Queue>, number: usize, arrival: &Arrival) -> usize {
    (0..number).filter(|_| queue.arrive(arrival).is_ok_and(|place| place.is_paced() == Some(false))).count()
}

#[tokio::test(start_paused = true)]
async fn a_page_loads_its_requisites_within_its_budget() {
    let (queue, began) = (Queue::new(Settings::default()), clock::now());
    let image = of_page(Load::Requisite, "a.test");
    assert_eq!(passing(&queue, 1, &image), 0, "no page, no budget");
    clock::sleep(5 * SECOND).await;
    request(&queue, of_page(Load::Navigation, "a.test"), began).await;
    assert_eq!(passing(&queue, 30, &of_page(Load::Data, "a.test")), 20);
    assert_eq!(passing(&queue, 300, &image), 180);
    assert_eq!(passing(&queue, 10, &of_page(Load::Requisite, "cdn.test")), 10, "another host has its own");
    let stranger =
        Arrival { visitor: Visitor::new(Some("u"), [127, 0, 0, 1].into(), &"Bot".parse().unwrap()), ..image.clone() };
    assert_eq!(passing(&queue, 1, &stranger), 0, "another client has none");
    assert!(matches!(queue.arrive(&image).unwrap_err(), Refused::TooLong { .. }), "beyond it, all is paced");
    clock::sleep(5 * SECOND).await;
    request(&queue, of_page(Load::Navigation, "a.test"), began).await;
    assert_eq!(passing(&queue, 300, &image), 200, "the next page");
    clock::sleep(30 * SECOND).await;
    assert_eq!(passing(&queue, 1, &of_page(Load::Requisite, "cdn.test")), 0, "30 s after the page");
}

#[tokio::test(start_paused = true)]
async fn pages_of_a_fast_host_grant_no_more_at_a_slow_one() {
    let (queue, began) = (Queue::new(Settings::default()), clock::now());
    let fast = Arrival { gap: Some(Duration::ZERO), ..of_page(Load::Navigation, "fast.test") };
    let mut passed = 0;
    for _ in 0..9 {
        request(&queue, fast.clone(), began).await;
        passed += passing(&queue, 300, &of_page(Load::Requisite, "slow.test"));
        clock::sleep(SECOND).await;
    }
    assert_eq!(passed, 400, "in 9 s at a host with a delay of 5 s");
}

#[tokio::test(start_paused = true)]
async fn six_requisites_at_once_and_none_during_a_hold() {
    let (queue, began) = (Queue::new(Settings::default()), clock::now());
    let start = queue.arrive(&of_page(Load::Navigation, "a.test")).unwrap().start();
    let load = || {
        let mut place = queue.arrive(&of_page(Load::Requisite, "a.test")).unwrap();
        async move {
            place.ready(5 * SECOND).await.unwrap();
            let (start, at) = (place.start(), clock::now().duration_since(began).as_millis());
            clock::sleep(SECOND).await;
            start.answered(None, None);
            at
        }
    };
    let starts = join_all((0..14).map(|_| load())).await;
    assert_eq!(starts, [[0; 6].as_slice(), &[1000; 6], &[2000; 2]].concat());
    start.answered(sign(429, Some("1")), None);
    assert_eq!(load().await, 4000);
}

#[tokio::test(start_paused = true)]
async fn a_referer_names_its_page_on_plain_http() {
    let (queue, began) = (Queue::new(Settings::default()), clock::now());
    request(&queue, of_page(Load::Navigation, "a.test"), began).await;
    assert_eq!(passing(&queue, 1, &of_page(Load::Referred("https://a.test/page".into()), "a.test")), 1);
    assert_eq!(passing(&queue, 1, &of_page(Load::Referred("https://a.test/other".into()), "a.test")), 0);
}

#[tokio::test(start_paused = true)]
async fn requisites_stand_in_line_where_the_operator_wants_it() {
    let queue = Queue::new(Settings { requisites: Requisites::Paced, ..Settings::default() });
    request(&queue, of_page(Load::Navigation, "a.test"), clock::now()).await;
    assert_eq!(passing(&queue, 1, &of_page(Load::Requisite, "a.test")), 0);
}

#[tokio::test(start_paused = true)]
async fn clients_that_left_are_forgotten() {
    let (queue, began) = (Queue::new(Settings::default()), clock::now());
    for number in 0..2000u32 {
        let visitor = Visitor::new(None, std::net::Ipv4Addr::from(number).into(), &"Bot".parse().unwrap());
        let gap = Some(Duration::ZERO);
        request(&queue, Arrival { visitor, gap, ..of_page(Load::Navigation, "a.test") }, began).await;
        clock::sleep(SECOND).await;
    }
    assert!(queue.pages.kept() <= 128, "{}", queue.pages.kept());
    for number in 0..2000 {
        let at = format!("h{number}.test");
        queue.arrive(&arrival("Bot", &at, Duration::ZERO)).unwrap().start().answered(sign(429, Some("1")), None);
        clock::sleep(60 * SECOND).await;
    }
    assert!(queue.lock().holds.kept() <= 128, "{}", queue.lock().holds.kept());
}

#[tokio::test(start_paused = true)]
async fn observe_mode_tells_the_wait_and_stops_nobody() {
    let (queue, began) = (Queue::new(Settings::default()), clock::now());
    let seen: Vec<_> = (0..4).map(|_| queue.watch(&arrival("Bot", "a.test", 50 * SECOND)).ok()).collect();
    assert_eq!(seen, [Some(Duration::ZERO), Some(50 * SECOND), Some(100 * SECOND), None]);
    let mut place = queue.free(&arrival("Bot", "a.test", 50 * SECOND));
    place.ready(50 * SECOND).await.unwrap();
    place.start().answered(None, None);
    assert_eq!(clock::now(), began);
    clock::sleep(200 * SECOND).await;
    nothing_kept(&queue);
}

#[tokio::test(start_paused = true)]
async fn a_report_shows_the_lines_as_they_stand() {
    let queue = Queue::new(Settings::default());
    drop(queue.arrive(&arrival("Bot", "b.test", 10 * SECOND)).unwrap().start());
    let _waiting = queue.arrive(&arrival("Bot", "b.test", 10 * SECOND)).unwrap();
    queue.arrive(&arrival("Bot", "a.test", Duration::ZERO)).unwrap().start().answered(sign(429, Some("30")), None);
    clock::sleep(4 * SECOND).await;
    let line = LineReport {
        host: host("b.test"),
        bot: Some("bot".into()),
        waiting: 1,
        delay: 10 * SECOND,
        since_start: Some(4 * SECOND),
        next_in: 6 * SECOND,
        held_for: None,
    };
    let held = LineReport::without_line(&host("a.test"), clock::now() + 26 * SECOND, clock::now());
    assert_eq!(queue.lines(None), [held, line.clone()]);
    assert_eq!(queue.lines(Some(&host("b.test"))), [line]);
}
