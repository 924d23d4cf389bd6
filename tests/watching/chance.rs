//! Conversations by chance: an agent that errs in everything a little, before a model that does, too.

use super::{Reply, Sent};
use serde_json::{Value, json};

/// A small generator of numbers (xorshift): the same seed gives the same conversation for ever.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        let at = self.below(words.len() as u64);
        words[usize::try_from(at).unwrap()]
    }
}

/// One conversation.
pub(super) struct Talk {
    chance: Chance,
    name: String,
    header: bool,
    generation: u64,
    list: Vec<Value>,
    /// What the model says to the list that was sent last.
    said: Value,
}

impl Talk {
    pub(super) fn new(seed: u64) -> Self {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        chance.below(2);
        let header = chance.once_in(2);
        let list = vec![json!({"role": "user", "content": "Where is A1?"})];
        let name = format!("chance-{seed}");
        Talk { chance, name, header, generation: 1, list, said: Value::Null }
    }

    /// What is sent next.
    pub(super) fn next(&mut self) -> Sent {
        let list = self.erring();
        let stream = self.chance.once_in(2);
        let tool = |name: &str| {
            let text = json!({"type": "string"});
            let properties = json!({"order_id": text, "user_id": text});
            let parameters =
                json!({"type": "object", "properties": properties, "required": ["order_id"]});
            json!({"type": "function", "function": {"name": name, "parameters": parameters}})
        };
        let tools = json!([tool("get_order"), tool("refund_order"), tool("delete_order")]);
        let mut request = json!({"model": "m", "messages": list, "tools": tools, "stream": stream});
        if self.chance.once_in(12) {
            request["parallel_tool_calls"] = json!(false);
        }
        if self.chance.once_in(12) {
            request["tool_choice"] = json!(self.chance.of(&["none", "required"]));
        }
        let mut headers = vec![("x-conversation-id", self.name.clone())];
        if self.header != self.chance.once_in(15) {
            let asked = match self.chance.below(10) {
                0 => self.generation.saturating_sub(1),
                1 => self.generation + 1,
                _ => self.generation,
            };
            headers.push(("x-generation", asked.to_string()));
            self.generation = self.generation.max(asked);
        }
        if self.chance.once_in(10) {
            headers.push(("x-stainless-retry-count", "1".to_owned()));
        }
        let (said, finish) = self.model();
        let reply = if stream { streamed(&said, finish) } else { whole(&said, finish) };
        self.said = said;
        Sent { headers, body: serde_json::to_vec(&request).unwrap(), reply }
    }

    /// What was sent has passed: the conversation goes on from the model's words.
    pub(super) fn passed(&mut self) {
        if self.chance.once_in(12) {
            return; // The same list again.
        }
        let said = self.said.take();
        let calls = said["tool_calls"].as_array().cloned().unwrap_or_default();
        self.list.push(said);
        for call in &calls {
            let content = self.chance.of(&["in transit", "lost"]);
            let id = call["id"].clone();
            self.list.push(json!({"role": "tool", "tool_call_id": id, "content": content}));
        }
        if calls.is_empty() || self.chance.once_in(8) {
            let content = format!("And B{}?", self.chance.below(3));
            self.list.push(json!({"role": "user", "content": content}));
            self.generation += u64::from(self.header);
        }
    }

    /// The list, sometimes with a mistake.
    fn erring(&mut self) -> Vec<Value> {
        let mut list = self.list.clone();
        let at = self.chance.below(list.len() as u64);
        let at = usize::try_from(at).unwrap();
        match self.chance.below(16) {
            0 => drop(list.remove(at)),
            1 => list.insert(at, list[at].clone()),
            2 => list[at]["tool_call_id"] = json!("call_9"),
            3 if list[at]["role"] == "tool" => list[at]["content"] = json!("delivered"),
            4 => list.push(json!({"role": "tool", "tool_call_id": "call_1", "content": "x"})),
            5 if !list[at]["tool_calls"][0].is_null() => {
                let arguments = self.chance.of(&["{\"order_id\":\"Z9\"}", "{\"order_id\":", "[]"]);
                list[at]["tool_calls"][0]["function"]["arguments"] = json!(arguments);
            }
            6 if !list[at]["tool_calls"][0].is_null() => {
                list[at]["tool_calls"][0]["id"] = json!("");
            }
            _ => {}
        }
        self.list_or_user(list)
    }

    fn list_or_user(&self, list: Vec<Value>) -> Vec<Value> {
        if list.is_empty() { self.list.clone() } else { list }
    }

    /// The model's message, and how it ends.
    fn model(&mut self) -> (Value, &'static str) {
        let calls: Vec<Value> = (0..self.chance.below(3)).map(|_| self.call()).collect();
        if calls.is_empty() {
            return (json!({"role": "assistant", "content": "It is shipped."}), "stop");
        }
        let finish = if self.chance.once_in(10) { "length" } else { "tool_calls" };
        (json!({"role": "assistant", "content": null, "tool_calls": calls}), finish)
    }

    fn call(&mut self) -> Value {
        let name = match self.chance.below(14) {
            0 => "delete_order",
            1 => "rm_rf",
            2..=4 => "refund_order",
            _ => "get_order",
        };
        let arguments = match self.chance.below(14) {
            0 => "{\"order_id\":\"A1\",\"user_id\":\"42\"}",
            1 => "{\"order_id\":\"A1\"",
            2 => "{}",
            3 => "",
            _ => "{\"order_id\":\"A1\"}",
        };
        let id = match self.chance.below(14) {
            0 => String::new(),
            _ => format!("call_{}", self.chance.below(20)),
        };
        let function = json!({"name": name, "arguments": arguments});
        json!({"id": id, "type": "function", "function": function})
    }
}

fn whole(said: &Value, finish: &str) -> Reply {
    let choice = json!({"index": 0, "message": said, "finish_reason": finish});
    let completion = json!({"id": "x", "object": "chat.completion", "choices": [choice]});
    Reply::json(200, &completion.to_string())
}

/// The message in one event for each call, or for its text.
fn streamed(said: &Value, finish: &str) -> Reply {
    let event = |delta: Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        let chunk = json!({"id": "x", "object": "chat.completion.chunk", "choices": [choice]});
        format!("data: {chunk}\n\n").into_bytes()
    };
    let mut events = Vec::new();
    match said["tool_calls"].as_array() {
        None => events.push(event(json!({"content": said["content"]}), Value::Null)),
        Some(calls) => {
            for (index, call) in calls.iter().enumerate() {
                let mut call = call.clone();
                call["index"] = json!(index);
                events.push(event(json!({"tool_calls": [call]}), Value::Null));
            }
        }
    }
    events.push(event(json!({}), json!(finish)));
    events.push(b"data: [DONE]\n\n".to_vec());
    Reply::stream(events)
}
