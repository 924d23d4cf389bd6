//! The operator's policy on the built program: tools and budgets, single rules, and what `config check` says.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod check;
#[expect(dead_code, reason = "what other tests need")]
#[path = "../gateway/mod.rs"]
mod gateway;
#[expect(dead_code, reason = "what other tests need")]
#[path = "../program/mod.rs"]
mod program;
mod rules;
mod said;
mod tools;
