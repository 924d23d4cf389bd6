//! How the proposals of a conversation are found: by the ids of their calls, by the exchange that proposed them, by
//! what their writes do, and those that are not settled. It follows from the proposals: it is not written, and
//! counts for nothing in a comparison.

use super::super::digest::Digest;
use super::super::event::ExchangeId;
use super::super::sorted::Sorted;
use super::Proposal;
use smallvec::SmallVec;
use std::fmt;
use std::hash::{Hash, Hasher};
use xxhash_rust::xxh3::xxh3_64;

/// Where proposals are, by number.
#[derive(Clone, Default)]
pub(super) struct Index {
    /// By the hashes of their ids: a proposal that is found may hold another id with the same one.
    by_id: Sorted<(u64, u64)>,
    by_exchange: Sorted<(ExchangeId, u64)>,
    /// By the arguments of their writes.
    writes: Sorted<(Digest, u64)>,
    /// Those that time or a newer task may still change, oldest first: with an open call or an unknown write,
    /// and perhaps some that had one. A settled one never becomes unsettled, so most events look at these few,
    /// however old the conversation is.
    pub(super) unsettled: SmallVec<[u64; 4]>,
    /// How many calls there are.
    pub(super) calls: usize,
}

impl Index {
    /// From here on its calls are counted, and it is found.
    pub(super) fn add(&mut self, proposal: &Proposal) {
        self.calls += proposal.calls.len();
        self.by_exchange.insert((proposal.exchange, proposal.seq));
        if proposal.unsettled() {
            self.unsettled.push(proposal.seq);
        }
        for call in &proposal.calls {
            self.by_id.insert((xxh3_64(call.id.as_bytes()), proposal.seq));
            if call.write {
                self.writes.insert((call.arguments, proposal.seq));
            }
        }
    }

    pub(super) fn remove(&mut self, proposal: &Proposal) {
        self.calls -= proposal.calls.len();
        self.by_exchange.remove(&(proposal.exchange, proposal.seq));
        self.unsettled.retain(|seq| *seq != proposal.seq);
        for call in &proposal.calls {
            self.by_id.remove(&(xxh3_64(call.id.as_bytes()), proposal.seq));
            self.writes.remove(&(call.arguments, proposal.seq));
        }
    }

    /// Its calls may stand otherwise than before.
    pub(super) fn moved(&mut self, proposal: &Proposal) {
        if proposal.unsettled()
            && let Err(at) = self.unsettled.binary_search(&proposal.seq)
        {
            self.unsettled.insert(at, proposal.seq);
        }
    }

    /// Those with a call of that id, and perhaps others, oldest first.
    pub(super) fn with_id(&self, id: &str) -> impl DoubleEndedIterator<Item = u64> {
        self.by_id.beside(xxh3_64(id.as_bytes()))
    }

    /// Those that this exchange proposed, oldest first.
    pub(super) fn by_exchange(&self, exchange: ExchangeId) -> impl DoubleEndedIterator<Item = u64> {
        self.by_exchange.beside(exchange)
    }

    /// Those with a write of these arguments, oldest first.
    pub(super) fn writes(&self, arguments: Digest) -> impl DoubleEndedIterator<Item = u64> {
        self.writes.beside(arguments)
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").finish_non_exhaustive()
    }
}

impl PartialEq for Index {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Index {}

impl Hash for Index {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
