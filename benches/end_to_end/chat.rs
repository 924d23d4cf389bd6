//! The chats that the load generator holds: what an agent's client sends, turn by turn.
//!
//! A request is three pieces that are written one behind the other, and only the middle one is made anew:
//! the system message with the settled history behind it, which gives the body its size; the messages of
//! the latest tasks; and the model and the tools. A task is two exchanges: the user asks and the model calls a
//! tool, then the result goes up and the model answers. What the upstream is to answer stands in the last
//! message's text: gateways that read requests and write them anew drop fields, but never that.

use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a plan begins with, see [`Plan`].
pub(crate) const PLAN: &str = "[bench ";
/// The tool that is called.
pub(crate) const TOOL: &str = "get_order_status";

/// What the upstream answers with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answer {
    /// One JSON body with a text of so many bytes.
    Whole { bytes: usize },
    /// So many chunks of text, one each `pace` microseconds; 0: as fast as they go out.
    Stream { chunks: usize, pace: u64 },
}

/// What one request tells the upstream: the answer, and the call in it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) answer: Answer,
    pub(crate) call: Option<String>,
}

impl Plan {
    fn write(&self, out: &mut String) {
        let (kind, count, pace) = match self.answer {
            Answer::Whole { bytes } => ("whole", bytes, 0),
            Answer::Stream { chunks, pace } => ("stream", chunks, pace),
        };
        let call = self.call.as_deref().unwrap_or("-");
        let _ = write!(out, "{PLAN}{kind} {count} {pace} {call}]");
    }

    /// Reads the last of a body; `None` when there is none.
    pub(crate) fn find(body: &[u8]) -> Option<Plan> {
        let start = memchr::memmem::rfind(body, PLAN.as_bytes())? + PLAN.len();
        let end = start + memchr::memchr(b']', &body[start..])?;
        let mut words = std::str::from_utf8(&body[start..end]).ok()?.split(' ');
        let (kind, count) = (words.next()?, words.next()?.parse().ok()?);
        let pace = words.next()?.parse().ok()?;
        let call = words.next().filter(|call| *call != "-").map(str::to_owned);
        let answer = match kind {
            "whole" => Answer::Whole { bytes: count },
            "stream" => Answer::Stream { chunks: count, pace },
            _ => return None,
        };
        Some(Plan { answer, call })
    }
}

/// What all chats of one size have in common.
pub(crate) struct Script {
    head: Bytes,
    tail: Bytes,
}

impl Script {
    /// Whose requests have about `bytes`.
    pub(crate) fn of_size(bytes: usize) -> Arc<Script> {
        let large = bytes > 4096;
        let tail = format!("],\"model\":\"bench-model\",\"tools\":[{}]", tools(large));
        let mut head = String::with_capacity(bytes + 8192);
        head.push_str("{\"messages\":[{\"role\":\"system\",\"content\":\"");
        head.push_str(
            "You are the order desk of a shop. Look an order up before you speak of it.\"}",
        );
        let mut run = 0;
        while large && head.len() + tail.len() < bytes {
            settled(&mut head, run, bytes);
            run += 1;
        }
        Arc::new(Script { head: head.into(), tail: tail.into() })
    }
}

/// One settled task of the history: a question, one call or two, the results, an answer.
fn settled(head: &mut String, run: usize, bytes: usize) {
    let result = if bytes > 1_000_000 { 24_000 } else { 2_400 };
    let _ = write!(head, ",{{\"role\":\"user\",\"content\":\"{}\"}}", prose(run, 300));
    let calls = 1 + run % 2;
    head.push_str(",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[");
    for call in 0..calls {
        let comma = if call > 0 { "," } else { "" };
        let _ = write!(
            head,
            "{comma}{{\"id\":\"call_h{run}x{call}\",\"type\":\"function\",\"function\":{{\"name\":\"{TOOL}\",\
             \"arguments\":\"{{\\\"order_id\\\":\\\"A-{run}-{call}\\\",\\\"detail\\\":\\\"full\\\"}}\"}}}}"
        );
    }
    head.push_str("]}");
    for call in 0..calls {
        let _ = write!(
            head,
            ",{{\"role\":\"tool\",\"tool_call_id\":\"call_h{run}x{call}\",\"content\":\"{{\\\"ok\\\":true,\
             \\\"note\\\":\\\"{}\\\"}}\"}}",
            prose(run + call, result)
        );
    }
    let _ = write!(head, ",{{\"role\":\"assistant\",\"content\":\"{}\"}}", prose(run + 7, 900));
}

/// Text as it stands in such bodies: words, and now and then a line's end, a quote, a letter beyond ASCII.
fn prose(seed: usize, bytes: usize) -> String {
    const WORDS: [&str; 16] = [
        "order", "parcel", "was", "sent", "on", "Tuesday", "and", "the", "carrier", "says", "it",
        "reaches", "the", "depot", "tomorrow", "訂單",
    ];
    let mut text = String::with_capacity(bytes + 16);
    let mut at = seed;
    while text.len() < bytes {
        text.push_str(WORDS[at % WORDS.len()]);
        text.push_str(match at % 29 {
            0 => ".\\n",
            13 => " \\\"A-17\\\" ",
            _ => " ",
        });
        at = at.wrapping_mul(31).wrapping_add(7) % 65_521;
    }
    text
}

