//! A chunk of text with its text cut out: what the next chunk is known by.
//!
//! The text chunks of a stream are alike but for the text in them, and there is one a token. When one was read
//! and judged, the next need not be: if all around its text is the same byte for byte, and one whole JSON string
//! stands in the text's place, nothing that is judged differs. No key is searched for, so none can slip by in
//! another spelling.

use super::Chunk;
use crate::wire::json::{Field, utf8};
use crate::wire::scan::Scanner;

/// The latest chunk without its text. Fits nothing at first.
#[derive(Debug, Default)]
pub struct Stencil {
    /// Up to the text's opening quote, and from its closing quote on.
    around: Vec<u8>,
    /// Where the closing quote stands in it.
    cut: usize,
}

impl Stencil {
    /// Takes the shape of a chunk that was read from this payload. What holds anything but one choice's text
    /// gives none: then nothing fits, until the next.
    pub fn take(&mut self, payload: &[u8], chunk: &Chunk<'_>) {
        self.around.clear();
        let Some(text) = chunk.text_alone() else { return };
        let (Some(before), Some(after)) = (payload.get(..text.start), payload.get(text.end..))
        else {
            return;
        };
        self.around.extend_from_slice(before);
        self.around.extend_from_slice(after);
        self.cut = before.len();
    }

    /// Whether a payload is that chunk with another text, and so would be read as the same [`Chunk`].
    #[must_use]
    pub fn fits(&self, payload: &[u8]) -> bool {
        let (before, after) = self.around.split_at(self.cut.min(self.around.len()));
        let inside = payload.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        if inside.is_none() || self.around.is_empty() {
            return false;
        }
        // With both its quotes.
        let quoted = payload.get(before.len() - 1..=payload.len() - after.len());
        quoted.is_some_and(is_string)
    }
}

fn is_string(bytes: &[u8]) -> bool {
    let Ok(text) = utf8(bytes) else { return false };
    let mut scanner = Scanner::new(text, 0);
    scanner.text().is_ok() && scanner.offset() == text.len()
}

impl Chunk<'_> {
    /// Where its text stands in the payload, if it has one choice, and that has text and nothing else that is
    /// judged.
    fn text_alone(&self) -> Option<std::ops::Range<usize>> {
        let [choice] = self.choices.as_slice() else { return None };
        let more = self.error
            || choice.misplaced
            || choice.function_call.is_some()
            || !choice.tool_calls.is_empty()
            || !matches!(choice.finish_reason, Field::Absent | Field::Null);
        choice.text.clone().filter(|_| !more)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn stencil(payload: &str) -> Stencil {
        let mut stencil = Stencil::default();
        stencil.take(payload.as_bytes(), &Chunk::parse(payload.as_bytes(), 16).unwrap());
        stencil
    }

    const TEXT: &str =
        r#"{"id":"x","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}"#;

    fn with(text: &str) -> String {
        TEXT.replace(r#""a""#, text)
    }

    #[test]
    fn the_same_with_another_text_fits() {
        for text in [
            r#""""#,
            r#""a""#,
            r#""b c""#,
            r#""\"\\\n\u00e9\ud83d""#,
            "\"虎符\"",
            r#"" tool_calls ""#,
        ] {
            assert!(stencil(TEXT).fits(with(text).as_bytes()), "{text}");
        }
        for member in ["content", "reasoning_content", "reasoning"] {
            let one = TEXT.replace("content", member);
            assert!(stencil(&one).fits(one.replace(r#""a""#, r#""other""#).as_bytes()), "{member}");
        }
    }

    #[test]
    fn anything_else_does_not() {
        let others = [
            "null",
            "7",
            r#""a"#,
            "\"a\nb\"",
            r#""\x""#,
            r#""a","tool_calls":[{"index":0,"id":"1"}]"#,
            r#""a","\u0074ool_calls":[{"index":0,"id":"1"}]"#,
            r#""a"},"finish_reason":"stop","x":{"y":"b""#,
            r#""a"}}],"error":{"message":"b""#,
            r#"["a"]"#,
            r#"{"a":"b"}"#,
        ];
        let stencil = stencil(TEXT);
        for text in others {
            assert!(!stencil.fits(with(text).as_bytes()), "{text}");
        }
        assert!(!stencil.fits(&with("\"\u{1}\"").into_bytes()));
        let mut broken = with(r#""ab""#).into_bytes();
        let at = broken.iter().position(|byte| *byte == b'b').unwrap();
        broken[at] = 0xff;
        assert!(!stencil.fits(&broken));
        for other in [r#"{"id":"y""#, r#"{"id":"x" "#, ""] {
            assert!(!stencil.fits(TEXT.replace(r#"{"id":"x""#, other).as_bytes()), "{other}");
        }
        assert!(!stencil.fits(b"") && !stencil.fits(b"\""));
        assert!(!stencil.fits(&TEXT.as_bytes()[..TEXT.len() - 1]));
    }

    #[test]
    fn only_a_chunk_of_text_gives_a_shape() {
        for payload in [
            r#"{"choices":[]}"#,
            r#"{"choices":[{"delta":{"content":null}}]}"#,
            r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"delta":{"content":"a","tool_calls":[{"index":0}]}}]}"#,
            r#"{"choices":[{"delta":{"content":"a","function_call":{"name":"f"}}}]}"#,
            r#"{"choices":[{"delta":{"content":"a"},"message":{"function_call":{}}}]}"#,
            r#"{"choices":[{"delta":{"content":"a"}}],"error":"x"}"#,
            r#"{"choices":[{"delta":{"content":"a"}},{"index":1,"delta":{"content":"a"}}]}"#,
            r#"{"choices":[{"message":{"content":"a"}}]}"#,
        ] {
            assert!(!stencil(payload).fits(payload.as_bytes()), "{payload}");
        }
        let mut taken = stencil(TEXT);
        let other = r#"{"choices":[]}"#;
        taken.take(other.as_bytes(), &Chunk::parse(other.as_bytes(), 16).unwrap());
        assert!(!taken.fits(TEXT.as_bytes()) && !taken.fits(other.as_bytes()) && !taken.fits(b""));
    }

    proptest! {
        /// Whatever stands in the text's place: when it fits, reading gives the same chunk.
        #[test]
        fn what_fits_reads_alike(text in "[a-z\"\\\\{}:,\\[\\]u0\u{1} ]{0,12}", raw in prop::collection::vec(any::<u8>(), 0..8)) {
            for text in [text.as_bytes(), &raw] {
                let (before, after) = TEXT.as_bytes().split_at(TEXT.find(r#"a"}"#).unwrap());
                let payload = [before, text, &after[1..]].concat();
                if stencil(TEXT).fits(&payload) {
                    let shown = |chunk: &Chunk<'_>| {
                        let choice = &chunk.choices[0];
                        (format!("{:?} {:?}", chunk.id, choice.finish_reason), chunk.choices.len(), choice.tool_calls.len(), chunk.error)
                    };
                    let chunk = Chunk::parse(&payload, 16).unwrap();
                    prop_assert_eq!(shown(&chunk), shown(&Chunk::parse(TEXT.as_bytes(), 16).unwrap()));
                }
            }
        }
    }
}
