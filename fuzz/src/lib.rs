//! What is asked of arbitrary bytes, one module for each surface that takes them from outside.
//!
//! `cargo fuzz run NAME` searches with libFuzzer; `tests/fuzz.rs` of the main package runs the kept corpus and a bounded
//! number of mutants of it. Both call the same functions: each takes bytes, and panics when something that must hold
//! does not.

pub mod alike;
pub mod arguments;
pub mod bounds;
pub mod completion;
pub mod policy;
mod readers;
pub mod request;
pub mod sse;
pub mod store;
pub mod stream;
pub mod work;

/// What takes arbitrary bytes.
pub type Target = fn(&[u8]);

/// Every target, by the name of its program and its corpus.
pub const TARGETS: [(&str, Target); 9] = [
    ("alike", alike::run),
    ("arguments", arguments::run),
    ("completion", completion::run),
    ("policy", policy::run),
    ("request", request::run),
    ("sse", sse::run),
    ("store", store::run),
    ("stream", stream::run),
    ("work", work::run),
];
