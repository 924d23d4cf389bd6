//! See `tigertally_fuzz::stream`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tigertally_fuzz::stream::run(data));
