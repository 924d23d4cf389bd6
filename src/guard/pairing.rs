//! Do the calls and results of a message list pair?
//!
//! A *run* is an assistant message with `tool_calls` and the `tool` messages right after it. Results
//! pair within their run only: ids may repeat in another run (some models count them anew each turn),
//! so a map over the whole list would pair wrong halves. Order within a run is free.
//!
//! The whole list is judged and every fault told at once, for a client sends a bad history again with
//! every request and one error at a time would take as many round trips to mend. What is told is
//! bounded per code, so that a body full of faults cannot swell into a larger answer, and no code can
//! be crowded out by another.

mod wording;

use super::arguments::arguments_object;
use super::fault::{Code, Fault, Faults};
use super::slots::Slots;
use crate::wire::json::Field;
use crate::wire::request::{ChatRequest, Message, Role, ToolCall};
use std::borrow::Cow;
use std::collections::HashMap;

/// An assistant message with `tool_calls`, and the results right after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Index of the assistant message.
    pub assistant: usize,
    /// (index of the call in it, index of the message that answers it), in the order of the answers.
    /// Holds sound pairs only: an id that two calls share pairs with nothing, a second result is left out.
    pub pairs: Vec<(usize, usize)>,
    /// Whether the model has not used its results yet: it is the last run, and nothing but
    /// instructing messages (system, developer, root) follow it. A run that such a message cut short is not live.
    pub live: bool,
}

/// The runs of a list, and everything that is wrong with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairing {
    /// All runs, in order.
    pub runs: Vec<Run>,
    /// All faults, in the order of the list.
    pub faults: Vec<Fault>,
}

/// Judges the pairing of a request's message list.
#[must_use]
pub fn judge(request: &ChatRequest<'_>) -> Pairing {
    let mut walk = Walk { max_depth: request.max_depth, ..Walk::default() };
    for (index, message) in request.messages.iter().enumerate() {
        match message.role {
            Role::Tool => walk.result(index, message),
            Role::Assistant if !message.tool_calls.is_empty() => walk.proposal(index, message),
            Role::System | Role::Developer | Role::Root => walk.close(index),
            Role::Assistant | Role::User | Role::Other => {
                walk.close(index);
                walk.settle();
            }
        }
    }
    walk.finish(request.messages.len())
}

/// The walk over the list.
#[derive(Default)]
struct Walk<'a> {
    max_depth: usize,
    runs: Vec<Run>,
    latest: Option<Latest<'a>>,
    faults: Faults,
    /// Faults of results whose id no run held so far, by that id: its call may stand further down.
    early: HashMap<Cow<'a, str>, usize>,
}

/// The run begun last.
struct Latest<'a> {
    run: Run,
    slots: Slots<'a>,
    /// The message that ended it, when one has.
    closed_by: Option<usize>,
}

impl<'a> Walk<'a> {
    /// An assistant message with calls: ends the run before it and begins one.
    fn proposal(&mut self, index: usize, message: &Message<'a>) {
        self.close(index);
        self.settle();
        let mut slots = Slots::default();
        for (position, call) in message.tool_calls.iter().enumerate() {
            let Some(id) = id(call.id) else {
                let fault = || wording::missing_call_id(index, position);
                self.faults.add(Code::MissingCallId, fault);
                self.arguments(index, position, call);
                continue;
            };
            self.point_back(&id, index);
            if let Some(first) = slots.find(&id).map(|slot| slot.call) {
                let fault = || wording::repeated_call_id(index, first, position, &id);
                self.faults.add(Code::RepeatedCallId, fault);
            }
            slots.insert(id, position);
            self.arguments(index, position, call);
        }
        let run = Run { assistant: index, pairs: Vec::new(), live: true };
        let settled = self.latest.replace(Latest { run, slots, closed_by: None });
        self.runs.extend(settled.map(|latest| latest.run));
    }

