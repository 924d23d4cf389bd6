//! The pure state machine of one conversation: `(conversation, event, now) → (conversation', outcome)`.
//!
//! No clock, no I/O, no randomness: a store applies each event as one conditional update and says
//! what time it is. What must happen outside is told as [`event::Effects`].

pub mod digest;
pub mod event;
pub mod rules;
