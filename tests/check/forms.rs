//! Every way in which an exchange is saved: one that is sound, and beside it one that is not.

use crate::{check, check_in};
use serde_json::{Value, json};

/// A request whose run is whole, or lacks its result.
fn request(sound: bool) -> Value {
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "get_order", "arguments": "{}"}});
    let mut messages = vec![
        json!({"role": "user", "content": "Where is A1?"}),
        json!({"role": "assistant", "content": null, "tool_calls": [call]}),
    ];
    if sound {
        messages.push(json!({"role": "tool", "tool_call_id": "call_1", "content": "shipped"}));
    }
    json!({"model": "m", "messages": messages, "tools": tools()})
}

fn tools() -> Value {
    let parameters = json!({"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]});
    json!([{"type": "function", "function": {"name": "get_order", "parameters": parameters}}])
}

/// An answer whose arguments fit the schema, or do not.
fn answer(sound: bool) -> Value {
    let arguments = if sound { r#"{"order_id":"A1"}"# } else { "{}" };
    let call = json!({"id": "call_2", "type": "function", "function": {"name": "get_order", "arguments": arguments}});
    let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    json!({"id": "x", "object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
}

fn chunks(sound: bool, id: &str) -> Vec<Value> {
    let arguments = if sound { r#"{"order_id":"A1"}"# } else { "{}" };
    let call = json!({"index": 0, "id": "call_2", "type": "function", "function": {"name": "get_order", "arguments": arguments}});
    let chunk = |delta: Value, finish: Value| json!({"id": id, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    vec![chunk(json!({"tool_calls": [call]}), Value::Null), chunk(json!({}), json!("tool_calls"))]
}

fn stream(sound: bool) -> String {
    let events = chunks(sound, "x").into_iter().map(|chunk| format!("data: {chunk}\n\n"));
    events.chain(["data: [DONE]\n\n".to_owned()]).collect()
}

/// A run of LangChain, as LangSmith exports it.
fn langchain(sound: bool) -> Value {
    let message = |kind: &str, members: Value| json!({"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": members});
    let call = json!({"name": "get_order", "args": {"order_id": "A1"}, "id": "call_1", "type": "tool_call"});
    let id = if sound { "call_1" } else { "call_9" };
    json!({
        "id": "r", "run_type": "llm",
        "inputs": {"messages": [[
            message("HumanMessage", json!({"content": "Where is A1?"})),
            message("AIMessage", json!({"content": "", "tool_calls": [call]})),
            message("ToolMessage", json!({"content": "shipped", "tool_call_id": id})),
        ]]},
        "outputs": {"generations": [[{"text": "It is shipped.", "message": message("AIMessage", json!({"content": "It is shipped."}))}]]},
        "extra": {"invocation_params": {"tools": tools()}},
    })
}

const FINISHED: &str = r#""finish_reason":"tool_calls""#;
const CUT: &str = r#""finish_reason":"length""#;

type Make = fn(bool) -> String;

#[test]
fn each_form_is_known_and_its_faults_are_found() {
    let table: [(&str, &str, Make, &[&str]); 26] = [
        ("a request", "request", |sound| request(sound).to_string(), &["missing_result"]),
        (
            "a request, pretty",
            "request",
            |sound| format!("{:#}", request(sound)),
            &["missing_result"],
        ),
        (
            "a bare list of messages",
            "request",
            |sound| request(sound)["messages"].to_string(),
            &["missing_result"],
        ),
        (
            "an answer",
            "response",
            |sound| {
                let mut answer = answer(sound);
                answer["tools"] = tools();
                answer.to_string()
            },
            &["arguments_schema"],
        ),
        (
            "a request and its answer",
            "log",
            |sound| json!({"request": request(true), "response": answer(sound)}).to_string(),
            &["arguments_schema"],
        ),
        (
            "both at fault",
            "log",
            |sound| json!({"request": request(sound), "response": answer(sound)}).to_string(),
            &["missing_result", "arguments_schema"],
        ),
        (
            "bodies as strings",
            "log",
            |sound| {
                json!({"request": {"body": request(true).to_string()}, "response": {"body": answer(sound).to_string()}}).to_string()
            },
            &["arguments_schema"],
        ),
        (
            "a stream as a string",
            "log",
            |sound| json!({"request": request(true), "response": stream(sound)}).to_string(),
            &["arguments_schema"],
        ),
        (
            "chunks in a record",
            "log",
            |sound| json!({"request": request(true), "chunks": chunks(sound, "x")}).to_string(),
            &["arguments_schema"],
        ),
        (
            "a batch's input",
            "log",
            |sound| {
                let line = |body: Value| json!({"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": body});
                format!("{}\n{}\n", line(request(true)), line(request(sound)))
            },
            &["missing_result"],
        ),
        (
            "a batch's output",
            "log",
            |sound| {
                let mut answer = answer(true);
                if !sound {
                    answer["choices"][0]["finish_reason"] = json!("length");
                }
                json!({"id": "b", "custom_id": "1", "response": {"status_code": 200, "request_id": "r", "body": answer}, "error": null}).to_string()
            },
            &["truncated_call"],
        ),
        (
            "LiteLLM's payload",
            "log",
            |sound| {
                let parameters = json!({"tools": tools(), "temperature": 0});
                json!({"id": "1", "call_type": "acompletion", "messages": request(true)["messages"], "response": answer(sound), "model_parameters": parameters}).to_string()
            },
            &["arguments_schema"],
        ),
        (
            "LangSmith's run of an OpenAI client",
            "log",
            |sound| {
                json!({"run_type": "llm", "inputs": request(true), "outputs": answer(sound)})
                    .to_string()
            },
            &["arguments_schema"],
        ),
        (
            "LangSmith's run of LangChain",
            "log",
            |sound| langchain(sound).to_string(),
            &["unknown_result_id", "missing_result"],
        ),
        (
            "a list of runs",
            "log",
            |sound| {
                format!("{:#}", json!([langchain(true), langchain(sound), {"run_type": "chain"}]))
            },
            &["unknown_result_id", "missing_result"],
        ),
        (
            "stored completions",
            "log",
            |sound| {
                let mut answer = answer(sound);
                answer["tools"] = tools();
                json!({"object": "list", "data": [answer], "has_more": false}).to_string()
            },
            &["arguments_schema"],
        ),
        (
            "requests on lines",
            "log",
            |sound| format!("{}\n\n{}\n", request(true), request(sound)),
            &["missing_result"],
        ),
        (
            "a log among other lines",
            "log",
            |sound| format!("{{\"level\":\"info\"}}\n{}\n", json!({"request": request(sound)})),
            &["missing_result"],
        ),
        (
            "chunks on lines",
            "log",
            |sound| {
                let ended = |sound: bool| if sound { "tool_calls" } else { "abort" };
                let mut all = chunks(true, "x");
                let mut second = chunks(true, "y");
                second[1]["choices"][0]["finish_reason"] = json!(ended(sound));
                all.extend(second);
                all.iter().map(|chunk| format!("{chunk}\n")).collect()
            },
            &["truncated_call"],
        ),
        (
            "chunks in a list",
            "stream",
            |sound| {
                let all = chunks(true, "x");
                json!(if sound { all } else { all[..1].to_vec() }).to_string()
            },
            &["truncated_stream", "truncated_call"],
        ),
        (
            "a stream",
            "stream",
            |sound| {
                let whole = stream(true);
                if sound { whole } else { whole.replace(FINISHED, CUT) }
            },
            &["truncated_call"],
        ),
        (
            "a stream with its head",
            "stream",
            |sound| {
                let end = if sound { FINISHED } else { CUT };
                format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{}",
                    stream(true).replace(FINISHED, end)
                )
            },
            &["truncated_call"],
        ),
        (
            "raw chunks and their end on lines",
            "log",
            |sound| {
                let all = if sound { chunks(true, "x") } else { chunks(true, "x")[..1].to_vec() };
                let lines: String = all.iter().map(|chunk| format!("{chunk}\n")).collect();
                format!("{lines}[DONE]\n{}\n", request(true))
            },
            &["truncated_stream", "truncated_call"],
        ),
        (
            "a raw request",
            "request",
            |sound| {
                format!("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n\r\n{}", request(sound))
            },
            &["missing_result"],
        ),
        (
            "a stream with a byte order mark",
            "stream",
            |sound| {
                let end = if sound { FINISHED } else { CUT };
                format!("\u{feff}{}", stream(true).replace(FINISHED, end))
            },
            &["truncated_call"],
        ),
        (
            "a HAR file",
            "har",
            |sound| {
                let post = |url: &str, body: &Value| json!({"method": "POST", "url": url, "postData": {"mimeType": "application/json", "text": body.to_string()}});
                let content = json!({"mimeType": "text/event-stream", "text": stream(sound)});
                let chat = post("https://x/v1/chat/completions", &request(true));
                json!({"log": {"entries": [
                {"request": {"method": "GET", "url": "https://x/"}, "response": {"status": 200, "content": {}}},
                {"request": chat, "response": {"status": 200, "content": content}},
            ]}}).to_string()
            },
            &["arguments_schema"],
        ),
    ];
    for (name, form, make, codes) in table {
        let sound = check(&["--json"], make(true).as_bytes());
        assert_eq!((sound.code, sound.faults()), (0, Vec::new()), "{name}: {}", sound.out);
        assert_eq!(sound.document()["read_as"], form, "{name}");
        let faulty = check(&["-", "--json"], make(false).as_bytes());
        assert_eq!(
            (faulty.code, faulty.faults()),
            (1, codes.iter().map(|code| (*code).to_owned()).collect()),
            "{name}: {}",
            faulty.out
        );
    }
}

#[test]
fn an_answer_is_held_to_the_tools_that_are_named() {
    let scratch = tempfile::tempdir().unwrap();
    let save = |name: &str, value: &Value| {
        std::fs::write(scratch.path().join(name), value.to_string()).unwrap()
    };
    save("tools.json", &tools());
    save("request.json", &request(true));
    let mut other = request(true);
    other["tools"][0]["function"]["name"] = json!("get_weather");
    save("other.json", &other);
    let mut none = request(true);
    none["tool_choice"] = json!("none");
    save("none.json", &none);
    for (tools, sound, codes) in [
        ("tools.json", true, &[][..]),
        ("tools.json", false, &["arguments_schema"]),
        ("request.json", false, &["arguments_schema"]),
        ("other.json", true, &["unknown_tool"]),
        ("none.json", true, &["tool_choice_violated"]),
    ] {
        let input = answer(sound).to_string();
        let said = check_in(scratch.path(), &["--tools", tools, "--json"], input.as_bytes());
        assert_eq!(said.faults(), codes, "{tools}: {}", said.out);
    }
    // Without them, what can be told of a call by itself is told, and what was not looked at is said.
    let said = check(&["--json"], answer(false).to_string().as_bytes());
    assert_eq!((said.code, said.faults()), (0, Vec::new()));
    assert!(said.out.contains("--tools FILE"), "{}", said.out);
}

#[test]
fn places_are_those_of_the_file_however_the_body_is_wrapped() {
    let body = format!("{:#}", request(false));
    let line =
        1 + body.lines().count() - body.lines().rev().position(|line| line == "  ],").unwrap() - 1;
    let place = |input: &str| {
        let document = check(&["--json"], input.as_bytes()).document();
        let finding = &document["exchanges"][0]["findings"][0];
        let at = |key: &str| usize::try_from(finding[key].as_u64().unwrap()).unwrap();
        (at("line"), at("column"), finding["path"].as_str().unwrap().to_owned())
    };
    // The result is missed where the list ends.
    assert_eq!(place(&body), (line, 3, "messages[2].role".to_owned()));
    let short = request(false).to_string();
    let end = short.find("],\"model\"").or_else(|| short.find("],\"tools\"")).unwrap();
    assert_eq!(place(&short), (1, end + 1, "messages[2].role".to_owned()));
    let record = format!("{{\"level\":\"info\"}}\n\n  {{\"id\":\"é\",\"request\":{short}}}\n");
    assert_eq!(place(&record), (3, end + 23, "request.messages[2].role".to_owned()));
    let quoted = format!("{{\"request\":{{\"body\":\n{}}}}}", Value::from(short.clone()));
    let escaped = Value::from(&short[..end]).to_string().len();
    assert_eq!(place(&quoted), (2, escaped, "request.body.messages[2].role".to_owned()));
}

#[test]
fn an_event_is_told_by_its_number_and_line() {
    let broken = stream(true).replace("data: [DONE]", "data: {\"choices\":");
    let document = check(&["--json"], broken.as_bytes()).document();
    let finding = &document["exchanges"][0]["findings"][0];
    assert_eq!(
        (&finding["event"], &finding["line"], &finding["column"]),
        (&json!(3), &json!(5), &json!(7))
    );
    assert_eq!(finding["code"], "broken_stream");
    let cut = stream(true).replace(FINISHED, CUT);
    let document = check(&["--json"], cut.as_bytes()).document();
    let finding = &document["exchanges"][0]["findings"][0];
    assert_eq!((&finding["event"], &finding["line"]), (&json!(2), &json!(3)));
}

#[test]
fn what_cannot_be_judged_says_so_and_is_no_clean_bill() {
    let twice = |line: &str| format!("{line}\n{}\n", request(true));
    for (input, code) in [
        (String::new(), 2),
        ("hello".to_owned(), 2),
        ("<html></html>".to_owned(), 2),
        ("{}".to_owned(), 2),
        ("{\"a\":1}\n{\"b\":2}\n".to_owned(), 2),
        ("{\"log\":{\"entries\":[]}}".to_owned(), 2),
        ("{\"log\":{\"entries\":[".to_owned(), 2),
        // A log with a line that is cut off: what can be judged is, but it is not clean.
        (twice("{\"request\":{\"mess"), 2),
        (format!("{}{}", twice("{\"request\":{\"mess"), request(false)), 1),
        // A request that is cut off is refused by the proxy: a fault.
        ("{\"messages\":[{\"role\":\"us".to_owned(), 1),
    ] {
        let said = check(&["--json"], input.as_bytes());
        assert_eq!(said.code, code, "{input}: {}", said.out);
        let document = said.document();
        let verdict = if code == 1 { "faults" } else { "unusable" };
        assert_eq!(document["verdict"], verdict, "{input}");
        let text = check(&[], input.as_bytes());
        assert!(text.code == code && text.out.contains("way out:"), "{input}: {}", text.out);
    }
    let gone = check(&["--json", "no-such-file.json"], b"");
    assert!(gone.code == 2 && gone.document()["problem"]["way_out"].is_string());
    let tools = check(&["--tools", "no-such-file.json"], b"{}");
    assert!(tools.code == 2 && tools.out.contains("--tools no-such-file.json"), "{}", tools.out);
}

#[test]
fn the_servers_own_error_is_no_fault_of_anybodys() {
    for input in [
        r#"{"error":{"message":"overloaded"}}"#.to_owned(),
        format!("data: {}\n\ndata: {{\"error\":{{\"message\":\"x\"}}}}\n\n", chunks(true, "x")[0]),
        json!({"request": request(true), "response": {"status_code": 400, "body": {"error": {"message": "x"}}}}).to_string(),
    ] {
        let said = check(&["--json"], input.as_bytes());
        assert_eq!((said.code, said.faults()), (0, Vec::new()), "{input}");
        assert!(said.out.contains("server's own error"), "{}", said.out);
    }
}
