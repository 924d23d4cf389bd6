//! Request bodies as agents send them: a system prompt, tools with schemas, and turns of a user's word, calls
//! in parallel, their results and an answer. Contents are prose, program text and JSON in strings, with the
//! escapes that these bring along. Always the same bytes.

use std::fmt::Write as _;

/// A list that ends in a live run, in a body of about so many bytes.
pub(crate) fn history(bytes: usize) -> String {
    let mut words = Words::new();
    let mut body = String::from(r#"{"model":"qwen","messages":["#);
    let system = if bytes < 4096 { 1 } else { 24 };
    let _ = write!(body, r#"{{"role":"system","content":{}}}"#, words.prose(system));
    let tools = tools(if bytes < 4096 { 1 } else { 12 });
    for turn in 0.. {
        let before = body.len();
        words.turn(&mut body, turn, if bytes < 4096 { 1 } else { 16 });
        let took = body.len() - before;
        if body.len() + took + tools.len() > bytes {
            break;
        }
        words.answer(&mut body);
    }
    let _ = write!(body, r#"],"tools":{tools},"temperature":0.2,"stream":true}}"#);
    body
}

/// The same with one picture of about so many bytes in a user's message.
pub(crate) fn picture(bytes: usize) -> String {
    let data = "iVBORw0KGgoAAAANSUhEUgAAB4AAAAQ4CAIAAABnsVYUAAA+".repeat(bytes / 48);
    let url =
        format!(r#"{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{data}"}}}}"#);
    format!(
        r#"{{"model":"qwen","messages":[{{"role":"user","content":[{{"type":"text","text":"What is this?"}},{url}]}}]}}"#
    )
}

/// The `tools` of a body: `count` of them.
pub(crate) fn tools(count: usize) -> String {
    let tool = |n: usize| {
        format!(
            r#"{{"type":"function","function":{{"name":"{}","description":"Looks up an order and tells its state. Use it whenever the user asks where a parcel is.","parameters":{SCHEMA}}}}}"#,
            tool_name(n)
        )
    };
    format!("[{}]", (0..count).map(tool).collect::<Vec<_>>().join(","))
}

/// A schema such as tools have.
pub(crate) const SCHEMA: &str = r##"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"order_id":{"type":"string","pattern":"^[A-Z]{1,6}-[0-9]+$","description":"The order's number, as the user gave it."},"fields":{"type":"array","items":{"type":"string","enum":["state","carrier","eta","items"]},"maxItems":4},"amount":{"type":"number","minimum":0},"page":{"anyOf":[{"type":"integer","minimum":1},{"type":"null"}]},"options":{"type":"object","properties":{"language":{"type":"string"},"verbose":{"type":"boolean"}},"additionalProperties":false}},"required":["order_id"],"additionalProperties":false}"##;

/// Arguments that satisfy [`SCHEMA`].
pub(crate) const ARGUMENTS: &str = r#"{"order_id":"ORDER-10023","fields":["state","eta"],"amount":120000.0,"page":1,"options":{"language":"de","verbose":false}}"#;

fn tool_name(n: usize) -> String {
    format!("query_order_{n}")
}

/// Text that is always the same.
struct Words(u64);

const LIST: [&str; 16] = [
    "the",
    "order",
    "is",
    "on",
    "its",
    "way",
    "from",
    "warehouse",
    "Größe",
    "and",
    "will",
    "arrive",
    "虎符",
    "tomorrow",
    "carrier",
    "status",
];

impl Words {
    fn new() -> Self {
        Words(0x9e37_79b9_7f4a_7c15)
    }

    fn next(&mut self, below: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }

    /// Paragraphs as a JSON string.
    fn prose(&mut self, sentences: usize) -> String {
        let mut text = String::new();
        for sentence in 0..sentences {
            for _ in 0..6 + self.next(12) {
                text.push_str(LIST[self.next(LIST.len())]);
                text.push(' ');
            }
            text.push_str(if sentence % 5 == 4 { "\"so it was said\".\n\n" } else { "indeed. " });
        }
        quoted(&text)
    }

    /// Lines of a program as a JSON string: an escape a line, and some quotes.
    fn program(&mut self, lines: usize) -> String {
        let mut text = String::new();
        for line in 0..lines {
            let indent = "    ".repeat(self.next(4));
            let (one, other) = (LIST[self.next(8)], LIST[self.next(8)]);
            let _ = match line % 4 {
                0 => writeln!(text, "{indent}let {one} = {other}(\"{}\");", self.next(1000)),
                1 => writeln!(text, "{indent}if {one} != {other} {{ return None; }}"),
                2 => writeln!(text),
                _ => writeln!(text, "{indent}// {one} {other} before the {one} is read again"),
            };
        }
        quoted(&text)
    }

    /// A JSON object as a JSON string, as tools answer: an escape every few bytes.
    fn record(&mut self, rows: usize) -> String {
        let mut text = String::from(r#"{"ok":true,"rows":["#);
        for row in 0..rows {
            let comma = if row > 0 { "," } else { "" };
            let _ = write!(
                text,
                r#"{comma}{{"id":{},"state":"{}","note":"{} {}"}}"#,
                self.next(100_000),
                LIST[self.next(16)],
                LIST[self.next(16)],
                LIST[self.next(16)]
            );
        }
        text.push_str("]}");
        quoted(&text)
    }

    /// A user's word, two calls, two results.
    fn turn(&mut self, body: &mut String, turn: usize, size: usize) {
        let _ = write!(body, r#",{{"role":"user","content":{}}}"#, self.prose(size.div_ceil(8)));
        let call = |at: usize, arguments: &str| {
            let (id, name) = (id(turn, at), tool_name((turn + at) % 12));
            let arguments = quoted(arguments);
            format!(
                r#"{{"id":"{id}","type":"function","function":{{"name":"{name}","arguments":{arguments}}}}}"#
            )
        };
        let calls = [
            call(0, ARGUMENTS),
            call(1, r#"{"path":"src/main.rs","text":"line one\nline \"two\"\n"}"#),
        ];
        let calls = if size == 1 { calls[0].clone() } else { calls.join(",") };
        let _ = write!(body, r#",{{"role":"assistant","content":null,"tool_calls":[{calls}]}}"#);
        let results = [self.record(size), self.program(4 * size)];
        for (at, content) in results.into_iter().enumerate().take(if size == 1 { 1 } else { 2 }) {
            let id = id(turn, at);
            let _ = write!(body, r#",{{"role":"tool","tool_call_id":"{id}","content":{content}}}"#);
        }
    }

    fn answer(&mut self, body: &mut String) {
        let _ = write!(body, r#",{{"role":"assistant","content":{}}}"#, self.prose(8));
    }
}

fn id(turn: usize, at: usize) -> String {
    format!("call_{:08x}{:016x}", turn.wrapping_mul(2_654_435_761) & 0xffff_ffff, turn * 16 + at)
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}
