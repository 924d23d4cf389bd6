//! See `tigertally_fuzz::work`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tigertally_fuzz::work::run(data));