    /// A `tool` message.
    fn result(&mut self, index: usize, message: &Message<'a>) {
        let id = id(message.tool_call_id);
        if id.is_none() {
            self.faults.add(Code::MissingResultId, || wording::missing_result_id(index));
        }
        let Some(latest) = self.latest.as_mut().filter(|latest| latest.closed_by.is_none()) else {
            return self.orphan(index, id);
        };
        let Some(id) = id else { return };
        let Some(slot) = latest.slots.find(&id) else {
            let assistant = latest.run.assistant;
            let fault = || wording::unknown_result_id(index, assistant, &id);
            self.faults.add(Code::UnknownResultId, fault);
            return;
        };
        slot.answers += 1;
        if slot.answers > slot.calls {
            let first = slot.answered_by;
            let fault = || wording::repeated_result(index, first, &id);
            self.faults.add(Code::RepeatedResult, fault);
            return;
        }
        if slot.answers == 1 {
            slot.answered_by = index;
        }
        if slot.calls == 1 {
            latest.run.pairs.push((slot.call, index));
        }
    }

    /// Any other message ends the run that is open.
    fn close(&mut self, index: usize) {
        let Some(latest) = self.latest.as_mut().filter(|latest| latest.closed_by.is_none()) else {
            return;
        };
        latest.closed_by = Some(index);
        let missing: Vec<&str> = latest.slots.unanswered().collect();
        if !missing.is_empty() {
            latest.run.live = false;
            self.faults.add(Code::MissingResult, || wording::missing_result(index, &missing));
        }
    }

    /// What follows the latest run is the user's or the model's word: its results are used.
    fn settle(&mut self) {
        if let Some(latest) = &mut self.latest {
            latest.run.live = false;
        }
    }

    fn finish(mut self, end: usize) -> Pairing {
        let live = self.latest.as_ref().is_some_and(|latest| latest.run.live);
        self.close(end);
        if let Some(mut latest) = self.latest {
            // The end of the list closes a run, but nothing cut it short.
            latest.run.live = live;
            self.runs.push(latest.run);
        }
        Pairing { runs: self.runs, faults: self.faults.into_list() }
    }

    fn arguments(&mut self, index: usize, position: usize, call: &ToolCall<'_>) {
        let member = if call.custom { "custom.input" } else { "function.arguments" };
        let param = || format!("messages[{index}].tool_calls[{position}].{member}");
        let id = || id(call.id).map(Cow::into_owned);
        match call.arguments {
            Field::Absent | Field::Null => {}
            Field::Other(kind) => {
                let fault = || wording::arguments_not_string(param(), id(), kind);
                self.faults.add(Code::ArgumentsNotString, fault);
            }
            // What a custom tool takes is free text.
            Field::Text(_) if call.custom => {}
            Field::Text(text) => {
                if let Err(fault) = arguments_object(&text.decode(), self.max_depth) {
                    let fault = || wording::arguments_not_object(param(), id(), fault);
                    self.faults.add(Code::ArgumentsNotObject, fault);
                }
            }
        }
    }

    /// A result while no run is open.
    fn orphan(&mut self, index: usize, id: Option<Cow<'a, str>>) {
        let closed = self.latest.as_mut().and_then(|latest| {
            let waits = latest.slots.find(id.as_deref()?)?.answers == 0;
            waits.then_some((latest.run.assistant, latest.closed_by?))
        });
        let fault = || wording::orphan_result(index, id.as_deref(), closed);
        let told = self.faults.add(Code::OrphanResult, fault);
        if let (None, Some(id), Some(told)) = (closed, id, told) {
            self.early.insert(id, told);
        }
    }

    /// The fault of a result that stood before its call is told where the call is.
    fn point_back(&mut self, id: &str, index: usize) {
        if self.early.is_empty() {
            return;
        }
        if let Some(orphan) = self.early.remove(id).and_then(|at| self.faults.get_mut(at)) {
            wording::call_stands_later(orphan, index);
        }
    }
}

