//! The pure rules over wire views: how calls pair with results, and what a model may propose.
//!
//! Input is a view, output is a list of [`fault::Fault`]s; what is made of them is decided by
//! [`verdict`]. No tokio, axum, clock or log.

pub mod arguments;
pub mod assembly;
pub mod fault;
pub mod offer;
pub mod pairing;
pub mod proposal;
pub mod schema;
pub mod screen;
mod slots;
pub mod stream;
pub mod verdict;
