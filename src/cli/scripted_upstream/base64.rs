//! Decodes the `[[raw:…]]` directive. RFC 4648 section 4, padding optional; also takes the URL-safe
//! alphabet, because a shell or a URL may have made it.

/// The bytes that `text` stands for; `None` when it is not base64.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    if text.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let (mut held, mut bits) = (0u32, 0u32);
    for byte in text.bytes() {
        held = (held << 6) | u32::from(sextet(byte)?);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
            held &= (1 << bits) - 1;
        }
    }
    Some(bytes)
}

fn sextet(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn decodes_the_standards_own_vectors() {
        for (text, bytes) in [
            ("", ""),
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
            ("Zm9vYmE", "fooba"),
            ("Zm9vYmFy", "foobar"),
        ] {
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        assert_eq!(decode("-_8=").as_deref(), Some(&[0xfb, 0xff][..]));
    }

    #[test]
    fn refuses_what_is_not_base64() {
        for text in ["Z", "Zm9vY", "Zm 9v", "Zm9v!"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
