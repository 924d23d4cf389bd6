//! Bounds on time and memory, per byte that was read.
//!
//! Time is the thread's own, so that other work on the machine does not count. The bounds are wide: they hold under a
//! sanitizer, on a slow machine, and still tell work that grows with the square of what is read.

use cpu_time::ThreadTime;
use peak_alloc::PeakAlloc;
use std::time::Duration;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// What may be taken beside what is taken per byte: compiled patterns, tables that are made once.
const MEMORY_BASE: usize = 16 << 20;
/// Bytes of memory per byte read.
const MEMORY_PER_BYTE: usize = 48;

const TIME_BASE: Duration = Duration::from_millis(400);
const TIME_PER_BYTE: Duration = Duration::from_nanos(8_000);

/// Runs what reads `length` bytes, and makes sure that it keeps within the bounds.
pub fn hold<T>(length: usize, read: impl FnOnce() -> T) -> T {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let start = ThreadTime::now();
    let made = read();
    let took = start.elapsed();
    let peak = MEMORY.peak_usage().saturating_sub(before);
    let times = u32::try_from(length).unwrap_or(u32::MAX);
    assert!(took <= TIME_BASE + TIME_PER_BYTE * times, "{took:?} for {length} bytes");
    let most = MEMORY_BASE + MEMORY_PER_BYTE * length;
    assert!(peak <= most, "{peak} bytes of memory for {length} bytes");
    made
}

/// What reading took of the thread's time.
pub fn time(read: impl FnOnce()) -> Duration {
    let start = ThreadTime::now();
    read();
    start.elapsed()
}
