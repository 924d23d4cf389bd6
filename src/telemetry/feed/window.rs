//! The last quarter of an hour in buckets of five seconds.

use crate::guard::fault::Code;
use crate::ledger::event::TaskOutcome;
use crate::telemetry::labels::{ExchangeOutcome, Label};
use std::collections::VecDeque;

/// The span of one bucket.
pub const SECONDS: u64 = 5;
/// How many are kept.
const BUCKETS: usize = 180;

/// What happened within one span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Its number: seconds since 1970, divided by [`SECONDS`].
    pub number: u64,
    /// Guarded exchanges that ended, by outcome.
    pub exchanges: [u32; ExchangeOutcome::ALL.len()],
    /// Results accepted.
    pub accepted: u32,
    /// Results refused.
    pub refused: u32,
    /// Calls that timed out.
    pub timed_out: u32,
    /// Tasks that ended, by outcome.
    pub tasks: [u32; TaskOutcome::ALL.len()],
    /// Refused for: how often each code.
    pub codes: Vec<(Code, u32)>,
}

impl Bucket {
    /// An exchange was refused for this.
    pub(super) fn code(&mut self, code: Code) {
        match self.codes.iter_mut().find(|(known, _)| *known == code) {
            Some((_, count)) => *count += 1,
            None => self.codes.push((code, 1)),
        }
    }

    /// One more exchange ended so.
    pub(super) fn exchange(&mut self, outcome: ExchangeOutcome) {
        self.exchanges[outcome.index()] += 1;
    }

    /// One more task ended so.
    pub(super) fn task(&mut self, outcome: TaskOutcome) {
        self.tasks[outcome.index()] += 1;
    }
}

/// The last buckets, without gaps, oldest first.
#[derive(Debug, Default)]
pub(super) struct Window {
    buckets: VecDeque<Bucket>,
}

impl Window {
    /// The buckets, oldest first.
    pub(super) fn buckets(&self) -> impl DoubleEndedIterator<Item = &Bucket> {
        self.buckets.iter()
    }

    /// Time has come to this, in milliseconds since 1970; gives the bucket. What is older than
    /// the oldest counts there.
    pub(super) fn reach(&mut self, at: u64) -> &mut Bucket {
        let number = at / 1000 / SECONDS;
        let next = self.buckets.back().map_or(0, |bucket| bucket.number + 1);
        if number >= next {
            let kept = BUCKETS as u64;
            for missing in next.max(number.saturating_sub(kept - 1))..=number {
                self.buckets.push_back(Bucket { number: missing, ..Bucket::default() });
            }
            while self.buckets.len() > BUCKETS {
                self.buckets.pop_front();
            }
        }
        let behind = next.max(1).saturating_sub(1).saturating_sub(number);
        let behind = usize::try_from(behind).unwrap_or(usize::MAX);
        let at = self.buckets.len().saturating_sub(1).saturating_sub(behind);
        &mut self.buckets[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_has_no_gaps_and_an_end() {
        let mut window = Window::default();
        let numbers = |window: &Window| -> Vec<u64> {
            window.buckets().map(|bucket| bucket.number).collect()
        };
        window.reach(1_000_000_000).accepted += 1;
        window.reach(1_000_011_000).accepted += 1;
        let first = 1_000_000 / SECONDS;
        let last = *numbers(&window).last().unwrap_or(&0);
        assert_eq!((last, window.buckets().count()), (first + 2, BUCKETS));
        window.reach(1_000_000_000).accepted += 1;
        let accepted: Vec<u32> =
            window.buckets().skip(BUCKETS - 3).map(|bucket| bucket.accepted).collect();
        assert_eq!(accepted, [2, 0, 1]);
        window.reach(9_000_000_000).refused += 1;
        window.reach(5).refused += 1;
        assert_eq!(window.buckets().count(), BUCKETS);
        assert!(numbers(&window).windows(2).all(|pair| pair[1] == pair[0] + 1));
    }
}
