//! One answer in two ways: whole, and as a stream in whatever pieces and order. The verdict is the same.

use super::stream::{OFFER, hear};
use arbitrary::{Arbitrary, Result, Unstructured};
use serde_json::{Map, Value, json};
use tigertally::guard::fault::{Code, Fault};
use tigertally::guard::proposal::{self, Proposal};
use tigertally::guard::stream::Ending;
use tigertally::wire::completion::Completion;

const IDS: [&str; 6] = ["call_1", "call_2", "functions.f:0", "", "\u{1f600}", "x\"y"];
const NAMES: [&str; 6] = ["f", "get_weather", "c", "unknown", "", "F"];
const ARGUMENTS: [&str; 12] = [
    "{}",
    r#"{"a":1}"#,
    r#"{"a":"1"}"#,
    r#"{"a":1,"a":2}"#,
    r#"{"a":{"b":["}{\"",{}]}}"#,
    r#"{"a":"\ud83d"}"#,
    r#"{"a":1"#,
    r#"{"a":1}{"a":2}"#,
    "[1]",
    "",
    " null ",
    "{\"a\":1} \n",
];
const FINISHES: [&str; 5] = ["tool_calls", "stop", "length", "content_filter", "abort"];

/// One answer.
#[derive(Debug)]
struct Answer {
    choices: Vec<Choice>,
}

#[derive(Debug)]
struct Choice {
    calls: Vec<Call>,
    legacy: Option<Call>,
    text: bool,
    finish: &'static str,
}

#[derive(Debug)]
struct Call {
    id: Option<String>,
    name: Option<String>,
    arguments: Option<String>,
    custom: bool,
}

impl<'a> Arbitrary<'a> for Answer {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let count = u.int_in_range(1..=3)?;
        let choices = (0..count).map(|_| choice(u)).collect::<Result<_>>()?;
        Ok(Answer { choices })
    }
}

fn choice(u: &mut Unstructured<'_>) -> Result<Choice> {
    let count = u.int_in_range(0..=3)?;
    Ok(Choice {
        calls: (0..count).map(|_| call(u)).collect::<Result<_>>()?,
        legacy: if u.ratio(1, 8)? {
            Some(Call { id: None, custom: false, ..call(u)? })
        } else {
            None
        },
        text: u.arbitrary()?,
        finish: u.choose(&FINISHES)?,
    })
}

fn call(u: &mut Unstructured<'_>) -> Result<Call> {
    Ok(Call {
        id: word(u, &IDS)?,
        name: word(u, &NAMES)?,
        arguments: word(u, &ARGUMENTS)?,
        custom: u.ratio(1, 6)?,
    })
}

fn word(u: &mut Unstructured<'_>, known: &[&str]) -> Result<Option<String>> {
    Ok(match u.int_in_range(0..=9)? {
        0 => None,
        1 => Some(u.arbitrary::<String>()?.chars().take(40).collect()),
        _ => Some((*u.choose(known)?).to_owned()),
    })
}

/// Takes bytes as an answer, and as how it comes in pieces.
pub fn run(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let Ok(answer) = Answer::arbitrary(&mut u) else { return };
    let whole = whole(&answer).to_string();
    let completion = Completion::parse(whole.as_bytes(), 64).expect("a completion");
    let of_whole = proposal::judge(&Proposal::of(&completion), &OFFER, true);
    let Ok(stream) = streamed(&answer, &mut u) else { return };
    let heard = hear(&[stream.as_bytes()], answer.choices.len() as u64);
    assert_eq!(heard.ending, Ending::Answered, "{stream}");
    let of_stream = proposal::judge(&heard.proposal, &OFFER, true);
    // Two ids at one place, or a call without a head, are told of a stream besides; the whole answer is refused for
    // them as well, but by other words.
    if heard.faults.is_empty() {
        assert_eq!(places(&of_stream), places(&of_whole), "{stream}\n{whole}");
    }
    let refused = !(of_stream.is_empty() && heard.faults.is_empty());
    assert_eq!(refused, !of_whole.is_empty(), "{stream}\n{whole}");
}

/// What was told where, in whatever order: choices come in the order in which they begin.
fn places(faults: &[Fault]) -> Vec<(Code, String)> {
    let mut places: Vec<_> = faults.iter().map(|fault| (fault.code, fault.param.clone())).collect();
    places.sort_by(|one, other| (one.0.as_str(), &one.1).cmp(&(other.0.as_str(), &other.1)));
    places
}

