#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn key(host: &str) -> LineKey {
        LineKey::new(&Host::parse(host).unwrap(), &"Bot".parse().unwrap())
    }

    fn queue(settings: Settings) -> Arc<Queue> {
        Queue::new(settings)
    }

    /// Starts a request and sees its answer at once; returns when it started, in milliseconds.
    async fn request(queue: &Arc<Queue>, host: &str, gap: Duration, began: Instant) -> u128 {
        let place = queue.join(key(host), gap, 60 * SECOND).unwrap();
        place.ready(gap).await;
        drop(place.start());
        clock::now().duration_since(began).as_millis()
    }

    #[tokio::test(start_paused = true)]
    async fn starts_are_a_gap_apart_and_in_order_of_arrival() {
        let (queue, began) = (queue(Settings::default()), clock::now());
        let starts = futures_util::future::join_all((0..5).map(|_| request(&queue, "a.test", SECOND, began))).await;
        assert_eq!(starts, [0, 1000, 2000, 3000, 4000]);
    }

    #[tokio::test(start_paused = true)]
    async fn another_host_is_not_delayed() {
        let (queue, began) = (queue(Settings::default()), clock::now());
        let hosts = ["a.test", "a.test", "b.test", "b.test"];
        let starts = futures_util::future::join_all(hosts.map(|host| request(&queue, host, SECOND, began))).await;
        assert_eq!(starts, [0, 1000, 0, 1000]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_leaves_costs_nobody_a_slot() {
        let (queue, began) = (queue(Settings::default()), clock::now());
        request(&queue, "a.test", SECOND, began).await;
        let places: Vec<Place> = (0..3).map(|_| queue.join(key("a.test"), SECOND, 60 * SECOND).unwrap()).collect();
        let last = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { request(&queue, "a.test", SECOND, began).await }
        });
        tokio::task::yield_now().await;
        drop(places);
        assert_eq!(last.await.unwrap(), 1000);
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_start_waits_for_the_head_of_the_previous_answer() {
        for (overlap, answer_after, next_start) in [(false, 5, 5000), (true, 5, 1000), (false, 90, 30_000)] {
            let (queue, began) = (queue(Settings { overlap, ..Settings::default() }), clock::now());
            let start = queue.join(key("a.test"), SECOND, 60 * SECOND).unwrap().start();
            tokio::spawn(async move {
                clock::sleep(answer_after * SECOND).await;
                drop(start);
            });
            assert_eq!(request(&queue, "a.test", SECOND, began).await, next_start, "overlap {overlap}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_would_wait_too_long_is_told_on_arrival() {
        let queue = queue(Settings { max_queue: 3, ..Settings::default() });
        drop(queue.join(key("a.test"), SECOND, SECOND).unwrap().start());
        let _one = queue.join(key("a.test"), SECOND, SECOND).unwrap();
        assert_eq!(queue.join(key("a.test"), SECOND, SECOND).unwrap_err(), Refused::TooLong { wait: 2 * SECOND });
        let _two = queue.join(key("a.test"), SECOND, 2 * SECOND).unwrap();
        let _three = queue.join(key("a.test"), SECOND, 60 * SECOND).unwrap();
        assert_eq!(queue.join(key("a.test"), SECOND, 60 * SECOND).unwrap_err(), Refused::Full { wait: 4 * SECOND });
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_without_a_delay_has_no_line() {
        let queue = queue(Settings::default());
        let place = queue.join(key("a.test"), Duration::ZERO, SECOND).unwrap();
        assert!(!place.is_paced() && place.start().waited().is_zero());
        assert!(queue.lock().by_key.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_delay_holds_from_the_next_start() {
        let (queue, began) = (queue(Settings::default()), clock::now());
        request(&queue, "a.test", 10 * SECOND, began).await;
        assert_eq!(request(&queue, "a.test", 3 * SECOND, began).await, 3000);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_lines_are_forgotten() {
        let (queue, began) = (queue(Settings::default()), clock::now());
        for number in 0..1000 {
            request(&queue, &format!("h{number}.test"), Duration::from_millis(1), began).await;
            clock::sleep(Duration::from_millis(2)).await;
        }
        assert!(queue.lock().by_key.len() <= SWEEP_MIN, "{}", queue.lock().by_key.len());
    }
}
