//! How many instructions the pure parts take, held against `counts.txt` beside this file.
//!
//! ```text
//! cargo run --release --features bench --bin instructions              compares: 1 when something takes over 5 % more
//! cargo run --release --features bench --bin instructions -- --bless   writes the counts down
//! ```
//! It is a program and no bench, so that it is built with the dependencies of what ships. Needs `valgrind`: callgrind counts what a program executes, whatever else the machine does, so a count is the
//! same on every machine with the same compiler and C library. Which vector instructions `memchr`, `simdutf8`
//! and `blake3` choose is decided when they run; under callgrind they see the processor that it emulates, which
//! has AVX2 where the machine has it, and never AVX-512. All three are written at the head of the file, and when
//! they are others, nothing is compared and that is said. Less is no failure, but is worth a `--bless`, or the
//! gain may be lost again unseen.
//!
//! Whatever the file says, work must not grow with what is past: reading and pairing are linear in the bytes of
//! the list, a turn of a conversation costs the same however old that is, once its state is at its bound, and with
//! all that the store writes of it hardly more than when it was young.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "it measures, and tells it"
)]

#[path = "../pure/bodies.rs"]
mod bodies;
mod counts;
mod stored;
#[path = "../pure/streams.rs"]
mod streams;
#[path = "../pure/turns.rs"]
mod turns;
#[path = "../pure/workloads.rs"]
mod workloads;

use counts::Counts;
use std::any::Any;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, ExitCode};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions/counts.txt");

fn main() -> ExitCode {
    let asked = |word: &str| std::env::args().any(|argument| argument == word);
    if asked("--counted") {
        run_all();
        return ExitCode::SUCCESS;
    }
    let counted = count();
    if asked("--bless") {
        std::fs::write(FILE, counted.written()).unwrap();
        println!("{} counts written to {FILE}", counted.each.len());
        return ExitCode::SUCCESS;
    }
    let expected = Counts::read(&std::fs::read_to_string(FILE).unwrap_or_default());
    let (compared, grows) = (counted.compare(&expected), counted.growth());
    if compared && grows { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Each workload several times: the first run compiles schemas, finds out what the processor can do, and the
/// like; the others level out what the allocator does now and then.
fn run_all() {
    for workload in workloads::all().into_iter().chain(stored::all()) {
        drop((workload.prepare)()());
        let times = if workload.bytes > Some(LONG) { 1 } else { TIMES };
        let runs = (0..times).map(|_| (workload.prepare)()).collect();
        drop(measured(runs));
        println!("{times} {}", workload.name);
    }
}

/// Runs that are counted, of what reads fewer bytes than this.
const TIMES: u64 = 10;
const LONG: usize = 50_000;

/// Callgrind counts from here to its end, and writes down what it counted.
#[inline(never)]
fn measured(runs: Vec<workloads::Run>) -> Vec<Box<dyn Any>> {
    black_box(runs.into_iter().map(|run| run()).collect())
}

/// Runs this program under callgrind, in an empty environment.
fn count() -> Counts {
    let scratch =
        std::env::temp_dir().join(format!("tigertally-instructions-{}", std::process::id()));
    std::fs::create_dir(&scratch).unwrap();
    let out = scratch.join("out");
    let counted = Command::new("valgrind")
        .args([
            "--quiet",
            "--tool=callgrind",
            "--toggle-collect=*::measured",
            "--dump-after=*::measured",
        ])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().unwrap())
        .arg("--counted")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .output()
        .expect("valgrind is on the path");
    assert!(counted.status.success(), "{}", String::from_utf8_lossy(&counted.stderr));
    let told = String::from_utf8(counted.stdout).unwrap();
    let each = told.lines().zip(1..).map(|(line, at)| {
        let (times, name) = line.split_once(' ').unwrap();
        (name.to_owned(), total(&out, at) / times.parse::<u64>().unwrap())
    });
    let counts = Counts { toolchain: counts::toolchain(), each: each.collect() };
    std::fs::remove_dir_all(&scratch).unwrap();
    counts
}

/// What the `at`th dump says in all.
fn total(out: &Path, at: u32) -> u64 {
    let dump = std::fs::read_to_string(format!("{}.{at}", out.display())).unwrap();
    let line = dump.lines().find_map(|line| line.strip_prefix("totals: ")).unwrap();
    line.trim().parse().unwrap()
}
