//! How far a JSON string goes on before something in it needs a look.
//!
//! Sixteen bytes are compared at once, by the vector instructions that every processor of its kind has, and each
//! block gives a bit for each byte that may end a plain stretch. Texts of programs or of JSON hold an escape every few
//! bytes: those of two characters are passed bit by bit, without a new search.

use super::Escapes;
use wide::u8x16;

const BLOCK: usize = 16;
/// Blocks without a special byte after which text counts as long and plain, such as a picture.
const BLOCKS_FIRST: usize = 16;

/// How many bytes from `at` on are plain or escapes of two characters: up to the quote, a control character, or
/// an escape that needs a closer look.
#[inline]
pub(super) fn plain_length(bytes: &[u8], at: usize, escapes: &mut Escapes) -> usize {
    let start = at;
    let (mut at, mut plain) = (at, 0);
    while let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk::<BLOCK>()) {
        let mut specials = specials(*block);
        let mut next = at + BLOCK;
        if specials == 0 {
            plain += 1;
            if plain == BLOCKS_FIRST {
                next += long_plain_length(bytes.get(next..).unwrap_or_default());
                plain = 0;
            }
            at = next;
            continue;
        }
        plain = 0;
        while specials != 0 {
            let place = at + specials.trailing_zeros() as usize;
            if bytes[place] != b'\\' || !bytes.get(place + 1).is_some_and(|&byte| is_short(byte)) {
                return place - start;
            }
            *escapes = (*escapes).max(Escapes::Short);
            // The escaped character is passed as well, in this block or the next.
            next = next.max(place + 2);
            specials &= !(0b11 << (place - at));
        }
        at = next;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    at - start + rest.iter().position(|&byte| is_special(byte)).unwrap_or(rest.len())
}

/// The same of text that was plain for long, without its escapes: by the widest vectors that there are.
fn long_plain_length(bytes: &[u8]) -> usize {
    let end = memchr::memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
    let plain = &bytes[..end];
    // Without a branch a byte, which the compiler turns into vector code.
    if plain.iter().fold(u8::MAX, |least, &byte| least.min(byte)) > CONTROL {
        return end;
    }
    plain.iter().position(|&byte| byte <= CONTROL).unwrap_or(end)
}

/// Whether the character makes an escape of two that RFC 8785 would write as well.
#[inline]
fn is_short(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't')
}

/// Ends a plain stretch of a string: the quote, a backslash, or a control character.
#[inline]
fn is_special(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte <= CONTROL
}

/// The highest of the control characters that JSON escapes.
const CONTROL: u8 = 0x1f;

/// A bit for each special byte, the first in the lowest place.
#[inline]
fn specials(block: [u8; BLOCK]) -> u32 {
    let bytes = u8x16::new(block);
    let quote = bytes.simd_eq(u8x16::splat(b'"'));
    let backslash = bytes.simd_eq(u8x16::splat(b'\\'));
    let control = bytes.min(u8x16::splat(CONTROL)).simd_eq(bytes);
    (quote | backslash | control).to_bitmask()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_string_ends_at_its_first_special_byte_wherever_that_is() {
        let length = |text: &str| plain_length(text.as_bytes(), 0, &mut Escapes::None);
        for plain in 0..600 {
            let text = "x".repeat(plain);
            assert_eq!(length(&text), plain);
            for special in ["\"", "\\u", "\\/", "\\x", "\u{1f}"] {
                assert_eq!(length(&format!("{text}{special}{text}")), plain, "{special}");
            }
        }
    }

    #[test]
    fn each_byte_is_special_or_not_wherever_it_stands() {
        for byte in 0..=u8::MAX {
            for place in 0..BLOCK {
                let mut block = [b'x'; BLOCK];
                block[place] = byte;
                assert_eq!(specials(block), u32::from(is_special(byte)) << place, "{byte}");
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
            prop_assert!(before + found == at || (stops && bytes.len() - before - found < BLOCK));
            prop_assert!(before + found != at || escapes == some);
        }
    }
}
