//! The one clock.
//!
//! Rules and parts take the time as a plain value; this file is where the value comes from, and clippy keeps it so.
//! [`now`] is std's `Instant` taken from tokio's clock: it follows paused time, so a test plays an hour of Crawl-delay
//! in an instant. [`wall`] is for printing and for disk; nothing is measured with it, since an operator may set it
//! back.

#![expect(clippy::disallowed_methods, reason = "the file that the ban on clocks elsewhere points to")]

use std::future::Future;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;

/// The present, for measuring.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The time of day, for printing and for disk.
pub fn wall() -> SystemTime {
    SystemTime::now()
}

/// Waits until `instant`; returns at once when it has passed.
pub async fn sleep_until(instant: Instant) {
    tokio::time::sleep_until(instant.into()).await;
}

/// Waits for `duration`.
pub async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// What `work` yields, or `None` when it is not done after `limit`. `work` is dropped then.
pub async fn timeout<F: Future>(limit: Duration, work: F) -> Option<F::Output> {
    tokio::time::timeout(limit, work).await.ok()
}

/// What `work` yields, or `None` when it is not done at `deadline`. `work` is dropped then.
pub async fn timeout_at<F: Future>(deadline: Instant, work: F) -> Option<F::Output> {
    tokio::time::timeout_at(deadline.into(), work).await.ok()
}

/// `2026-11-30T15:13:00.250Z`: RFC 3339, UTC, cut to milliseconds. Times that RFC 3339 cannot write (years outside 0 to
/// 9999) become the nearest that it can.
pub fn rfc3339(time: SystemTime) -> String {
    let utc = utc(time);
    let (year, month, day) = utc.to_calendar_date();
    let (hour, minute, second, millisecond) = utc.to_hms_milli();
    let year = u16::try_from(year).unwrap_or_default();
    // By hand: two of them are in each record, and the formatting machinery takes ten times as long.
    let mut text = *b"0000-00-00T00:00:00.000Z";
    for (at, two_digits) in [
        (0, (year / 100) as u8),
        (2, (year % 100) as u8),
        (5, u8::from(month)),
        (8, day),
        (11, hour),
        (14, minute),
        (17, second),
        (20, (millisecond / 10) as u8),
    ] {
        text[at] += two_digits / 10;
        text[at + 1] += two_digits % 10;
    }
    text[22] += (millisecond % 10) as u8;
    String::from_utf8(text.into()).expect("ASCII")
}

/// Seconds and nanoseconds apart: together they need 128 bits, whose divisions take longer than all else here. Not
/// `OffsetDateTime::from`, which panics outside the years that it can hold.
fn utc(time: SystemTime) -> OffsetDateTime {
    let (seconds, nanos) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()).unwrap_or(i64::MAX), after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).map_or(i64::MIN, |seconds| -seconds);
            match before.subsec_nanos() {
                0 => (seconds, 0),
                nanos => (seconds.saturating_sub(1), 1_000_000_000 - nanos),
            }
        }
    };
    let (seconds, nanos) = match seconds {
        early if early < YEAR_0 => (YEAR_0, 0),
        late if late >= YEAR_10000 => (YEAR_10000 - 1, 999_999_999),
        _ => (seconds, nanos),
    };
    let utc = OffsetDateTime::from_unix_timestamp(seconds).expect("years 0 to 9999 can be held");
    utc.replace_nanosecond(nanos).expect("less than a second")
}

/// 0000-01-01T00:00:00Z and 10000-01-01T00:00:00Z in seconds since 1970.
const YEAR_0: i64 = -62_167_219_200;
const YEAR_10000: i64 = 253_402_300_800;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3339_is_utc_with_milliseconds() {
        let cases = [
            (UNIX_EPOCH, "1970-01-01T00:00:00.000Z"),
            (UNIX_EPOCH + Duration::from_nanos(1_796_051_580_250_999_999), "2026-11-30T15:13:00.250Z"),
            (UNIX_EPOCH + Duration::from_secs(1_709_164_800), "2024-02-29T00:00:00.000Z"),
            (UNIX_EPOCH - Duration::from_millis(1), "1969-12-31T23:59:59.999Z"),
            (UNIX_EPOCH + Duration::from_secs(1 << 62), "9999-12-31T23:59:59.999Z"),
            (UNIX_EPOCH - Duration::from_secs(1 << 37), "0000-01-01T00:00:00.000Z"),
        ];
        for (time, text) in cases {
            assert_eq!(rfc3339(time), text);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn now_follows_paused_time() {
        let start = now();
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(now() - start, Duration::from_secs(3600));
        sleep_until(start + Duration::from_secs(7200)).await;
        assert_eq!(now() - start, Duration::from_secs(7200));
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_gives_what_was_done_in_time() {
        assert_eq!(timeout(Duration::from_secs(1), async { 7 }).await, Some(7));
        assert_eq!(timeout(Duration::from_secs(1), sleep(Duration::from_secs(2))).await, None);
        assert_eq!(timeout_at(now() + Duration::from_secs(3), sleep(Duration::from_secs(2))).await, Some(()));
    }
}
