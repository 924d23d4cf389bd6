//! See `tigertally_fuzz::store`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tigertally_fuzz::store::run(data));