/// An id that can pair: two empties do not.
fn id(field: Field<'_>) -> Option<Cow<'_, str>> {
    field.text().filter(|text| !text.is_empty()).map(|text| text.decode())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn judged(body: &str) -> Pairing {
        judge(&ChatRequest::parse(body.as_bytes(), 64).unwrap())
    }

    #[test]
    fn roles_pair_whatever_their_case() {
        let call = r#""tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]"#;
        let list = |assistant: &str, tool: &str, system: &str, id: &str| {
            format!(
                r#"{{"messages":[{{"role":"{assistant}",{call}}},{{"role":"{tool}","tool_call_id":"{id}"}},{{"role":"{system}"}}]}}"#
            )
        };
        for (assistant, tool, system) in [
            ("assistant", "tool", "system"),
            ("assistant", "TOOL", "System"),
            ("ASSISTANT", "Tool", "DEVELOPER"),
            ("Assistant", "tool", "root"),
        ] {
            let sound = judged(&list(assistant, tool, system, "1"));
            assert_eq!(sound.faults, [], "{assistant} {tool}");
            assert!(sound.runs.len() == 1 && sound.runs[0].live, "{assistant} {tool} {system}");
            let wrong = judged(&list(assistant, tool, system, "2"));
            let codes: Vec<_> = wrong.faults.iter().map(|fault| fault.code).collect();
            assert_eq!(codes, [Code::UnknownResultId, Code::MissingResult], "{assistant} {tool}");
        }
        let used = judged(&list("ASSISTANT", "TOOL", "USER", "1"));
        assert!(used.faults.is_empty() && !used.runs[0].live);
    }

    /// A list in short: `u` user, `s` system, `d` developer, `a` assistant text, `f` function,
    /// `c:x,y` calls with those ids, `t:x` result.
    fn messages(short: &str) -> Value {
        let message = |word: &str| match word.split_once(':') {
            None => {
                let role = match word {
                    "s" => "system",
                    "d" => "developer",
                    "a" => "assistant",
                    "f" => "function",
                    _ => "user",
                };
                json!({"role": role, "content": "text"})
            }
            Some(("t", id)) => json!({"role": "tool", "tool_call_id": id, "content": "ok"}),
            Some((_, ids)) => {
                let call = |id| json!({"id": id, "function": {"name": "f", "arguments": "{}"}});
                let calls: Vec<_> = ids.split(',').map(call).collect();
                json!({"role": "assistant", "content": null, "tool_calls": calls})
            }
        };
        json!({"messages": short.split_whitespace().map(message).collect::<Vec<_>>()})
    }

    fn codes(pairing: &Pairing) -> Vec<String> {
        let told = |fault: &Fault| format!("{} {}", fault.code.as_str(), fault.param);
        pairing.faults.iter().map(told).collect()
    }

    #[test]
    fn lists_by_their_faults() {
        let table: &[(&str, &[&str])] = &[
            ("", &[]),
            ("u", &[]),
            ("u c:1 t:1", &[]),
            ("u c:1,2 t:2 t:1 u", &[]),
            ("u c:1 t:1 a u c:1 t:1", &[]),
            ("u c:1 t:1 c:1 t:1", &[]),
            ("u c:1 t:1 s", &[]),
            ("u c:1 t:1 d a u", &[]),
            ("u a f u", &[]),
            ("u c:1 t:1 f", &[]),
            ("s t:1 u", &["orphan_result messages.[1].role"]),
            ("u a t:1", &["orphan_result messages.[2].role"]),
            ("u c:1 t:1 u t:1", &["orphan_result messages.[4].role"]),
            (
                "u c:1 t:2",
                &["unknown_result_id messages[2].tool_call_id", "missing_result messages.[3].role"],
            ),
            ("u c:1 t:1 t:1", &["repeated_result messages.[3].tool_call_id"]),
            (
                "u c:1 t:1 t:1 t:1",
                &[
                    "repeated_result messages.[3].tool_call_id",
                    "repeated_result messages.[4].tool_call_id",
                ],
            ),
            ("u c:1", &["missing_result messages.[2].role"]),
            ("u c:1 s", &["missing_result messages.[2].role"]),
            (
                "u c:1,2 t:1 u t:2",
                &["missing_result messages.[3].role", "orphan_result messages.[4].role"],
            ),
            (
                "u c:1 s t:1",
                &["missing_result messages.[2].role", "orphan_result messages.[3].role"],
            ),
            ("u c:1 c:2 t:2", &["missing_result messages.[2].role"]),
            ("u c:1,1 t:1 t:1", &["repeated_call_id messages[1].tool_calls[1].id"]),
            ("u c:1,1 t:1", &["repeated_call_id messages[1].tool_calls[1].id"]),
            (
                "u c:1,1 t:1 t:1 t:1",
                &[
                    "repeated_call_id messages[1].tool_calls[1].id",
                    "repeated_result messages.[4].tool_call_id",
                ],
            ),
            (
                "u t:1 c:1 u",
                &["orphan_result messages.[1].role", "missing_result messages.[3].role"],
            ),
            (
                "t:1 u c:2 u c:3 t:3 t:3",
                &[
                    "orphan_result messages.[0].role",
                    "missing_result messages.[3].role",
                    "repeated_result messages.[6].tool_call_id",
                ],
            ),
        ];
        for (short, wanted) in table {
            assert_eq!(codes(&judged(&messages(short).to_string())), *wanted, "{short}");
        }
    }

    #[test]
    fn pairs_and_liveness() {
        type Row<'a> = (&'a str, &'a [(usize, &'a [(usize, usize)], bool)]);
        let table: &[Row<'_>] = &[
            ("u", &[]),
            ("u c:1,2 t:2 t:1", &[(1, &[(1, 2), (0, 3)], true)]),
            ("u c:1 t:1 s d", &[(1, &[(0, 2)], true)]),
            ("u c:1 t:1 u", &[(1, &[(0, 2)], false)]),
            ("u c:1 t:1 a", &[(1, &[(0, 2)], false)]),
            ("u c:1 t:1 f", &[(1, &[(0, 2)], false)]),
            ("u c:1 t:1 c:1 t:1", &[(1, &[(0, 2)], false), (3, &[(0, 4)], true)]),
            ("u c:1 t:1 s u s", &[(1, &[(0, 2)], false)]),
            ("u c:1,2 t:1", &[(1, &[(0, 2)], true)]),
            ("u c:1,2 t:1 s t:2", &[(1, &[(0, 2)], false)]),
            ("u c:1,1,2 t:1 t:2 t:1", &[(1, &[(2, 3)], true)]),
            ("u c:1 t:1 t:1", &[(1, &[(0, 2)], true)]),
        ];
        for (short, wanted) in table {
            let pairing = judged(&messages(short).to_string());
            let runs: Vec<_> =
                pairing.runs.iter().map(|run| (run.assistant, &*run.pairs, run.live)).collect();
            assert_eq!(runs, *wanted, "{short}");
        }
    }

    #[test]
    fn the_words_that_clients_match_on() {
        let fault = |short: &str| judged(&messages(short).to_string()).faults.swap_remove(0);
        assert_eq!(
            fault("u c:call_1,call_2 u").message,
            "An assistant message with 'tool_calls' must be followed by tool messages responding to \
             each 'tool_call_id'. The following tool_call_ids did not have response messages: \
             call_1, call_2"
        );
        assert_eq!(
            fault("t:call_1").message,
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message \
             with 'tool_calls'."
        );
        assert_eq!(
            fault("c:call_1 t:call_1 t:call_1").message,
            "Invalid parameter: Duplicate value for 'tool_call_id' of 'call_1', in messages[1] and \
             messages[2]."
        );
    }

    #[test]
    fn a_broken_pair_is_told_from_both_ends() {
        let pairing = judged(&messages("u c:x u t:x").to_string());
        assert_eq!(pairing.faults[0].param, "messages.[2].role");
        assert!(pairing.faults[1].message.ends_with(
            " messages[3] answers 'x' of messages[1], but messages[2] stands between them and ended \
             that run."
        ));
        let swapped = judged(&messages("u t:x c:x u").to_string());
        assert!(swapped.faults[0].message.ends_with("stands only later, in messages[2]."));
    }

    fn call(call: &str) -> String {
        format!(
            r#"{{"messages":[{{"role":"assistant","tool_calls":[{call}]}},{{"role":"tool","tool_call_id":"1"}}]}}"#
        )
    }

    #[test]
    fn arguments_by_their_faults() {
        let arguments = "messages[0].tool_calls[0].function.arguments";
        let not_string = format!("arguments_not_string {arguments}");
        let not_object = format!("arguments_not_object {arguments}");
        let deep = format!("\"{{\\\"a\\\":{}1{}}}\"", "[".repeat(64), "]".repeat(64));
        let table: &[(&str, Option<&str>)] = &[
            (r#""{\"a\":{\"b\":[1]}}""#, None),
            (r#""""#, None),
            (r#"" \n""#, None),
            (r#""null""#, None),
            ("null", None),
            (r#""{\"a\":\"\ud83d\"}""#, None),
            (r#""{\"note\":\"[1,2]\"}""#, None),
            (r#"{"a":1}"#, Some(&not_string)),
            ("7", Some(&not_string)),
            (r#""{\"a\":\"b""#, Some(&not_object)),
            (r#""{}{}""#, Some(&not_object)),
            (r#""[]""#, Some(&not_object)),
            (r#""\"{}\"""#, Some(&not_object)),
            (r#""{\"a\":1,\"a\":2}""#, Some(&not_object)),
            (r#""{\"x\":{\"a\":1,\"\\u0061\":2}}""#, Some(&not_object)),
            (&deep, Some(&not_object)),
        ];
        for (text, wanted) in table {
            let body = call(&format!(r#"{{"id":"1","function":{{"arguments":{text}}}}}"#));
            assert_eq!(codes(&judged(&body)), wanted.as_slice(), "{text}");
        }
        let custom = |input: &str| {
            codes(&judged(&call(&format!(r#"{{"id":"1","custom":{{"input":{input}}}}}"#))))
        };
        assert!(custom(r#""rm {""#).is_empty());
        assert_eq!(custom("{}"), ["arguments_not_string messages[0].tool_calls[0].custom.input"]);
    }

    #[test]
    fn fault_texts_hold_no_values() {
        let body =
            call(r#"{"id":"1","function":{"arguments":"{\"secret\":\"hunter2\",\"secret\":0}"}}"#);
        let fault = &judged(&body).faults[0];
        assert!(fault.message.contains("at byte 20"), "{}", fault.message);
        assert!(!format!("{fault:?}").contains("hunter2"));
    }

    #[test]
    fn an_id_must_be_a_string_that_is_not_empty() {
        for id in ["", r#""id":"","#, r#""id":null,"#, r#""id":7,"#] {
            let result = id.replace("id", "tool_call_id");
            let body = format!(
                r#"{{"messages":[{{"role":"assistant","tool_calls":[{{{id}"function":{{}}}}]}},{{{result}"role":"tool"}}]}}"#
            );
            let wanted = [
                "missing_call_id messages[0].tool_calls[0].id",
                "missing_result_id messages[1].tool_call_id",
            ];
            assert_eq!(codes(&judged(&body)), wanted, "{id}");
        }
    }

    #[test]
    fn ids_pair_by_what_they_stand_for_and_are_shown_on_one_line() {
        let body = |call: &str, result: &str| {
            format!(
                r#"{{"messages":[{{"role":"assistant","tool_calls":[{{"id":"{call}"}}]}},{{"role":"tool","tool_call_id":"{result}"}}]}}"#
            )
        };
        assert!(judged(&body("a", r"\u0061")).faults.is_empty());
        assert!(judged(&body("a\u{1f600}", r"a\uD83D\ude00")).faults.is_empty());
        assert_eq!(judged(&body("a", "A")).faults.len(), 2);
        let broken = judged(&body(r"a\nb", &"x".repeat(1000)));
        assert!(broken.faults[1].message.ends_with(r"messages: a\nb"));
        assert!(broken.faults[0].message.len() < 300);
        assert_eq!(broken.faults[1].tool_call_id.as_deref(), Some("a\nb"));
    }

    #[test]
    fn very_many_calls_and_faults_stay_linear_and_bounded() {
        let ids: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
        let results: String = ids.iter().rev().map(|id| format!(" t:{id}")).collect();
        let pairing = judged(&messages(&format!("c:{}{results}", ids.join(","))).to_string());
        assert!(pairing.faults.is_empty());
        assert_eq!((pairing.runs[0].pairs.len(), pairing.runs[0].pairs[0]), (20_000, (19_999, 1)));
        let flood = judged(&messages(&format!("{results} c:{}", ids.join(","))).to_string());
        assert_eq!(flood.faults.len(), Faults::PER_CODE + 1);
        assert_eq!(flood.faults.last().unwrap().code, Code::MissingResult);
        assert!(flood.faults.last().unwrap().message.ends_with("62, 63 and 19936 more"));
    }

    #[test]
    fn cases_from_public_reports() {
        let cases = include_str!("../../tests/cases/request.jsonl");
        assert_eq!(cases.lines().count(), 36);
        for line in cases.lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let input = &case["input"];
            let body = match (input["raw_body"].as_str(), input.get("messages_template")) {
                (Some(raw), _) => raw.to_owned(),
                (None, Some(messages)) => {
                    let text = messages.to_string();
                    let text = text.replace("<6 MiB of text>", &"text ".repeat((6 << 20) / 5));
                    format!(r#"{{"messages":{text}}}"#)
                }
                (None, None) => input.to_string(),
            };
            let faults = judged(&body).faults;
            match case["verdict"].as_str() {
                Some("refuse") => assert!(!faults.is_empty(), "{}", case["id"]),
                Some("pass" | "note") => assert_eq!(faults, [], "{}", case["id"]),
                other => {
                    panic!("{}: a verdict that this test does not know: {other:?}", case["id"])
                }
            }
        }
    }

    proptest! {
        #[test]
        fn sound_lists_have_no_faults_and_pair_whole(
            turns in prop::collection::vec((1usize..30, any::<u64>(), "[usad]"), 0..6)
        ) {
            let mut short = String::from("u");
            for (count, order, then) in &turns {
                let ids: Vec<String> = (0..*count).map(|n| format!("f:{n}")).collect();
                let mut results = ids.clone();
                results.rotate_left((order % *count as u64) as usize);
                short.push_str(&format!(" c:{} t:{} {then}", ids.join(","), results.join(" t:")));
            }
            let pairing = judged(&messages(&short).to_string());
            prop_assert_eq!(&pairing.faults, &[]);
            prop_assert_eq!(pairing.runs.len(), turns.len());
            for (run, (count, ..)) in pairing.runs.iter().zip(&turns) {
                prop_assert_eq!(run.pairs.len(), *count);
            }
            let live = pairing.runs.iter().filter(|run| run.live).count();
            prop_assert_eq!(live, usize::from(turns.last().is_some_and(|(.., then)| "sd".contains(then))));
        }

        #[test]
        fn taking_one_message_out_of_a_run_is_always_found(out in 1usize..5) {
            let short = "u c:1,2,3 t:3 t:1 t:2 u";
            let mut list: Vec<&str> = short.split(' ').collect();
            list.remove(out);
            prop_assert!(!judged(&messages(&list.join(" ")).to_string()).faults.is_empty());
        }
    }
}
