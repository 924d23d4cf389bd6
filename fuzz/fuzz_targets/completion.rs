//! See `tigertally_fuzz::completion`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tigertally_fuzz::completion::run(data));