fn tools(large: bool) -> String {
    let mut tools = tool(TOOL, "Where an order is");
    if large {
        for (name, what) in [
            ("list_orders", "The orders of the user that asks"),
            ("refund_order", "Gives the money of an order back"),
            ("open_ticket", "Hands the chat to a person, with a summary"),
        ] {
            tools.push(',');
            tools.push_str(&tool(name, what));
        }
    }
    tools
}

fn tool(name: &str, what: &str) -> String {
    format!(
        "{{\"type\":\"function\",\"function\":{{\"name\":\"{name}\",\"description\":\"{what}\",\"parameters\":\
         {{\"type\":\"object\",\"properties\":{{\"order_id\":{{\"type\":\"string\"}}}},\
         \"required\":[\"order_id\"]}}}}}}"
    )
}

/// One request: its body in pieces, and whose it is.
pub(crate) struct Ask {
    pub(crate) pieces: [Bytes; 3],
    pub(crate) conversation: String,
    pub(crate) generation: u64,
}

/// How long a conversation lives, in tasks, and how many of its latest tasks its client still sends.
#[derive(Clone, Copy)]
pub(crate) struct Life {
    pub(crate) tasks: u64,
    pub(crate) kept: usize,
}

impl Life {
    /// An afternoon's chat: the client trims what is older, so that all requests are about one size.
    pub(crate) const USUAL: Life = Life { tasks: 8, kept: 2 };
}

/// One conversation after another, as one client holds them. It asks in turn ([`Flow::ask`]) and is told when
/// the answer was there ([`Flow::answered`]); after a failure it begins anew ([`Flow::renew`]).
pub(crate) struct Flow {
    script: Arc<Script>,
    life: Life,
    conversation: String,
    generation: u64,
    /// The messages of each task that is still sent; the last is the one under way.
    tasks: VecDeque<String>,
    /// The call that was answered with, while its result has not gone up.
    call: String,
    awaits_result: bool,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

/// Told apart from all others of this run. Mixed, so that it looks as minted ids do.
fn mint() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Flow {
    pub(crate) fn new(script: &Arc<Script>, life: Life) -> Flow {
        let mut flow = Flow {
            script: Arc::clone(script),
            life,
            conversation: String::new(),
            generation: 0,
            tasks: VecDeque::new(),
            call: String::new(),
            awaits_result: false,
        };
        flow.renew();
        flow
    }

    /// Begins a new conversation.
    pub(crate) fn renew(&mut self) {
        self.conversation = format!("chat-{:016x}", mint());
        self.generation = 1;
        self.tasks.clear();
        self.open();
    }

    /// Whether the next request begins a task.
    pub(crate) fn is_between_tasks(&self) -> bool {
        !self.awaits_result
    }

    /// The next request. After it, [`Flow::answered`] or [`Flow::renew`].
    pub(crate) fn ask(&mut self, answer: Answer) -> Ask {
        let (call, task) = (&self.call, self.tasks.back_mut().unwrap());
        if self.awaits_result {
            let _ = write!(
                task,
                ",{{\"role\":\"tool\",\"tool_call_id\":\"{call}\",\"content\":\"{{\\\"ok\\\":true,\
                 \\\"state\\\":\\\"in transit\\\",\\\"note\\\":\\\""
            );
            Plan { answer, call: None }.write(task);
            task.push_str("\\\"}\"}");
        } else {
            task.push_str(",{\"role\":\"user\",\"content\":\"Where is order A-17? ");
            Plan { answer, call: Some(call.clone()) }.write(task);
            task.push_str("\"}");
        }
        let end: &[u8] =
            if matches!(answer, Answer::Stream { .. }) { b",\"stream\":true}" } else { b"}" };
        let middle: String = self.tasks.iter().map(String::as_str).collect();
        Ask {
            pieces: [
                self.script.head.clone(),
                middle.into(),
                [&self.script.tail[..], end].concat().into(),
            ],
            conversation: self.conversation.clone(),
            generation: self.generation,
        }
    }

    /// The answer came as planned: the next request follows on it.
    pub(crate) fn answered(&mut self) {
        let (call, task) = (&self.call, self.tasks.back_mut().unwrap());
        if self.awaits_result {
            task.push_str(
                ",{\"role\":\"assistant\",\"content\":\"It is on its way, due tomorrow.\"}",
            );
            self.generation += 1;
            if self.generation > self.life.tasks {
                self.renew();
            } else {
                self.open();
            }
        } else {
            let _ = write!(
                task,
                ",{{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{{\"id\":\"{call}\",\"type\":\
                 \"function\",\"function\":{{\"name\":\"{TOOL}\",\"arguments\":\
                 \"{{\\\"order_id\\\":\\\"A-17\\\"}}\"}}}}]}}"
            );
            self.awaits_result = true;
        }
    }

    /// Begins a task.
    fn open(&mut self) {
        while self.tasks.len() >= self.life.kept.max(1) {
            self.tasks.pop_front();
        }
        self.tasks.push_back(String::new());
        self.call = format!("call_{:016x}", mint());
        self.awaits_result = false;
    }
}
