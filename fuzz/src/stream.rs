//! A streamed answer: assembled and judged alike however it is cut, and no client finds a call in it that was not. The
//! first two bytes say how it is cut and how many choices were asked for.

use super::{bounds, readers, sse};
use std::sync::{Arc, LazyLock};
use tigertally::guard::offer::{Offer, ToolRules};
use tigertally::guard::proposal;
use tigertally::guard::schema::SchemaCache;
use tigertally::guard::stream::{Ending, Heard, Listening};
use tigertally::wire::request::ChatRequest;

const DEPTH: usize = 64;
/// Most that is held.
const HELD: usize = 1 << 20;

/// A request that offers two tools.
pub(crate) static OFFER: LazyLock<Offer> = LazyLock::new(|| {
    let body = br#"{"messages":[],"tools":[{"function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}},{"function":{"name":"get_weather"}},{"custom":{"name":"c"},"type":"custom"}]}"#;
    let request = ChatRequest::parse(body, DEPTH).expect("a request");
    Offer::of(&request, Arc::new(ToolRules::default()), &SchemaCache::new(4, 1 << 20))
});

/// Takes bytes as a stream.
pub fn run(data: &[u8]) {
    let [seed, n, stream @ ..] = data else { return };
    let n = u64::from(*n % 4);
    let whole = bounds::hold(stream.len(), || hear(&[stream], n));
    let pieces = hear(&sse::cut(stream, *seed), n);
    assert_eq!(told(&whole), told(&pieces), "a cut changes the verdict");
    let sound =
        whole.ending == Ending::Answered && whole.faults.is_empty() && whole.after.is_none();
    if sound && !whole.proposal.has_calls() {
        assert!(!readers::any_finds_a_call(stream), "a call that nobody judged");
    }
}

/// Reads and judges a stream.
pub fn read(stream: &[u8]) {
    let heard = hear(&[stream], 1);
    drop(proposal::judge(&heard.proposal, &OFFER, true));
}

/// Listens to a stream that comes in pieces.
pub(crate) fn hear(pieces: &[&[u8]], n: u64) -> Heard {
    let mut listening = Listening::new(n, DEPTH, HELD);
    let left = sse::each(pieces, |event, _| listening.take(&event));
    listening.finish(left)
}

/// All that counts of what was heard.
fn told(heard: &Heard) -> String {
    let verdict = proposal::judge(&heard.proposal, &OFFER, true);
    let Heard { ending, proposal, faults, after } = heard;
    format!("{ending:?} {proposal:?} {faults:?} {} {verdict:?}", after.is_some())
}
