//! See `tigertally_fuzz::alike`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tigertally_fuzz::alike::run(data));
