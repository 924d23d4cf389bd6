//! What clients and models say, in few words.

use crate::gateway::{Answer, Reply};
use serde_json::{Value, json};

/// One call of a model: its id, its tool, its arguments as text.
#[derive(Clone, Copy)]
pub(crate) struct Call(pub(crate) &'static str, pub(crate) &'static str, pub(crate) &'static str);

impl Call {
    fn said(self) -> Value {
        let function = json!({"name": self.1, "arguments": self.2});
        json!({"id": self.0, "type": "function", "function": function})
    }
}

/// A user's message.
pub(crate) fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// A model's message with these calls.
pub(crate) fn calls(calls: &[Call]) -> Value {
    let calls: Vec<Value> = calls.iter().map(|call| call.said()).collect();
    json!({"role": "assistant", "content": null, "tool_calls": calls})
}

/// A tool's result.
pub(crate) fn result(id: &str, content: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": content})
}

/// A request with these messages that offers `get_order`, `refund_order` and `delete_order`.
pub(crate) fn request(messages: &[Value], stream: bool) -> Value {
    let tool = |name: &str| {
        let properties = json!({"order_id": {"type": "string"}, "amount": {"type": "number"}});
        let parameters =
            json!({"type": "object", "properties": properties, "required": ["order_id"]});
        json!({"type": "function", "function": {"name": name, "parameters": parameters}})
    };
    let tools = json!([tool("get_order"), tool("refund_order"), tool("delete_order")]);
    json!({"model": "m", "messages": messages, "tools": tools, "stream": stream})
}

/// A model's message as a whole answer.
pub(crate) fn whole(message: &Value, finish: &str) -> Reply {
    let choice = json!({"index": 0, "message": message, "finish_reason": finish});
    let completion = json!({"id": "x", "object": "chat.completion", "choices": [choice]});
    Reply::json(200, &completion.to_string())
}

/// The same as a stream, each call's arguments in two pieces.
pub(crate) fn streamed(message: &Value, finish: &str) -> Reply {
    let event = |delta: Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        let chunk = json!({"id": "x", "object": "chat.completion.chunk", "choices": [choice]});
        format!("data: {chunk}\n\n").into_bytes()
    };
    let mut events = vec![event(json!({"role": "assistant", "content": "Well."}), Value::Null)];
    let said = message["tool_calls"].as_array();
    for (index, call) in said.into_iter().flatten().enumerate() {
        let text = call["function"]["arguments"].as_str().unwrap();
        let half = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap();
        let mut head = call.clone();
        head["index"] = json!(index);
        head["function"]["arguments"] = json!(text[..half]);
        events.push(event(json!({"tool_calls": [head]}), Value::Null));
        let rest = json!({"index": index, "function": {"arguments": text[half..]}});
        events.push(event(json!({"tool_calls": [rest]}), Value::Null));
    }
    events.push(event(json!({}), json!(finish)));
    events.push(b"data: [DONE]\n\n".to_vec());
    Reply::stream(events)
}

/// A model's text.
pub(crate) fn text(stream: bool) -> Reply {
    Reply::plain(json!({"stream": stream}).to_string().as_bytes())
}

/// The error of a refusal: of the body, or of the stream's last event.
pub(crate) fn error(answer: &Answer) -> Value {
    let body = if answer.is_stream() {
        answer.events().pop().unwrap_or(Value::Null)
    } else {
        serde_json::from_slice(&answer.body).unwrap_or(Value::Null)
    };
    body["error"].clone()
}
