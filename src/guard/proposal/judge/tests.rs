#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::guard::offer::ToolRules;
use crate::guard::schema::SchemaCache;
use crate::wire::completion::Completion;
use crate::wire::request::ChatRequest;
use Code::*;
use std::sync::Arc;

const TOOLS: &str = r#","tools":[
    {"type":"function","function":{"name":"get","parameters":{"type":"object",
        "properties":{"id":{"type":"string"},"n":{"type":"integer"}},
        "required":["id"],"additionalProperties":false}}},
    {"type":"function","function":{"name":"any","parameters":{}}},
    {"type":"function","function":{"name":"bare"}},
    {"type":"function","function":{"name":"bad","parameters":{"type":"nonsense"}}},
    {"type":"custom","custom":{"name":"sql"}}]"#;

fn faults(extra: &str, rules: ToolRules, choices: &str, tracked: bool) -> Vec<Fault> {
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"q"}}]{extra}}}"#);
    let request = ChatRequest::parse(body.as_bytes(), 32).unwrap();
    let offer = Offer::of(&request, Arc::new(rules), &SchemaCache::default());
    let body = format!(r#"{{"id":"x","choices":[{choices}]}}"#);
    judge(&Proposal::of(&Completion::parse(body.as_bytes(), 64).unwrap()), &offer, tracked)
}

fn choice(calls: &str, finish: &str) -> String {
    format!(
        r#"{{"index":0,"message":{{"content":"","tool_calls":[{calls}]}},"finish_reason":"{finish}"}}"#
    )
}

fn call(id: &str, name: &str, arguments: &str) -> String {
    let arguments = serde_json::to_string(arguments).unwrap();
    format!(
        r#"{{"id":"{id}","type":"function","function":{{"name":"{name}","arguments":{arguments}}}}}"#
    )
}

fn codes(faults: &[Fault]) -> Vec<Code> {
    faults.iter().map(|fault| fault.code).collect()
}

fn of_calls(extra: &str, rules: ToolRules, calls: &str) -> Vec<Code> {
    let extra = format!("{TOOLS}{extra}");
    codes(&faults(&extra, rules, &choice(calls, "tool_calls"), true))
}

