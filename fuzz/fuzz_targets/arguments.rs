//! See `tigertally_fuzz::arguments`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tigertally_fuzz::arguments::run(data));
