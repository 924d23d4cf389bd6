//! What a store has kept of a conversation: it is read or refused, and what was read is written as it was read.

use super::bounds;
use tigertally::store::encoding::{decode, encode};

/// Takes bytes as a kept conversation.
pub fn run(data: &[u8]) {
    let Ok(kept) = bounds::hold(data.len(), || decode(data)) else { return };
    let written = encode(kept.used, &kept.conversation).expect("what is in memory can be written");
    assert_eq!(decode(&written).as_ref(), Ok(&kept), "not what was written");
}
