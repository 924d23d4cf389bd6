//! See `tigertally_fuzz::policy`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tigertally_fuzz::policy::run(data));
