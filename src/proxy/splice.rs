//! The request body that goes up: the client's own bytes, in pieces, with the two exceptions spliced
//! in between them. Nothing is copied.

use crate::wire::request::Slot;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// One change: `insert` stands in place of `remove` bytes at `at`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Splice {
    /// Offset in the client's body.
    pub at: usize,
    /// How many of its bytes are left out there.
    pub remove: usize,
    /// What stands in their place.
    pub insert: Bytes,
}

impl Splice {
    /// Sets a member of the body: in place of the client's `null`, else at its beginning. `None` when
    /// the client set it. `value` is JSON.
    #[must_use]
    pub(crate) fn member(slot: Slot, begin: usize, key: &str, value: &str) -> Option<Self> {
        match slot {
            Slot::Set => None,
            Slot::Null(at) => {
                Some(Splice { at, remove: "null".len(), insert: value.to_owned().into() })
            }
            Slot::Absent => {
                let insert = format!("\"{key}\":{value},").into();
                Some(Splice { at: begin, remove: 0, insert })
            }
        }
    }
}

/// A body of several pieces with a known length.
#[derive(Clone, Debug, Default)]
pub(crate) struct Segments {
    pieces: VecDeque<Bytes>,
    length: u64,
}

impl Segments {
    /// The body with the splices in it. They must not overlap.
    #[must_use]
    pub(crate) fn new(body: &Bytes, mut splices: Vec<Splice>) -> Self {
        splices.sort_by_key(|splice| splice.at);
        let mut segments = Segments::default();
        let mut from = 0;
        for splice in splices {
            let at = splice.at.clamp(from, body.len());
            segments.push(body.slice(from..at));
            segments.push(splice.insert);
            from = at.saturating_add(splice.remove).min(body.len());
        }
        segments.push(body.slice(from..));
        segments
    }

    /// A body of these pieces.
    #[must_use]
    pub(super) fn of(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        let mut segments = Segments::default();
        pieces.into_iter().for_each(|piece| segments.push(piece));
        segments
    }

    fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.length += piece.len() as u64;
            self.pieces.push_back(piece);
        }
    }

    /// All of it in one piece, for the re-check after a substitution.
    #[must_use]
    pub(crate) fn joined(&self) -> Bytes {
        if self.pieces.len() == 1 {
            return self.pieces[0].clone();
        }
        self.pieces.iter().flatten().copied().collect()
    }
}

impl Body for Segments {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.pop_front();
        self.length -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}

/// Where `part`, a slice of `whole`, begins in it; `None` when it is not one.
#[must_use]
pub(super) fn offset_in(whole: &[u8], part: &[u8]) -> Option<usize> {
    let at = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    (at.checked_add(part.len())? <= whole.len()).then_some(at)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::wire::request::ChatRequest;

    #[test]
    fn a_member_is_set_once() {
        let table = [
            (r#" {"messages":[]}"#, Some(r#" {"rid":"x","messages":[]}"#)),
            (r#"{"rid": null ,"messages":[]}"#, Some(r#"{"rid": "x" ,"messages":[]}"#)),
            ("{\"messages\":[],\"r\\u0069d\":null}", Some("{\"messages\":[],\"r\\u0069d\":\"x\"}")),
            (r#"{"messages":[{"rid":null}]}"#, Some(r#"{"rid":"x","messages":[{"rid":null}]}"#)),
            (r#"{"rid":"own","messages":[]}"#, None),
            (r#"{"rid":["own"],"messages":[]}"#, None),
        ];
        for (body, wanted) in table {
            let request = ChatRequest::parse(body.as_bytes(), 8).unwrap();
            let splice = Splice::member(request.rid, request.splice_at, "rid", "\"x\"");
            let sent = splice
                .map(|splice| Segments::new(&Bytes::from(body), vec![splice]).joined().to_vec());
            assert_eq!(sent.as_deref(), wanted.map(str::as_bytes), "{body}");
            if let Some(sent) = sent {
                let again = ChatRequest::parse(&sent, 8).unwrap();
                assert_eq!(again.rid, Slot::Set, "{body}");
            }
        }
    }

    #[test]
    fn splices_stand_where_they_should_and_the_rest_is_untouched() {
        let body = Bytes::from_static(b"{\"a\":1,\"b\":22}");
        let splices = vec![
            Splice { at: 11, remove: 2, insert: Bytes::from_static(b"333") },
            Splice { at: 1, remove: 0, insert: Bytes::from_static(b"\"rid\":\"x\",") },
        ];
        let segments = Segments::new(&body, splices);
        assert_eq!(segments.size_hint().exact(), Some(25));
        assert_eq!(&segments.joined()[..], b"{\"rid\":\"x\",\"a\":1,\"b\":333}");
        assert_eq!(Segments::new(&body, Vec::new()).joined().as_ptr(), body.as_ptr());
    }
}
