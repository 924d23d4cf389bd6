//! The time that processes on one machine share.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970.
pub(crate) fn nanoseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_nanos()).unwrap()
}
