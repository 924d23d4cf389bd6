//! One streamed answer: pieces, each after a wait, each with its stamp.

use super::{LONG, Open, call};
use crate::plan::{Act, Kind, Step};
use crate::world::Call;
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Sleep;

enum Piece {
    Delta(Value),
    /// The last piece of a sound call.
    LastOfCall(Value, Call),
    Finish(&'static str),
    Error,
    Done,
}

/// A stream: pieces, each after a wait.
pub(super) struct Script {
    open: Open,
    order: String,
    pieces: VecDeque<(Duration, Piece)>,
    sleep: Option<Pin<Box<Sleep>>>,
    sequence: u64,
}

impl Script {
    pub(super) fn new(open: Open, order: &str, kind: Kind, step: Step) -> Self {
        let gap = Duration::from_millis(step.gap);
        let mut pieces = VecDeque::new();
        for place in 0..step.pieces {
            let stalls = step.act == Act::Stalled && place == step.pieces / 2;
            let text = format!("{order}:{}", "t".repeat(step.size));
            let wait = if stalls { LONG } else { gap };
            pieces.push_back((wait, Piece::Delta(json!({ "content": text }))));
        }
        if kind == Kind::Opening || step.act.fails() {
            Script::add_call(&mut pieces, call(order, open.number, step), step.act, gap);
        } else {
            pieces.push_back((gap, Piece::Finish("stop")));
            pieces.push_back((gap, Piece::Done));
        }
        Script { open, order: order.to_owned(), pieces, sleep: None, sequence: 0 }
    }

    fn add_call(pieces: &mut VecDeque<(Duration, Piece)>, call: Call, act: Act, gap: Duration) {
        let function = json!({"name": call.name, "arguments": ""});
        let head = json!({"index": 0, "id": call.id, "type": "function", "function": function});
        pieces.push_back((gap, Piece::Delta(json!({ "tool_calls": [head] }))));
        let (first, second) = call.arguments.split_at(call.arguments.len() / 2);
        let more =
            |text: &str| json!({"tool_calls": [{"index": 0, "function": {"arguments": text}}]});
        pieces.push_back((gap, Piece::Delta(more(first))));
        let last = more(second);
        match act {
            Act::Error => pieces.push_back((gap, Piece::Error)),
            _ if act.fails() => pieces.push_back((gap, Piece::Delta(last))),
            _ => pieces.push_back((gap, Piece::LastOfCall(last, call.clone()))),
        }
        match act {
            Act::Cut => return,
            Act::Error => {}
            _ => pieces.push_back((gap, Piece::Finish("tool_calls"))),
        }
        pieces.push_back((gap, Piece::Done));
    }

    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some((wait, _)) = self.pieces.front() else { return Poll::Ready(None) };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(*wait)));
        ready!(sleep.as_mut().poll(cx));
        self.sleep = None;
        if self.open.aborted() {
            // What was aborted says nothing more; its connection is about to close.
            return Poll::Pending;
        }
        let Some((_, piece)) = self.pieces.pop_front() else { return Poll::Ready(None) };
        let event = self.event(piece);
        let (sent, complete) = (self.sequence, self.pieces.is_empty());
        self.open.world.change(self.open.number, |work| {
            work.sent = sent;
            work.complete = complete;
        });
        Poll::Ready(Some(event))
    }

    fn event(&mut self, piece: Piece) -> Bytes {
        let (number, at, sequence) = (self.open.number, self.open.world.now(), self.sequence);
        self.sequence += 1;
        let (delta, finish) = match piece {
            Piece::Done => {
                return Bytes::from(format!(": {number} {sequence} {at}\ndata: [DONE]\n\n"));
            }
            Piece::Error => {
                let error = json!({"message": "boom", "code": "boom"});
                let event = json!({"error": error, "u": number, "seq": sequence, "at": at,
                    "order": self.order});
                return Bytes::from(format!("data: {event}\n\n"));
            }
            Piece::Delta(delta) => (delta, None),
            Piece::LastOfCall(delta, call) => {
                self.open.world.change(number, |work| work.call = Some(call));
                (delta, None)
            }
            Piece::Finish(reason) => (json!({}), Some(reason)),
        };
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        let event = json!({"id": format!("x{number}"), "object": "chat.completion.chunk",
            "u": number, "seq": sequence, "at": at, "order": self.order, "choices": [choice]});
        Bytes::from(format!("data: {event}\n\n"))
    }
}
