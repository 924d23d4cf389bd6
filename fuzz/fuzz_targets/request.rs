//! See `tigertally_fuzz::request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tigertally_fuzz::request::run(data));
