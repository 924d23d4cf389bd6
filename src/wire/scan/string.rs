//! How far a JSON string goes on before something in it needs a look.
//!
//! Keys and most values end within a few words, and texts of programs or of JSON hold an escape every few bytes:
//! so words of eight bytes are tested at once, and escapes of two characters are passed within a word. Long
//! plain text is searched by vector instructions.

use super::Escapes;

/// Words without an escape after which text counts as plain.
const WORDS_FIRST: usize = 6;
const WORD: usize = size_of::<u64>();

/// How many bytes from `at` on are plain or escapes of two characters: up to the quote, a control character, or
/// an escape that needs a closer look.
#[inline]
pub(super) fn plain_length(bytes: &[u8], at: usize, escapes: &mut Escapes) -> usize {
    let start = at;
    let mut at = at;
    let mut plain = 0;
    while let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk::<WORD>()) {
        let mut specials = specials(u64::from_le_bytes(*word));
        if specials == 0 {
            at += WORD;
            plain += 1;
            if plain == WORDS_FIRST {
                at += long_plain_length(bytes.get(at..).unwrap_or_default());
                plain = 0;
            }
            continue;
        }
        plain = 0;
        let mut next = at + WORD;
        while specials != 0 {
            let place = at + (specials.trailing_zeros() / 8) as usize;
            if bytes[place] != b'\\' || !bytes.get(place + 1).is_some_and(|&byte| is_short(byte)) {
                return place - start;
            }
            *escapes = (*escapes).max(Escapes::Short);
            // The escaped character is passed as well, in this word or the next.
            next = next.max(place + 2);
            specials &= u64::MAX.checked_shl(8 * (place + 2 - at) as u32).unwrap_or(0);
        }
        at = next;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    at - start + rest.iter().position(|&byte| is_special(byte)).unwrap_or(rest.len())
}

/// The same of text that was plain for long, without its escapes.
fn long_plain_length(bytes: &[u8]) -> usize {
    let end = memchr::memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
    let plain = &bytes[..end];
    // Without a branch a byte, which the compiler turns into vector code.
    if plain.iter().fold(u8::MAX, |least, &byte| least.min(byte)) >= 0x20 {
        return end;
    }
    plain.iter().position(|&byte| byte < 0x20).unwrap_or(end)
}

/// Whether the character makes an escape of two that RFC 8785 would write as well.
#[inline]
fn is_short(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't')
}

/// Ends a plain stretch of a string: the quote, a backslash, or a control character.
#[inline]
fn is_special(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < 0x20
}

/// The top bit of each special byte of eight, the first in the lowest place.
#[inline]
fn specials(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 0xff;
    const LOW: u64 = ONES * 0x7f;
    // The top bit of a byte that is not 0. No carry leaves a byte.
    let other = |word: u64| ((word & LOW) + LOW) | word;
    let quote = other(word ^ (ONES * b'"' as u64));
    let backslash = other(word ^ (ONES * b'\\' as u64));
    let control = other(word & (ONES * 0xe0));
    !(quote & backslash & control) & (ONES << 7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_string_ends_at_its_first_special_byte_wherever_that_is() {
        let length = |text: &str| plain_length(text.as_bytes(), 0, &mut Escapes::None);
        for plain in 0..300 {
            let text = "x".repeat(plain);
            assert_eq!(length(&text), plain);
            for special in ["\"", "\\u", "\\/", "\\x", "\u{1f}"] {
                assert_eq!(length(&format!("{text}{special}{text}")), plain, "{special}");
            }
        }
    }

    proptest! {
        #[test]
        fn escapes_of_two_are_passed_and_nothing_else(text in "[abn\"\\\\\u{1}\u{1f} é/u]{0,40}", before in 0usize..9) {
            let text = format!("{}{text}", "x".repeat(before));
            let mut escapes = Escapes::None;
            let found = plain_length(text.as_bytes(), before, &mut escapes);
            let (mut at, mut some) = (before, Escapes::None);
            let bytes = text.as_bytes();
            while let Some(&byte) = bytes.get(at) {
                match (byte, bytes.get(at + 1)) {
                    (b'\\', Some(&next)) if is_short(next) => {
                        some = Escapes::Short;
                        at += 2;
                    }
                    _ if is_special(byte) => break,
                    _ => at += 1,
                }
            }
            // What is left at the very end is looked at by the scanner.
            let stops = bytes.get(before + found) == Some(&b'\\');
            prop_assert!(before + found == at || (stops && bytes.len() - before - found < 2 * WORD));
            prop_assert!(before + found != at || escapes == some);
        }
    }
}
