//! The fuzz targets on a stable compiler: the kept corpus, the inputs that once found a fault, and a bounded number of
//! mutants by a fixed seed. `scripts/test fuzz` runs it; docs/contributing.md tells how to search further.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[expect(
    unreachable_pub,
    clippy::expect_used,
    clippy::panic,
    reason = "a library where `cargo fuzz` builds it, and a panic is what it is for"
)]
#[path = "../fuzz/src/lib.rs"]
mod targets;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use targets::{TARGETS, Target};

/// A mutant is no longer.
const LONGEST: usize = 8 << 10;

/// A test for each target, with so many mutants.
macro_rules! smoke {
    ($($name:ident $inputs:expr;)*) => {
        $(
            #[test]
            #[ignore = "scripts/test fuzz"]
            fn $name() {
                smoke(stringify!($name), targets::$name::run, $inputs);
            }
        )*

        #[test]
        fn every_target_has_its_test_its_program_and_its_corpus() {
            let names = [$(stringify!($name)),*];
            assert_eq!(names.to_vec(), TARGETS.map(|(name, _)| name));
            let root = root();
            for name in names {
                assert!(root.join(format!("fuzz_targets/{name}.rs")).is_file(), "{name}");
                assert!(!files(&root.join("corpus").join(name)).is_empty(), "{name}");
            }
        }
    };
}

smoke! {
    alike 8_000;
    arguments 8_000;
    completion 8_000;
    policy 2_000;
    request 8_000;
    sse 8_000;
    store 8_000;
    stream 8_000;
    work 100;
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

/// Runs one target. An input that fails is left in the target directory, and named.
fn smoke(name: &str, target: Target, inputs: usize) {
    let mut kept = Vec::new();
    for folder in ["regressions", "corpus"] {
        for path in files(&root().join(folder).join(name)) {
            let input = fs::read(&path).unwrap();
            attempt(target, &input, || path.clone());
            kept.push(input);
        }
    }
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    for number in 0..inputs {
        let input = mutant(&kept, &mut chance);
        attempt(target, &input, || {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}-{number}"));
            fs::write(&path, &input).unwrap();
            path
        });
    }
}

fn attempt(target: Target, input: &[u8], path: impl FnOnce() -> PathBuf) {
    // Its own panic has told what is wrong.
    if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
        panic!("with {}", path().display());
    }
}

/// The files of a folder, in the order of their names.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// A kept input with a few changes.
fn mutant(kept: &[Vec<u8>], chance: &mut Chance) -> Vec<u8> {
    const WORDS: [&[u8]; 28] = [
        b"{",
        b"}",
        b"[",
        b"]",
        b"\"",
        b":",
        b",",
        b"\\",
        b"\n",
        b"\r",
        b"\r\n\r\n",
        b"data: ",
        b"[DONE]",
        b"\xef\xbb\xbf",
        b"\xe2\x80\xa8",
        b"\\ud83d",
        b"\\u0061",
        b"null",
        b"1e999",
        b"-0",
        b"{\"choices\":[{\"delta\":{\"tool_calls\":[{}]}}]}",
        b"\"id\":\"a\",",
        b"\"index\":1,",
        b"tool_calls",
        b"role",
        b"\0",
        b"\xff",
        b"[[[[[[[[",
    ];
    let mut input = chance.of(kept).clone();
    for _ in 0..=chance.below(6) {
        let at = chance.below(input.len() + 1);
        let end = (at + chance.below(32)).min(input.len());
        match chance.below(7) {
            0 if at < input.len() => input[at] = chance.below(256) as u8,
            1 if at < input.len() => input[at] ^= 1 << chance.below(8),
            2 => drop(input.drain(at..end)),
            3 => input.splice(at..at, chance.of(&WORDS).iter().copied()).for_each(drop),
            4 => {
                let again = input[at..end].repeat(1 + chance.below(8));
                input.splice(at..at, again).for_each(drop);
            }
            5 => {
                let other = chance.of(kept);
                let from = chance.below(other.len() + 1);
                let to = (from + chance.below(512)).min(other.len());
                input.splice(at..end, other[from..to].iter().copied()).for_each(drop);
            }
            _ => input.truncate(at.max(1)),
        }
    }
    input.truncate(LONGEST);
    input
}

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound.max(1) as u64) as usize
    }

    fn of<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        &among[self.below(among.len())]
    }
}