#[test]
fn single_calls() {
    let good = r#"{"id":"A1"}"#;
    let table: [(&str, String, &[Code]); 26] = [
        ("sound", call("a", "get", good), &[]),
        ("120000.0 is an integer", call("a", "get", r#"{"id":"A","n":120000.0}"#), &[]),
        ("half is not", call("a", "get", r#"{"id":"A","n":1.5}"#), &[ArgumentsSchema]),
        ("any id", call("functions.get:0 ☃", "get", good), &[]),
        ("invented tool", call("a", "fetch", good), &[UnknownTool]),
        ("no name", call("a", "", good), &[UnknownTool]),
        ("name in another case", call("a", "Get", good), &[UnknownTool]),
        ("no id", call("", "get", good), &[MissingCallId]),
        ("required missing", call("a", "get", "{}"), &[ArgumentsSchema]),
        ("empty where required", call("a", "get", ""), &[ArgumentsSchema]),
        ("null where required", call("a", "get", "null"), &[ArgumentsSchema]),
        ("empty where nothing is", call("a", "any", ""), &[]),
        ("null where nothing is", call("a", "bare", "null"), &[]),
        ("anything, no schema", call("a", "bare", r#"{"x":{"y":[1e999]}}"#), &[]),
        ("out of range, schema", call("a", "get", r#"{"id":"A","n":1e999}"#), &[ArgumentsSchema]),
        ("lone surrogate", call("a", "get", r#"{"id":"\ud83d"}"#), &[]),
        ("pair of surrogates", call("a", "get", r#"{"id":"\\\ud83d\ude00"}"#), &[]),
        ("list", call("a", "get", r#"["A1"]"#), &[ArgumentsMalformed]),
        ("encoded twice", call("a", "get", r#""{}""#), &[ArgumentsMalformed]),
        ("cut off", call("a", "get", r#"{"id":"A"#), &[ArgumentsMalformed]),
        ("two objects", call("a", "get", "{}{}"), &[ArgumentsMalformed]),
        ("key twice", call("a", "any", r#"{"a":1,"\u0061":2}"#), &[ArgumentsMalformed]),
        ("schema unusable", call("a", "bad", good), &[SchemaUnusable]),
        ("undeclared", call("a", "get", r#"{"id":"A","zip":1}"#), &[ArgumentsSchema]),
        (
            "equal calls, two ids",
            format!("{},{}", call("a", "get", good), call("b", "get", good)),
            &[],
        ),
        (
            "one id twice",
            format!("{},{}", call("a", "get", good), call("a", "get", good)),
            &[RepeatedCallId],
        ),
    ];
    for (title, calls, wanted) in table {
        assert_eq!(of_calls("", ToolRules::default(), &calls), wanted, "{title}");
    }
}

#[test]
fn arguments_that_are_no_string() {
    let with = |arguments: &str| format!(r#"{{"id":"a","function":{{"name":"any"{arguments}}}}}"#);
    for (arguments, wanted) in [
        ("", &[][..]),
        (r#","arguments":null"#, &[]),
        (r#","arguments":{"a":1}"#, &[ArgumentsMalformed]),
        (r#","arguments":[]"#, &[ArgumentsMalformed]),
    ] {
        assert_eq!(of_calls("", ToolRules::default(), &with(arguments)), wanted, "{arguments}");
    }
}

#[test]
fn every_fault_of_every_choice_at_once() {
    let bad = format!("{},{}", call("a", "fetch", "[]"), call("a", "get", "{}"));
    let second =
        choice(&call("", "get", r#"{"id":"A"}"#), "stop").replace("\"index\":0", "\"index\":1");
    let found =
        faults(TOOLS, ToolRules::default(), &format!("{},{second}", choice(&bad, "length")), false);
    let told: Vec<(Code, &str)> = found.iter().map(|f| (f.code, f.param.as_str())).collect();
    assert_eq!(
        told,
        [
            (TruncatedCall, "choices[0].finish_reason"),
            (UnknownTool, "choices[0].message.tool_calls[0].function.name"),
            (ArgumentsMalformed, "choices[0].message.tool_calls[0].function.arguments"),
            (RepeatedCallId, "choices[0].message.tool_calls[1].id"),
            (ArgumentsSchema, "choices[0].message.tool_calls[1].function.arguments"),
            (MissingCallId, "choices[1].message.tool_calls[0].id"),
        ]
    );
}

#[test]
fn an_id_may_stand_in_two_choices() {
    let calls = call("functions.get:0", "get", r#"{"id":"A"}"#);
    let one = choice(&calls, "tool_calls");
    let two = one.replace("\"index\":0", "\"index\":1");
    assert_eq!(faults(TOOLS, ToolRules::default(), &format!("{one},{two}"), true), []);
}

#[test]
fn finish_reasons() {
    let calls = call("a", "get", r#"{"id":"A"}"#);
    for (finish, wanted) in [
        ("tool_calls", &[][..]),
        ("stop", &[]),
        ("content_filter", &[]),
        ("length", &[TruncatedCall]),
        ("abort", &[TruncatedCall]),
        ("error", &[TruncatedCall]),
        ("LENGTH", &[TruncatedCall]),
        ("Abort", &[TruncatedCall]),
        ("max_tokens", &[TruncatedCall]),
        ("MAX_TOKENS", &[TruncatedCall]),
        ("l\\u0065ngth", &[TruncatedCall]),
        ("STOP", &[]),
    ] {
        let found = faults(TOOLS, ToolRules::default(), &choice(&calls, finish), true);
        assert_eq!(codes(&found), wanted, "{finish}");
        assert_eq!(faults(TOOLS, ToolRules::default(), &choice("", finish), true), [], "{finish}");
    }
}

#[test]
fn a_finish_that_is_no_string_cuts_unless_its_type_says_otherwise() {
    let calls = call("a", "get", r#"{"id":"A"}"#);
    for (finish, wanted) in [
        (r#"{"type":"abort","message":"x"}"#, &[TruncatedCall][..]),
        (r#"{"type":"length","length":5}"#, &[TruncatedCall]),
        (r#"{"reason":"stop"}"#, &[TruncatedCall]),
        (r#"{"type":7}"#, &[TruncatedCall]),
        ("[]", &[TruncatedCall]),
        ("false", &[TruncatedCall]),
        (r#"{"type":"stop","matched":null}"#, &[]),
        ("null", &[]),
    ] {
        for (calls, wanted) in [(&*calls, wanted), ("", &[])] {
            let choice = choice(calls, "F").replace("\"F\"", finish);
            let found = faults(TOOLS, ToolRules::default(), &choice, true);
            assert_eq!(codes(&found), wanted, "{finish}");
        }
    }
}

#[test]
fn tool_choice() {
    let named = r#","tool_choice":{"type":"function","function":{"name":"any"}}"#;
    let required = r#","tool_choice":"required""#;
    let none = r#","tool_choice":"none""#;
    let (any, get) = (call("a", "any", "{}"), call("b", "get", r#"{"id":"A"}"#));
    let both = format!("{any},{get}");
    let broken = &[ToolChoiceViolated][..];
    for (extra, calls, finish, wanted) in [
        (none, "", "stop", &[][..]),
        (none, &any, "stop", broken),
        (required, &get, "stop", &[]),
        (required, "", "stop", broken),
        (required, "", "length", &[]),
        (required, "", "abort", &[]),
        (required, "", "content_filter", &[]),
        (named, &any, "stop", &[]),
        (named, &get, "stop", broken),
        (named, &both, "stop", broken),
        (named, "", "stop", broken),
        (named, "", "length", &[]),
        (r#","tool_choice":"auto""#, "", "stop", &[]),
        (r#","tool_choice":null"#, &both, "stop", &[]),
    ] {
        let extra = format!("{TOOLS}{extra}");
        let found = faults(&extra, ToolRules::default(), &choice(calls, finish), true);
        assert_eq!(codes(&found), wanted, "{extra} {calls} {finish}");
    }
}

#[test]
fn how_many_calls() {
    let one = call("a", "any", "");
    let two = format!("{one},{}", call("b", "any", ""));
    let at_most = |max| ToolRules { max_calls: Some(max), ..ToolRules::default() };
    let serial = r#","parallel_tool_calls":false"#;
    for (extra, rules, calls, wanted) in [
        (serial, ToolRules::default(), &one, &[][..]),
        (serial, ToolRules::default(), &two, &[TooManyCalls]),
        (r#","parallel_tool_calls":true"#, ToolRules::default(), &two, &[]),
        ("", at_most(2), &two, &[]),
        ("", at_most(1), &two, &[TooManyCalls]),
        ("", at_most(0), &one, &[TooManyCalls]),
        (serial, at_most(5), &two, &[TooManyCalls]),
    ] {
        assert_eq!(of_calls(extra, rules, calls), wanted, "{extra} {calls}");
    }
}

#[test]
fn nothing_offered() {
    let calls = choice(&call("a", "get", "{}"), "stop");
    for extra in ["", r#","tools":[]"#, r#","tools":null"#] {
        assert_eq!(codes(&faults(extra, ToolRules::default(), &calls, false)), [UnknownTool]);
        assert_eq!(faults(extra, ToolRules::default(), &choice("", "stop"), false), []);
    }
}

#[test]
fn the_operators_rules() {
    let owned = ["user_id".to_owned()];
    let stricter = r#"{"properties":{"id":{"pattern":"^ord_[0-9]{1,9}$"}}}"#;
    let rules =
        ToolRules::new(Some(&["get".to_owned(), "any".to_owned(), "sql".to_owned()]), None, 32)
            .with_tool("get", &[], Some(stricter))
            .and_then(|rules| rules.with_tool("any", &owned, None))
            .and_then(|rules| rules.with_tool("sql", &owned, None))
            .unwrap();
    let custom = |input: &str| {
        let input = serde_json::to_string(input).unwrap();
        format!(r#"{{"id":"a","type":"custom","custom":{{"name":"sql","input":{input}}}}}"#)
    };
    for (calls, wanted) in [
        (call("a", "get", r#"{"id":"ord_7"}"#), &[][..]),
        (call("a", "get", r#"{"id":"7"}"#), &[ArgumentsSchema]),
        (call("a", "get", r#"{"id":7}"#), &[ArgumentsSchema]),
        (call("a", "bare", "{}"), &[ToolNotAllowed]),
        (call("a", "invented", "{}"), &[UnknownTool]),
        (call("a", "any", r#"{"user":"user_id"}"#), &[]),
        (call("a", "any", r#"{"user_id":"u"}"#), &[ServerOwnedArgument]),
        (call("a", "any", r#"{"f":[{"\u0075ser_id":null}]}"#), &[ServerOwnedArgument]),
        (custom("select 1"), &[]),
        (custom(r#"{"user_id":1}"#), &[ServerOwnedArgument]),
    ] {
        assert_eq!(of_calls("", rules.clone(), &calls), wanted, "{calls}");
    }
    let bad = ToolRules::default().with_tool("get", &[], Some(r#"{"type":1}"#)).unwrap_err();
    assert!(bad.contains("`get`"), "{bad}");
}

#[test]
fn an_operators_schema_is_not_evaded_by_a_custom_call() {
    let rules = ToolRules::default().with_tool("sql", &[], Some(r#"{"required":["q"]}"#)).unwrap();
    let custom = |name: &str, input: &str| {
        format!(r#"{{"id":"a","type":"custom","custom":{{"name":"{name}","input":"{input}"}}}}"#)
    };
    assert_eq!(of_calls("", rules, &custom("sql", "select 1")), [ArgumentsSchema]);
    assert_eq!(of_calls("", ToolRules::default(), &custom("sql", "[not json")), []);
    assert_eq!(of_calls("", ToolRules::default(), &custom("get", "x")), [UnknownTool]);
}

#[test]
fn legacy_calls_have_no_id() {
    let legacy = |arguments: &str| {
        format!(
            r#"{{"index":0,"message":{{"function_call":{{"name":"get","arguments":"{arguments}"}}}},"finish_reason":"function_call"}}"#
        )
    };
    let good = legacy(r#"{\"id\":\"A\"}"#);
    assert_eq!(faults(TOOLS, ToolRules::default(), &good, false), []);
    let tracked = faults(TOOLS, ToolRules::default(), &good, true);
    assert_eq!(codes(&tracked), [MissingCallId]);
    assert_eq!(tracked[0].param, "choices[0].message.function_call.id");
    let bad = faults(TOOLS, ToolRules::default(), &legacy("{"), false);
    assert_eq!(codes(&bad), [ArgumentsMalformed]);
    assert_eq!(bad[0].param, "choices[0].message.function_call.arguments");
}

#[test]
fn a_tool_offered_twice_takes_what_either_takes() {
    let tool = |key: &str| {
        format!(
            r#"{{"type":"function","function":{{"name":"f","parameters":{{"required":["{key}"]}}}}}}"#
        )
    };
    let tools = format!(r#","tools":[{},{}]"#, tool("a"), tool("b"));
    for (arguments, wanted) in
        [(r#"{"a":1}"#, &[][..]), (r#"{"b":1}"#, &[]), ("{}", &[ArgumentsSchema])]
    {
        let found =
            faults(&tools, ToolRules::default(), &choice(&call("x", "f", arguments), "stop"), true);
        assert_eq!(codes(&found), wanted, "{arguments}");
    }
}

#[test]
fn faults_hold_no_argument() {
    let secret = r#"{"id":77001,"s3cret_key":"s3cret","n":"s3cret"}"#;
    let calls = format!("{},{}", call("a", "get", secret), call("b", "get", r#"{"id":"s3cret"#));
    let found = faults(TOOLS, ToolRules::default(), &choice(&calls, "stop"), true);
    assert_eq!(codes(&found), [ArgumentsSchema, ArgumentsMalformed]);
    let told = format!("{found:?}");
    assert!(!told.contains("s3cret") && !told.contains("77001"), "{told}");
    assert!(told.contains("`id` must be of type string"), "{told}");
}

#[test]
fn very_many_faults_are_bounded_per_code() {
    let calls: Vec<String> = (0..2000).map(|_| call("a", "fetch", "[]")).collect();
    let choices = choice(&calls.join(","), "length");
    let found = codes(&faults(TOOLS, ToolRules::default(), &choices, true));
    let count = |code| found.iter().filter(|found| **found == code).count();
    assert_eq!([count(UnknownTool), count(RepeatedCallId), count(TruncatedCall)], [256, 256, 1]);
}

#[test]
fn an_offer_outlives_its_request_and_crosses_threads() {
    fn owned<T: Send + Sync + 'static>() {}
    owned::<Offer>();
    owned::<SchemaCache>();
    owned::<Proposal>();
}

#[test]
fn who_may_use_certain_tools_only_is_proposed_those_that_both_lists_hold() {
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"q"}}]{TOOLS}}}"#);
    let request = ChatRequest::parse(body.as_bytes(), 32).unwrap();
    let allow = ["get".to_owned(), "any".to_owned()];
    let rules = Arc::new(ToolRules::new(Some(&allow), None, 32));
    let judged = |permitted: Option<&[&str]>, tool: &str| {
        let permitted =
            permitted.map(|names| Arc::new(names.iter().map(|it| (*it).to_owned()).collect()));
        let offer = Offer::of(&request, Arc::clone(&rules), &SchemaCache::default());
        let answer = choice(&call("a", tool, r#"{"id":"A1"}"#), "tool_calls");
        let answer = format!(r#"{{"id":"x","choices":[{answer}]}}"#);
        let proposal = Proposal::of(&Completion::parse(answer.as_bytes(), 64).unwrap());
        codes(&judge(&proposal, &offer.permitting(permitted), true))
    };
    for (permitted, tool, wanted) in [
        (None, "get", &[][..]),
        (Some(&["get"][..]), "get", &[]),
        (Some(&["get"]), "any", &[ToolNotAllowed]),
        (Some(&["get", "bare"]), "bare", &[ToolNotAllowed]),
        (Some(&[]), "get", &[ToolNotAllowed]),
    ] {
        assert_eq!(judged(permitted, tool), wanted, "{permitted:?} {tool}");
    }
}
