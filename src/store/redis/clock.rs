//! What time it is by the server's clock, without asking it each time.
//!
//! Every reply of a script brings the server's `TIME`. It was read between our sending and our receiving,
//! so the server's clock is known to half the round trip (and a millisecond, its unit). The tightest
//! sample is kept and carried forward by the local monotonic clock; it loosens with age, as two clocks
//! drift apart, so that a newer one takes its place. Two replicas differ by the sum of their bounds.
//!
//! The bound is a hope, not a proof: a process may be stopped between reckoning and sending. So the script
//! that writes compares once more and refuses a time that is off by more than [`TOLERANCE`]; and within a
//! conversation time never runs backwards, whoever writes (see `frame`).

use crate::ledger::event::Millis;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// No event is committed by a time that is further from the server's than this.
pub(super) const TOLERANCE: Millis = Millis(1000);

/// How far two good clocks drift apart in a given time, at worst: one part in this many.
const DRIFT: u32 = 5000;

/// The server's clock, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct ServerClock(Mutex<Option<Sample>>);

#[derive(Clone, Copy, Debug)]
struct Sample {
    /// The server said this…
    server: Duration,
    /// …when it was this here…
    at: Instant,
    /// …give or take this.
    error: Duration,
}

impl ServerClock {
    /// The server said `server` between `sent` and `received`.
    pub(super) fn observe(&self, server: Millis, sent: Instant, received: Instant) {
        let half = received.saturating_duration_since(sent) / 2;
        let new = Sample {
            server: Duration::from_millis(server.0),
            at: sent + half,
            error: half + Duration::from_millis(1),
        };
        let mut kept = self.0.lock();
        if kept.is_none_or(|old| new.error <= old.error_at(new.at) || old.contradicts(&new)) {
            *kept = Some(new);
        }
    }

    /// What time it is there now. Zero before the first reply.
    pub(super) fn now(&self, here: Instant) -> Millis {
        let kept = *self.0.lock();
        let there = kept.map_or(Duration::ZERO, |sample| sample.reads(here));
        Millis(u64::try_from(there.as_millis()).unwrap_or(u64::MAX))
    }
}

impl Sample {
    fn reads(&self, here: Instant) -> Duration {
        self.server + here.saturating_duration_since(self.at)
    }

    fn error_at(&self, here: Instant) -> Duration {
        self.error + here.saturating_duration_since(self.at) / DRIFT
    }

    /// Both cannot be right: the server's clock was set, or another server answers.
    fn contradicts(&self, new: &Sample) -> bool {
        self.reads(new.at).abs_diff(new.server) > self.error_at(new.at) + new.error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_tightest_sample_counts_until_it_is_old() {
        let (clock, start) = (ServerClock::default(), Instant::now());
        clock.observe(Millis(1000), start, start + ms(2));
        assert_eq!(clock.now(start + ms(1)), Millis(1000));
        // A wide one that agrees changes nothing: its middle is 20 off.
        clock.observe(Millis(1100), start + ms(100), start + ms(142));
        assert_eq!(clock.now(start + ms(101)), Millis(1100));
        // Two minutes later the first may be 24 ms off: one of 22 takes its place.
        clock.observe(Millis(121_010), start + ms(120_000), start + ms(120_042));
        assert_eq!(clock.now(start + ms(120_021)), Millis(121_010));
    }

    #[test]
    fn a_server_whose_clock_was_set_is_followed() {
        let (clock, start) = (ServerClock::default(), Instant::now());
        clock.observe(Millis(100_000), start, start);
        for server in [160_000, 40_000] {
            clock.observe(Millis(server), start + ms(10), start + ms(60));
            assert_eq!(clock.now(start + ms(35)), Millis(server));
        }
    }
}
