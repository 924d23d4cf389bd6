//! What of a stream may go down now.
//!
//! The upstream's server writes several events at once; cut apart they would cost the client a read and
//! us a write each. So what was one read and may go whole goes as one, and still nothing is copied.

use bytes::Bytes;
use std::collections::VecDeque;

/// Slices ready to go down. Neighbours in one network read leave as one slice, without a copy.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    ready: VecDeque<Bytes>,
    /// The network read that the newest slice was cut from.
    read: Bytes,
}

impl Outbox {
    /// What follows is cut from this read.
    pub(super) fn reading(&mut self, read: Bytes) {
        self.read = read;
    }

    /// Adds a slice.
    pub(super) fn push(&mut self, slice: Bytes) {
        if slice.is_empty() {
            return;
        }
        if let Some(last) = self.ready.back_mut()
            && let Some(joined) = join(&self.read, last, &slice)
        {
            *last = joined;
            return;
        }
        self.ready.push_back(slice);
    }

    /// Takes the oldest slice.
    pub(super) fn pop(&mut self) -> Option<Bytes> {
        self.ready.pop_front()
    }

    /// Drops what waits.
    pub(super) fn clear(&mut self) {
        self.ready.clear();
    }

    /// How many slices wait.
    #[must_use]
    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }
}

/// Both as one slice of `read`, when they are neighbours in it.
fn join(read: &Bytes, left: &[u8], right: &[u8]) -> Option<Bytes> {
    let from = super::splice::offset_in(read, left)?;
    let next = super::splice::offset_in(read, right)?;
    (from + left.len() == next).then(|| read.slice(from..next + right.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_leave_as_one_slice_and_strangers_do_not() {
        let read = Bytes::from_static(b"abcdef");
        let mut outbox = Outbox::default();
        outbox.reading(read.clone());
        outbox.push(read.slice(0..2));
        outbox.push(read.slice(2..4));
        outbox.push(Bytes::from(b"ef".to_vec()));
        outbox.push(read.slice(4..6));
        assert_eq!(outbox.pop().as_deref(), Some(&b"abcd"[..]));
        assert_eq!(outbox.pop().as_deref(), Some(&b"ef"[..]));
        assert_eq!(outbox.pop().as_deref(), Some(&b"ef"[..]));
        assert!(outbox.is_empty());
    }
}
