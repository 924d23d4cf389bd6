//! The end-to-end benchmark: what the proxy costs, beside nginx, the floors and its peers. `scripts/bench` builds
//! and runs it; `scripts/bench --help` tells how.
//!
//! A fast upstream and the contenders are processes of their own; the load generator is this one. All
//! contenders run side by side, and in each round every workload goes to each of them in turn, in an order that
//! is another in every round, so that what else the machine does falls on all. What counts is the processor time
//! of a contender's processes relative to nginx's in the same round: it holds on a machine that is not quiet.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    reason = "it measures, tells it, and ends with its process"
)]

mod chat;
mod clock;
mod contenders;
mod figures;
mod floors;
mod load;
mod options;
mod plots;
mod process;
mod report;
mod rounds;
mod scale;
mod streams;
mod svg;
mod upstream;
mod workloads;

use clap::Parser;
use options::{CommandLine, Role};
use std::process::ExitCode;

fn main() -> ExitCode {
    let line = CommandLine::parse();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    match line.role {
        Some(Role::Role { name, listen, upstream }) => runtime.block_on(async {
            match (name.as_str(), upstream) {
                ("upstream", None) => upstream::serve(listen).await,
                ("hyper", Some(upstream)) => floors::hyper(listen, upstream).await,
                ("axum-reqwest", Some(upstream)) => floors::axum(listen, upstream).await,
                _ => eprintln!("no such role: {name}"),
            }
            ExitCode::FAILURE
        }),
        None => match runtime.block_on(run(&line)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("scripts/bench: {why}");
                ExitCode::FAILURE
            }
        },
    }
}

async fn run(line: &CommandLine) -> Result<(), String> {
    let out = line.out();
    std::fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    if line.scale {
        let growth = scale::measure(line).await?;
        return scale::write(&growth, &out);
    }
    let figures = rounds::measure(line).await?;
    report::write(&figures, &out)
}
