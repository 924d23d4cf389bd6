//! What is on the wire: borrowed views of request bodies, completions and stream chunks, the
//! server-sent-event decoder, and OpenAI's error envelope.
//!
//! Nothing here judges. A view holds only what the rules look at and leaves the rest unread; the
//! bytes themselves travel as they came. No tokio, axum, clock or log.

pub mod call;
pub mod canonical;
pub mod chunk;
pub mod completion;
pub mod content;
pub mod envelope;
pub mod hex;
pub mod json;
pub mod keys;
mod loose;
pub mod moment;
pub mod request;
pub mod role;
pub mod scan;
pub mod sse;
