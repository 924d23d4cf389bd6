#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::guard::proposal::Arguments;

const DEPTH: usize = 32;

fn push(assembly: &mut Assembly, payload: &str) -> Step {
    assembly.push(&Chunk::parse(payload.as_bytes(), DEPTH).unwrap())
}

/// A chunk of one choice: its delta's members, and its finish.
fn chunk(delta: &str, finish: &str) -> String {
    let finish = if finish.is_empty() { "null".to_owned() } else { format!("\"{finish}\"") };
    format!(
        r#"{{"id":"x","choices":[{{"index":0,"delta":{{{delta}}},"finish_reason":{finish}}}]}}"#
    )
}

fn fragment(members: &str) -> String {
    chunk(&format!(r#""tool_calls":[{{{members}}}]"#), "")
}

fn assemble(chunks: &[String], ended: End) -> (Proposal, Vec<Code>) {
    let mut assembly = Assembly::new(1);
    for payload in chunks {
        push(&mut assembly, payload);
    }
    let (proposal, faults) = assembly.finish(ended);
    (proposal, faults.into_iter().map(|fault| fault.code).collect())
}

/// The calls of the fragments (id, name, arguments) and the codes.
fn fragments(list: &[&str]) -> (Vec<(String, String, String)>, Vec<Code>) {
    let mut chunks: Vec<String> = list.iter().map(|members| fragment(members)).collect();
    chunks.push(chunk("", "tool_calls"));
    let (proposal, codes) = assemble(&chunks, End::Clean);
    let calls = proposal.choices[0].calls.iter().map(|call| {
        let arguments = call.arguments.text().unwrap_or("?").to_owned();
        (call.id.clone().unwrap_or_default(), call.name.clone().unwrap_or_default(), arguments)
    });
    (calls.collect(), codes)
}

fn called(id: &str, name: &str, arguments: &str) -> (String, String, String) {
    (id.to_owned(), name.to_owned(), arguments.to_owned())
}

#[test]
fn text_goes_on_and_all_after_the_first_fragment_is_held() {
    let mut assembly = Assembly::new(1);
    for text in [
        chunk(r#""role":"assistant","content":"""#, ""),
        chunk(r#""content":"Hi","tool_calls":[]"#, ""),
        chunk(r#""reasoning_content":"hm","tool_calls":null,"function_call":null"#, ""),
        r#"{"id":"x","choices":[],"usage":{}}"#.to_owned(),
        r#"{"id":"x"}"#.to_owned(),
    ] {
        assert_eq!(push(&mut assembly, &text), Step::Forward, "{text}");
    }
    assert!(!assembly.has_calls());
    let head = fragment(r#""index":0,"id":"a","function":{"name":"f","arguments":"{}"}"#);
    assert_eq!(push(&mut assembly, &head), Step::Hold);
    assert_eq!(push(&mut assembly, &chunk(r#""content":"more""#, "")), Step::Hold);
    assert!(!assembly.finished_all());
    assert_eq!(push(&mut assembly, &chunk("", "tool_calls")), Step::Hold);
    assert_eq!(push(&mut assembly, r#"{"id":"x","choices":[],"usage":{}}"#), Step::Hold);
    assert!(assembly.has_calls() && assembly.finished_all());
    let (proposal, faults) = assembly.finish(End::Clean);
    assert_eq!(faults, []);
    assert!(proposal.has_calls());
}

#[test]
fn ways_to_write_a_sound_call() {
    let one = vec![called("a", "get_order", r#"{"x":1}"#)];
    let (x, y) = (r#"{\"x\""#, r":1}");
    let head = |arguments: &str| {
        format!(r#""index":0,"id":"a","function":{{"name":"get_order","arguments":"{arguments}"}}"#)
    };
    let rest = |members: &str| format!(r#""index":0,{members}"#);
    let table: [(&str, [String; 2]); 10] = [
        (
            "nulls after the head",
            [
                head(x),
                rest(&format!(
                    r#""id":null,"type":null,"function":{{"name":null,"arguments":"{y}"}}"#
                )),
            ],
        ),
        (
            "empty after the head",
            [head(x), rest(&format!(r#""id":"","function":{{"name":"","arguments":"{y}"}}"#))],
        ),
        (
            "equal repeats",
            [
                head(x),
                rest(&format!(r#""id":"a","function":{{"name":"get_order","arguments":"{y}"}}"#)),
            ],
        ),
        (
            "late name",
            [
                format!(r#""index":0,"id":"a","function":{{"arguments":"{x}"}}"#),
                rest(&format!(r#""function":{{"name":"get_order","arguments":"{y}"}}"#)),
            ],
        ),
        (
            "late id",
            [
                format!(r#""index":0,"function":{{"name":"get_order","arguments":"{x}"}}"#),
                rest(&format!(r#""id":"a","function":{{"arguments":"{y}"}}"#)),
            ],
        ),
        (
            "name in pieces",
            [
                format!(r#""index":0,"id":"a","function":{{"name":"get_","arguments":"{x}"}}"#),
                rest(&format!(r#""function":{{"name":"order","arguments":"{y}"}}"#)),
            ],
        ),
        (
            "no index",
            [
                head(x).replace(r#""index":0,"#, ""),
                format!(r#""index":null,"function":{{"arguments":"{y}"}}"#),
            ],
        ),
        (
            "index on the head only",
            [
                head(x).replace(r#""index":0"#, r#""index":3"#),
                format!(r#""function":{{"arguments":"{y}"}}"#),
            ],
        ),
        (
            "null arguments first",
            [
                r#""index":0,"id":"a","function":{"name":"get_order","arguments":null}"#.to_owned(),
                rest(&format!(r#""function":{{"arguments":"{x}{y}"}}"#)),
            ],
        ),
        (
            "nothing after the object",
            [head(&format!("{x}{y}")), rest(r#""function":{"arguments":""}"#)],
        ),
    ];
    for (title, list) in table {
        let list: Vec<&str> = list.iter().map(String::as_str).collect();
        assert_eq!(fragments(&list), (one.clone(), vec![]), "{title}");
    }
    let blank = head(&format!("{x}{y}"));
    let (calls, codes) = fragments(&[&blank, r#""index":0,"function":{"arguments":" \n"}"#]);
    assert_eq!((calls.len(), codes), (1, vec![]), "white space after the object");
}

#[test]
fn indices_may_be_sparse_and_interleaved() {
    let (calls, codes) = fragments(&[
        r#""index":4,"id":"b","function":{"name":"g","arguments":"{\"y\""}"#,
        r#""index":1,"id":"a","function":{"name":"f","arguments":"{\"}\""}"#,
        r#""index":4,"function":{"arguments":":2}"}"#,
        r#""index":1,"function":{"arguments":":1}"}"#,
    ]);
    assert_eq!(codes, []);
    assert_eq!(calls, [called("b", "g", r#"{"y":2}"#), called("a", "f", r#"{"}":1}"#)]);
}

#[test]
fn without_an_index_a_known_id_tells_the_call() {
    let (calls, codes) = fragments(&[
        r#""index":0,"id":"a","function":{"name":"f","arguments":"{"}"#,
        r#""index":1,"id":"b","function":{"name":"g","arguments":"{"}"#,
        r#""id":"a","function":{"arguments":"}"}"#,
        r#""id":"b","function":{"arguments":"}"}"#,
    ]);
    assert_eq!((calls, codes), (vec![called("a", "f", "{}"), called("b", "g", "{}")], vec![]));
}

#[test]
fn broken_shapes() {
    let head = r#""index":0,"id":"a","function":{"name":"f","arguments":"{}"}"#;
    let second = r#""index":1,"id":"b","function":{"name":"f","arguments":"{}"}"#;
    for (title, list) in [
        (
            "new id at an index",
            vec![head, r#""index":0,"id":"b","function":{"name":"f","arguments":"{}"}"#],
        ),
        (
            "one id at two",
            vec![head, r#""index":1,"id":"a","function":{"name":"f","arguments":"{}"}"#],
        ),
        (
            "one id at two, late",
            vec![head, r#""index":1,"function":{"name":"f"}"#, r#""index":1,"id":"a""#],
        ),
        ("no head", vec![head, r#""index":1,"function":{"arguments":"{}"}"#]),
        ("text after the object", vec![head, r#""index":0,"function":{"arguments":"{}"}"#]),
        ("a second call, no index", vec![head, r#""id":"b","function":{"name":"f"}"#]),
        ("a third call, no index", vec![head, second, r#""id":"c","function":{"name":"f"}"#]),
        ("whose is it?", vec![head, second, r#""function":{"arguments":" "}"#]),
    ] {
        assert_eq!(fragments(&list).1, [Code::BrokenStream], "{title}");
    }
}

#[test]
fn a_restarted_index_keeps_both_calls() {
    let (calls, _) = fragments(&[
        r#""index":0,"id":"a","function":{"name":"f","arguments":"{}"}"#,
        r#""index":0,"id":"b","function":{"name":"g","arguments":"{"}"#,
        r#""index":0,"function":{"arguments":"}"}"#,
    ]);
    assert_eq!(calls, [called("a", "f", "{}"), called("b", "g", "{}")]);
}

#[test]
fn only_a_missing_id_is_left_to_the_rules() {
    let (calls, codes) = fragments(&[r#""index":0,"function":{"name":"f","arguments":"{}"}"#]);
    assert_eq!((calls, codes), (vec![called("", "f", "{}")], vec![]));
}

#[test]
fn a_change_of_the_completions_id() {
    let head = fragment(r#""index":0,"id":"a","function":{"name":"f","arguments":"{}"}"#);
    let renamed = |payload: &str| payload.replace(r#""id":"x""#, r#""id":"y""#);
    let end = chunk("", "stop");
    let broken = vec![Code::BrokenStream];
    let usage = r#"{"id":"z","choices":[]}"#.to_owned();
    let nameless = end.replace(r#""id":"x","#, "");
    for (title, chunks, wanted) in [
        ("while open", vec![head.clone(), renamed(&end)], broken),
        ("before", vec![chunk(r#""content":"a""#, ""), renamed(&head), renamed(&end)], vec![]),
        ("after", vec![head.clone(), end.clone(), renamed(&end)], vec![]),
        ("usage only", vec![head.clone(), usage, end], vec![]),
        ("left out", vec![head, nameless], vec![]),
    ] {
        assert_eq!(assemble(&chunks, End::Clean).1, wanted, "{title}");
    }
}

#[test]
fn choices_are_apart() {
    let of = |choice: u64, members: &str, finish: &str| {
        format!(
            r#"{{"id":"c{choice}","choices":[{{"index":{choice},"delta":{{{members}}},"finish_reason":{finish}}}]}}"#
        )
    };
    let call = r#""tool_calls":[{"index":0,"id":"f:0","function":{"name":"f","arguments":"{}"}}]"#;
    let mut assembly = Assembly::new(2);
    push(&mut assembly, &of(0, call, "null"));
    push(&mut assembly, &of(1, call, "null"));
    push(&mut assembly, &of(0, "", "\"stop\""));
    assert!(!assembly.finished_all());
    push(&mut assembly, &of(1, "", "\"length\""));
    assert!(assembly.finished_all());
    let (proposal, faults) = assembly.finish(End::Clean);
    assert_eq!(faults, []);
    let cut: Vec<bool> = proposal.choices.iter().map(|choice| choice.cut).collect();
    assert_eq!(cut, [false, true]);
}

#[test]
fn ends() {
    let head = fragment(r#""index":0,"id":"a","function":{"name":"f","arguments":"{}"}"#);
    let text = chunk(r#""content":"Hi""#, "");
    let end = |finish: &str| chunk("", finish);
    let error = r#"{"error":{"message":"m"}}"#.to_owned();
    let lost = vec![Code::TruncatedStream];
    // Title, chunks, end, faults, whether the choice is cut, whether it is finished.
    for (title, chunks, ended, wanted, cut, finished) in [
        ("finish", vec![head.clone(), end("tool_calls")], End::Clean, vec![], false, true),
        (
            "two finishes",
            vec![head.clone(), end("tool_calls"), end("stop")],
            End::Clean,
            vec![],
            false,
            true,
        ),
        (
            "any that cuts",
            vec![head.clone(), end("length"), end("stop")],
            End::Clean,
            vec![],
            true,
            true,
        ),
        (
            "cut later",
            vec![head.clone(), end("stop"), end("abort")],
            End::Clean,
            vec![],
            true,
            true,
        ),
        ("no finish", vec![head.clone()], End::Clean, lost.clone(), false, false),
        ("text, no finish", vec![text.clone()], End::Clean, lost.clone(), false, false),
        ("text, finish", vec![text.clone(), end("stop")], End::Clean, vec![], false, true),
        ("empty finish", vec![text.clone(), end("")], End::Clean, lost.clone(), false, false),
        (
            "error after the finish",
            vec![head.clone(), end("stop"), error.clone()],
            End::Clean,
            vec![],
            true,
            true,
        ),
        ("broken after the finish", vec![head, end("stop")], End::Error, vec![], true, true),
        ("text, then an error", vec![text, error], End::Error, lost, false, false),
    ] {
        let (proposal, codes) = assemble(&chunks, ended);
        assert_eq!(codes, wanted, "{title}");
        let choice = &proposal.choices[0];
        assert_eq!((choice.cut, choice.finished), (cut, finished), "{title}");
    }
    assert_eq!(assemble(&[], End::Clean).1, [Code::TruncatedStream]);
}

#[test]
fn other_forms() {
    let custom = [
        fragment(r#""index":0,"id":"a","type":"custom","custom":{"name":"sql","input":"{}"}"#),
        fragment(r#""index":0,"custom":{"input":"; select 1"}"#),
        chunk("", "tool_calls"),
    ];
    let (proposal, codes) = assemble(&custom, End::Clean);
    let call = &proposal.choices[0].calls[0];
    assert_eq!((codes, call.form), (vec![], Form::Custom));
    assert_eq!(call.arguments, Arguments::Text("{}; select 1".to_owned()));

    let legacy = [
        chunk(r#""function_call":{"name":"f","arguments":"{"}"#, ""),
        chunk(r#""function_call":{"arguments":"}"}"#, "function_call"),
    ];
    let (proposal, codes) = assemble(&legacy, End::Clean);
    let call = &proposal.choices[0].calls[0];
    assert_eq!((codes, call.form, call.id.as_deref()), (vec![], Form::Legacy, None));
    assert_eq!(call.arguments, Arguments::Text("{}".to_owned()));

    let (calls, _) =
        fragments(&[r#""index":0,"id":"a","function":{"name":"f","arguments":{"x":1}}"#]);
    assert_eq!(calls, [called("a", "f", "?")]);
}

#[test]
fn a_broken_server_does_not_fill_the_memory_with_faults() {
    let mut assembly = Assembly::new(1);
    for at in 0..1000 {
        push(&mut assembly, &fragment(&format!(r#""index":0,"id":"a{at}""#)));
    }
    assert_eq!(assembly.broken.len(), MAX_BROKEN);
}

#[test]
fn calls_and_choices_are_kept_up_to_a_bound() {
    let call = |at: usize| {
        fragment(&format!(
            r#""index":{at},"id":"c{at}","function":{{"name":"f","arguments":"{{}}"}}"#
        ))
    };
    let stream =
        |count: usize| (0..count).map(call).chain([chunk("", "tool_calls")]).collect::<Vec<_>>();
    let (proposal, codes) = assemble(&stream(MOST_CALLS), End::Clean);
    assert_eq!((proposal.choices[0].calls.len(), codes), (MOST_CALLS, vec![]));
    let (proposal, codes) = assemble(&stream(20_000), End::Clean);
    assert_eq!((proposal.choices[0].calls.len(), codes), (MOST_CALLS, vec![Code::BrokenStream]));
    let mut assembly = Assembly::new(1);
    for index in 0..20_000 {
        push(
            &mut assembly,
            &format!(r#"{{"choices":[{{"index":{index},"finish_reason":"stop"}}]}}"#),
        );
    }
    assert!(assembly.finished_all());
    let (proposal, faults) = assembly.finish(End::Clean);
    assert_eq!((proposal.choices.len(), faults.len()), (MOST_CHOICES, 1));
}
