//! Work that grows faster than what is read. The bytes are a target and three texts, apart at 0xff: a beginning, a middle
//! that is repeated, and an end. A 0x01 in the middle stands for the number of the repetition, so that ids, keys and
//! indices can all be different ones.

use super::{arguments, bounds, completion, policy, request, stream};
use std::time::Duration;

/// How long a short and a long text are.
const SHORT: usize = 32 << 10;
const TIMES: usize = 4;
/// What a long one may take more than so many times what a short one takes.
const SLACK: Duration = Duration::from_millis(60);

/// Takes bytes as a pattern of a text.
pub fn run(data: &[u8]) {
    let Some((&target, pattern)) = data.split_first() else { return };
    let read: fn(&[u8]) = match target % 5 {
        0 => request::read,
        1 => stream::read,
        2 => completion::read,
        3 => |data| arguments::read(std::str::from_utf8(data).unwrap_or_default()),
        _ => |data| policy::read(std::str::from_utf8(data).unwrap_or_default()),
    };
    let mut parts = pattern.splitn(3, |&byte| byte == 0xff);
    let mut part = || parts.next().unwrap_or_default();
    let (begin, middle, end) = (part(), part(), part());
    if middle.is_empty() {
        return;
    }
    let text = |length: usize| grown(begin, middle, end, length);
    let (short, long) = (text(SHORT), text(TIMES * SHORT));
    // A configuration is the operator's own, and small; the parser of TOML keeps an error for each line.
    let weight = if target % 5 == 4 { 4 } else { 1 };
    bounds::hold(long.len() * weight, || read(&long));
    let least = |data: &[u8]| (0..3).map(|_| bounds::time(|| read(data))).min().unwrap_or_default();
    let first = bounds::time(|| read(&long));
    if first <= SLACK {
        return;
    }
    let (short, long) = (least(&short), least(&long));
    let most = short * (2 * TIMES as u32) + SLACK;
    assert!(long <= most, "{TIMES} times as long, and {short:?} became {long:?}");
}

/// A text of about a length.
fn grown(begin: &[u8], middle: &[u8], end: &[u8], length: usize) -> Vec<u8> {
    let mut text = begin.to_vec();
    for number in 0.. {
        if text.len() + end.len() >= length {
            break;
        }
        for &byte in middle {
            match byte {
                1 => text.extend_from_slice(number.to_string().as_bytes()),
                other => text.push(other),
            }
        }
    }
    text.extend_from_slice(end);
    text
}