fn whole(answer: &Answer) -> Value {
    let choices = answer.choices.iter().enumerate().map(|(index, choice)| {
        let mut message = json!({"role": "assistant", "content": choice.text.then_some("hi")});
        if !choice.calls.is_empty() {
            let calls: Vec<Value> =
                choice.calls.iter().map(|call| body(call, call.arguments.as_deref())).collect();
            message["tool_calls"] = calls.into();
        }
        if let Some(legacy) = &choice.legacy {
            message["function_call"] = inside(legacy, legacy.arguments.as_deref(), true).into();
        }
        json!({"index": index, "message": message, "finish_reason": choice.finish})
    });
    json!({"id": "x", "choices": choices.collect::<Vec<_>>()})
}

fn body(call: &Call, arguments: Option<&str>) -> Value {
    let mut value = json!({});
    if let Some(id) = &call.id {
        value["id"] = id.as_str().into();
    }
    let place = if call.custom { "custom" } else { "function" };
    value[place] = inside(call, arguments, true).into();
    value
}

fn inside(call: &Call, arguments: Option<&str>, head: bool) -> Map<String, Value> {
    let mut value = Map::new();
    if let Some(name) = call.name.as_ref().filter(|_| head) {
        value.insert("name".to_owned(), name.as_str().into());
    }
    if let Some(arguments) = arguments {
        let place = if call.custom { "input" } else { "arguments" };
        value.insert(place.to_owned(), arguments.into());
    }
    value
}

/// The pieces of each choice in their order, those of different choices and calls mixed.
fn streamed(answer: &Answer, u: &mut Unstructured<'_>) -> Result<String> {
    let mut queues: Vec<(usize, Vec<Vec<Value>>)> = Vec::new();
    for (index, choice) in answer.choices.iter().enumerate() {
        let mut calls = Vec::new();
        for (at, call) in choice.calls.iter().enumerate() {
            calls.push(fragments(call, u, |fragment| {
                let mut fragment = fragment;
                fragment["index"] = at.into();
                json!({"tool_calls": [fragment]})
            })?);
        }
        if let Some(legacy) = &choice.legacy {
            calls.push(fragments(
                legacy,
                u,
                |fragment| json!({"function_call": fragment["function"]}),
            )?);
        }
        if choice.text {
            calls.push(vec![json!({"content": "hi"})]);
        }
        queues.push((index, calls));
    }
    let mut stream = String::new();
    let mut tell = |index: usize, delta: Value, finish: Option<&str>| {
        let choice = json!({"index": index, "delta": delta, "finish_reason": finish});
        stream.push_str(&format!("data: {}\n\n", json!({"id": "x", "choices": [choice]})));
    };
    let mut begun = vec![0; answer.choices.len()];
    while !queues.is_empty() {
        let at = u.choose_index(queues.len())?;
        let (index, calls) = &mut queues[at];
        calls.retain(|fragments| !fragments.is_empty());
        if calls.is_empty() {
            let (index, _) = queues.remove(at);
            tell(index, json!({}), Some(answer.choices[index].finish));
            continue;
        }
        // Calls begin in their order, and go on in any.
        let next = u.choose_index(calls.len().min(begun[*index] + 1))?;
        begun[*index] = begun[*index].max(next + 1);
        let delta = calls[next].remove(0);
        if calls[next].is_empty() {
            begun[*index] -= 1;
        }
        tell(*index, delta, None);
    }
    stream.push_str("data: [DONE]\n\n");
    Ok(stream)
}

/// A call in pieces: its head with what comes first of its arguments, and the rest of those.
fn fragments(
    call: &Call,
    u: &mut Unstructured<'_>,
    place: impl Fn(Value) -> Value,
) -> Result<Vec<Value>> {
    let arguments: Vec<char> = call.arguments.iter().flat_map(|text| text.chars()).collect();
    let first = u.int_in_range(0..=arguments.len())?;
    let (head, mut rest) = arguments.split_at(first);
    let text = |piece: &[char]| piece.iter().collect::<String>();
    let arguments = call.arguments.as_ref().map(|_| text(head));
    let mut fragments = vec![place(body(call, arguments.as_deref()))];
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(u.int_in_range(1..=rest.len())?);
        let form = if call.custom { "custom" } else { "function" };
        fragments.push(place(json!({form: inside(call, Some(&text(piece)), false)})));
        rest = after;
    }
    Ok(fragments)
}
