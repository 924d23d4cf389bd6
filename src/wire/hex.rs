//! Numbers as ids show them: 32 hexadecimal digits. Written with each exchange, so without the machinery of `format!`.

/// The digits of a number of 128 bits.
#[derive(Clone, Copy)]
pub struct Hex([u8; 32]);

impl Hex {
    /// In lower case, with leading zeros.
    #[must_use]
    pub fn of(number: u128) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 32];
        for (pair, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(number.to_be_bytes()) {
            *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 0xf)]];
        }
        Hex(text)
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // They are ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_standard_library() {
        for number in [0, 1, 0xf, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef, 1 << 127] {
            assert_eq!(Hex::of(number).as_str(), format!("{number:032x}"));
        }
    }
}
