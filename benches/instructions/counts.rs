//! Counts as they are written down, and what is made of a difference.

use crate::stored;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

/// In per cent.
const TOLERANCE: f64 = 5.0;
/// So many instructions more are no change: where the allocator puts things differs from run to run.
const CHANCE: u64 = 600;
const TOOLCHAIN: &str = "# toolchain: ";

/// Instructions of each workload.
pub(crate) struct Counts {
    /// What they depend on besides the code.
    pub(crate) toolchain: String,
    pub(crate) each: BTreeMap<String, u64>,
}

impl Counts {
    /// Reads what [`Counts::written`] wrote.
    pub(crate) fn read(text: &str) -> Counts {
        let toolchain = text.lines().find_map(|line| line.strip_prefix(TOOLCHAIN));
        let each = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let (count, name) = line.trim().split_once(' ')?;
            Some((name.to_owned(), count.parse().ok()?))
        });
        Counts { toolchain: toolchain.unwrap_or_default().to_owned(), each: each.collect() }
    }

    pub(crate) fn written(&self) -> String {
        let mut text = format!(
            "# Instructions of the pure parts. `cargo run --release --features bench --bin instructions -- --bless` writes this file.\n{TOOLCHAIN}{}\n",
            self.toolchain
        );
        for (name, count) in &self.each {
            let _ = writeln!(text, "{count:>12} {name}");
        }
        text
    }

    /// Prints each count beside what was expected; whether nothing grew.
    pub(crate) fn compare(&self, expected: &Counts) -> bool {
        let same = self.toolchain == expected.toolchain;
        let mut sound = true;
        println!("{:>12} {:>12} {:>8}  ", "expected", "counted", "");
        for (name, &count) in &self.each {
            let Some(&before) = expected.each.get(name) else {
                println!("{:>12} {count:>12} {:>8}  {name}: not in the file", "", "");
                sound = false;
                continue;
            };
            let change = (count as f64 - before as f64) / before as f64 * 100.0;
            let changed = change.abs() > TOLERANCE && count.abs_diff(before) > CHANCE;
            let said = match changed {
                true if count > before => "  MORE",
                true => "  less",
                false => "",
            };
            sound &= !changed || count < before;
            println!("{before:>12} {count:>12} {change:>+7.1}%  {name}{said}");
        }
        for name in expected.each.keys().filter(|name| !self.each.contains_key(*name)) {
            println!("{:>34}  {name}: in the file only", "");
            sound = false;
        }
        if !same {
            println!("NOT COMPARED: the counts in the file are another toolchain's.");
            println!("  file: {}\n  here: {}", expected.toolchain, self.toolchain);
            return true;
        }
        if !sound {
            println!(
                "more than {TOLERANCE} % above the file, or the file is not whole. If it must be so:"
            );
            println!("  cargo run --release --features bench --bin instructions -- --bless");
        }
        sound
    }
}

/// Lists of so many bytes. They share a system prompt and tools, so what they differ in is compared.
const LISTS: [(&str, f64); 3] =
    [("view+pairing/100k", 0.1e6), ("view+pairing/1m", 1e6), ("view+pairing/4m", 4e6)];
/// Conversations whose state is at its bound, the second twice as old as the first.
const AGES: [[&str; 2]; 2] = [
    ["turn/tasks, 1000 before", "turn/tasks, 2000 before"],
    ["turn/one task, 1000 before", "turn/one task, 2000 before"],
];
/// Kinds of conversations through the embedded store, with all that is written, and how much more may be taken at the
/// second age than at the first. What is written grows with what an event changes, not with what is remembered.
const STORED: [&str; 2] = ["tasks", "one task"];
const STORED_AGES: [u64; 2] = [10, 1000];
const STORED_MARGIN: f64 = 1.3;
/// Bodies are not of those lengths to the byte, and the allocator has its moods.
const MARGIN: f64 = 1.15;

impl Counts {
    /// Whether work grows no faster than it may.
    pub(crate) fn growth(&self) -> bool {
        let of = |name: &str| self.each.get(name).map_or(f64::NAN, |count| *count as f64);
        let a_byte = |from: usize| {
            let ((small, few), (large, many)) = (LISTS[from], LISTS[from + 1]);
            (of(large) - of(small)) / (many - few)
        };
        let mut grows =
            vec![("view and pairing, a byte more, 1 MB to 4 MB".to_owned(), a_byte(1) / a_byte(0))];
        let older = |[young, old]: [&str; 2]| (old.to_owned(), of(old) / of(young));
        grows.extend(AGES.map(older));
        let mut sound = within(&grows, MARGIN);
        let stored = STORED.map(|kind| {
            let [young, old] = STORED_AGES.map(|age| stored::name(kind, age));
            let times = of(&old) / of(&young);
            (old, times)
        });
        sound &= within(&stored, STORED_MARGIN);
        sound
    }
}

fn within(grows: &[(String, f64)], margin: f64) -> bool {
    for (what, times) in grows {
        println!("{what}: {times:.2} times what it takes before");
    }
    let sound = grows.iter().all(|(_, times)| *times <= margin);
    if !sound {
        println!("over {margin}: work grows with what is past");
    }
    sound
}

/// The compiler, the C library (its memory functions are counted, too), and what the processor offers of what
/// callgrind emulates.
pub(crate) fn toolchain() -> String {
    let first_line = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output().expect("it is on the path");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().next().unwrap_or_default().to_owned()
    };
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let library = first_line("getconf", "GNU_LIBC_VERSION");
    format!("{}, {library}, {}", first_line(&rustc, "--version"), processor())
}

#[cfg(target_arch = "x86_64")]
fn processor() -> &'static str {
    if std::arch::is_x86_feature_detected!("avx2") { "x86_64 with AVX2" } else { "x86_64" }
}

#[cfg(not(target_arch = "x86_64"))]
fn processor() -> &'static str {
    std::env::consts::ARCH
}
