//! W3C's `traceparent`, version 00 (<https://www.w3.org/TR/trace-context/>, section 3.2).

use crate::wire::hex::Hex;

/// A span as the next one knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace; never zero.
    pub trace: u128,
    /// The span; never zero.
    pub span: u64,
    /// Whether it is recorded.
    pub sampled: bool,
}

impl TraceParent {
    /// Reads the header. Of a later version, what this one knows, as its section 4.3 says.
    #[must_use]
    pub fn read(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?.trim();
        let mut parts = text.splitn(4, '-');
        let version = hex(parts.next()?, 2)?;
        let (trace, span) = (hex(parts.next()?, 32)?, hex(parts.next()?, 16)?);
        let rest = parts.next()?;
        let (flags, more) = rest.split_at_checked(2)?;
        let flags = hex(flags, 2)?;
        let ends_well = more.is_empty() || (version > 0 && more.starts_with('-'));
        if version == 0xff || trace == 0 || span == 0 || !ends_well {
            return None;
        }
        let span = u64::try_from(span).ok()?;
        Some(TraceParent { trace, span, sampled: flags & 1 == 1 })
    }
}

/// So many digits, in lower case.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let right = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != digits || !text.bytes().all(right) {
        return None;
    }
    u128::from_str_radix(text, 16).ok()
}

impl TraceParent {
    /// The header.
    #[must_use]
    pub(super) fn written(&self) -> [u8; 55] {
        let mut text = *b"00-________________________________-________________-00";
        text[3..35].copy_from_slice(Hex::of(self.trace).as_str().as_bytes());
        text[36..52].copy_from_slice(&Hex::of(self.span.into()).as_str().as_bytes()[16..]);
        text[54] = if self.sampled { b'1' } else { b'0' };
        text
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_parent_is_read_and_written_as_the_standard_says() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent = TraceParent::read(text.as_bytes()).unwrap();
        assert_eq!(parent.written(), text.as_bytes());
        assert!(parent.sampled);
        for sound in [
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-02-what-the-future-will-be-like",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-02",
        ] {
            assert!(!TraceParent::read(sound.as_bytes()).unwrap().sampled, "{sound}");
        }
    }

    #[test]
    fn what_is_no_parent_is_none() {
        for bad in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0\u{e4}",
        ] {
            assert_eq!(TraceParent::read(bad.as_bytes()), None, "{bad}");
        }
    }
}
