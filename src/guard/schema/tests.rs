#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::wire::request::ChatRequest;
use serde_json::{Value, json};
use std::fmt::Write as _;

fn check(schema: &Value, arguments: &Value) -> Result<(), Vec<String>> {
    let schema = Schema::compile(&schema.to_string()).unwrap();
    schema.check(arguments, arguments.to_string().len())
}

fn problems(schema: &Value, arguments: &Value) -> Vec<String> {
    check(schema, arguments).unwrap_err()
}

fn request(tools: &[&str]) -> String {
    let tools = tools.join(",");
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":"q"}}],"tools":[{tools}]}}"#)
}

fn tool(name: &str, parameters: &str) -> String {
    format!(r#"{{"type":"function","function":{{"name":"{name}","parameters":{parameters}}}}}"#)
}

fn offered(cache: &SchemaCache, tools: &[&str]) -> Option<Arc<OfferedTools>> {
    let body = request(tools);
    cache.offered(&ChatRequest::parse(body.as_bytes(), 64).unwrap().tools)
}

#[test]
fn what_takes_any_object() {
    for text in ["{}", "true", " {} "] {
        assert!(Schema::compile(text).unwrap().takes_anything(), "{text}");
    }
    assert!(Schema::any().check(&json!({"a": 1}), 7).is_ok());
}

#[test]
fn problems_name_declared_properties_only() {
    let schema = json!({"type": "object", "required": ["city"], "additionalProperties": false,
        "properties": {"city": {"enum": ["Paris"]}, "days": {"items": {"type": "integer"}},
            "tags": {"additionalProperties": {"type": "string"}}}});
    for (arguments, wanted) in [
        (json!({}), "`city` is missing"),
        (json!({"city": "Rome"}), "`city` is not one of the allowed values"),
        (json!({"city": "Paris", "days": [1, "x"]}), "`days[1]` must be of type integer"),
        (
            json!({"city": "Paris", "zip": 1}),
            "the object holds a property that the schema does not allow",
        ),
        (json!({"city": "Paris", "tags": {"hidden": 7}}), "`tags.*` must be of type string"),
        (json!({"city": "Paris", "tags": {"0123": 7}}), "`tags.*` must be of type string"),
    ] {
        assert_eq!(problems(&schema, &arguments), [wanted], "{arguments}");
    }
    let nothing = json!({"city": "Paris", "days": [1, 2.0], "tags": {"a": "b"}});
    assert_eq!(check(&schema, &nothing), Ok(()));
}

#[test]
fn few_problems_are_told() {
    let many: Vec<usize> = (0..100).collect();
    let schema = json!({"properties": {"a": {"items": {"type": "string"}}}});
    assert_eq!(problems(&schema, &json!({"a": many})).len(), 5);
}

#[test]
fn drafts() {
    let one = json!({"n": 120000.0});
    for draft in [
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2020-12/schema",
        "https://example.com/unknown",
    ] {
        let schema = json!({"$schema": draft, "properties": {"n": {"type": "integer"}}});
        assert_eq!(check(&schema, &one), Ok(()), "{draft}");
        assert_eq!(problems(&schema, &json!({"n": 1.5})), ["`n` must be of type integer"]);
    }
    // Draft 4's boolean bound means something in draft 4 only.
    let schema = json!({"$schema": "http://json-schema.org/draft-04/schema#",
        "properties": {"n": {"minimum": 3, "exclusiveMinimum": true}}});
    assert_eq!(problems(&schema, &json!({"n": 3})), ["`n` is too small"]);
}

#[test]
fn formats_are_not_asserted_and_patterns_are_linear() {
    let schema = json!({"properties": {"d": {"type": "string", "format": "date"}}});
    assert_eq!(check(&schema, &json!({"d": "tomorrow"})), Ok(()));
    let schema = json!({"properties": {"s": {"pattern": "^(a+)+$"}}});
    assert_eq!(problems(&schema, &json!({"s": "a".repeat(50_000) + "!"})).len(), 1);
    for pattern in [r"^(a)\1$", r"(?<=a)b", "(((a{99}){99}){99}){99}"] {
        let schema = json!({"properties": {"s": {"pattern": pattern}}}).to_string();
        assert!(Schema::compile(&schema).is_err(), "{pattern}");
    }
}

#[test]
fn references_stay_inside() {
    let inside = json!({"$defs": {"a/b %": {"type": "string"}},
        "properties": {"x": {"$ref": "#/$defs/a~1b%20%25"}}});
    assert_eq!(problems(&inside, &json!({"x": 1})), ["`x` must be of type string"]);
    for target in
        ["http://127.0.0.1:1/x", "file:///etc/hostname", "other.json", "#/$defs/none", "#name"]
    {
        let schema = json!({"properties": {"x": {"$ref": target}}}).to_string();
        assert!(Schema::compile(&schema).is_err(), "{target}");
    }
    let nested = json!({"properties": {"x": {"$id": "http://a/b", "$ref": "#"}}}).to_string();
    assert!(Schema::compile(&nested).is_err());
    // A property may be called `$id`.
    let property = json!({"properties": {"$id": {"type": "string"}}});
    assert_eq!(check(&property, &json!({"$id": "x"})), Ok(()));
}

#[test]
fn recursive_schemas_work() {
    let tree = json!({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object",
        "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
        "required": ["v"]}}});
    let mut list = json!({"v": 1});
    for _ in 0..100 {
        list = json!({"v": 1, "next": list});
    }
    assert_eq!(check(&tree, &list), Ok(()));
    assert_eq!(problems(&tree, &json!({"v": 1, "next": {}})), Vec::<String>::new());
}

#[test]
fn hostile_schemas_are_refused_not_run() {
    let chain = |length: usize, step: fn(usize) -> String| {
        let mut text = String::from(r##"{"$ref":"#/$defs/a0","$defs":{"##);
        for at in 0..length {
            write!(text, r#""a{at}":{},"#, step(at + 1)).unwrap();
        }
        write!(text, r#""a{length}":{{"type":"object"}}}}}}"#).unwrap();
        text
    };
    let twice = |next: usize| {
        format!(r##"{{"anyOf":[{{"$ref":"#/$defs/a{next}"}},{{"$ref":"#/$defs/a{next}"}}]}}"##)
    };
    let once = |next: usize| format!(r##"{{"$ref":"#/$defs/a{next}"}}"##);
    let deep = format!("{}{{}}{}", r#"{"not":"#.repeat(120), "}".repeat(120));
    let patterns: Vec<Value> = (0..100).map(|at| json!({"pattern": format!("x{at}")})).collect();
    for (title, schema) in [
        ("doubling", chain(40, twice)),
        ("a long chain", chain(5000, once)),
        ("a loop", r##"{"$ref":"#"}"##.to_owned()),
        (
            "a loop of two",
            r##"{"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"$ref":"#"}}}"##.to_owned(),
        ),
        ("patterns", json!({"anyOf": patterns}).to_string()),
        ("length", format!(r#"{{"title":"{}"}}"#, "x".repeat(300_000))),
        ("JSON depth", format!("{}{}", r#"{"not":"#.repeat(5000), "}".repeat(5000))),
        ("no schema", "[]".to_owned()),
        ("no type", r#"{"type":"float"}"#.to_owned()),
    ] {
        assert!(Schema::compile(&schema).is_err(), "{title}");
    }
    for (title, schema) in
        [("some doubling", chain(8, twice)), ("a chain", chain(50, once)), ("deep", deep)]
    {
        assert!(Schema::compile(&schema).is_ok(), "{title}");
    }
}

#[test]
fn a_recursive_schema_does_not_double_its_work_with_depth() {
    let twin = r##"{"anyOf":[{"type":"array"},{"properties":{"a":{"$ref":"#"}}},{"properties":{"a":{"$ref":"#"}}}],"not":{"required":["bad"]}}"##;
    let schema = Schema::compile(twin).unwrap();
    let mut value = json!({"bad": 1});
    for _ in 0..60 {
        value = json!({"a": value});
    }
    assert!(schema.check(&value, 1000).is_err());
}

#[test]
fn too_much_to_check_is_refused() {
    let tree = r##"{"allOf":[{"allOf":[{"allOf":[{"properties":{"n":{"$ref":"#"}}}]}]}]}"##;
    let schema = Schema::compile(tree).unwrap();
    let mut value = json!({});
    for _ in 0..100 {
        value = json!({"n": value});
    }
    assert_eq!(schema.check(&value, 700), Ok(()));
    for _ in 0..25 {
        value = json!({"n": value});
    }
    let refused = schema.check(&value, 700).unwrap_err();
    assert_eq!(refused, ["they are too large or too deep to be checked"]);
}

#[test]
fn a_list_is_compiled_once_and_only_where_called() {
    let cache = SchemaCache::default();
    assert!(offered(&cache, &[]).is_none());
    let (a, b) = (tool("a", r#"{"type":"object"}"#), tool("b", "{}"));
    let first = offered(&cache, &[&a, &b]).unwrap();
    let again = offered(&cache, &[&a, &b]).unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    let called = again.named("a").next().unwrap();
    assert!(called.schema.get().is_none());
    assert!(called.schema().is_ok() && called.schema.get().is_some());
    assert!(again.named("b").next().unwrap().schema.get().is_none());
    assert!(!Arc::ptr_eq(&first, &offered(&cache, &[&b, &a]).unwrap()));
    let other = tool("a", r#"{"type":"object","title":"A"}"#);
    assert!(!Arc::ptr_eq(&first, &offered(&cache, &[&other, &b]).unwrap()));
}

#[test]
fn the_cache_is_bounded() {
    let cache = SchemaCache::new(2, 1 << 20);
    let (a, b, c) = (tool("a", "{}"), tool("b", "{}"), tool("c", "{}"));
    let first = offered(&cache, &[&a]).unwrap();
    let _ = offered(&cache, &[&b]);
    assert!(Arc::ptr_eq(&first, &offered(&cache, &[&a]).unwrap()));
    let _ = offered(&cache, &[&c]);
    assert_eq!(cache.size().0, 2);
    assert!(Arc::ptr_eq(&first, &offered(&cache, &[&a]).unwrap()), "the one least used went");
    let large = tool("d", &format!(r#"{{"title":"{}"}}"#, "x".repeat(50_000)));
    let _ = offered(&cache, &[&large]);
    assert!(cache.size().1 <= 1 << 20, "{:?}", cache.size());
    let larger = tool("e", &format!(r#"{{"title":"{}"}}"#, "x".repeat(100_000)));
    assert!(offered(&cache, &[&larger]).is_some(), "too large to keep, judged all the same");
    assert!(cache.size().1 <= 1 << 20, "{:?}", cache.size());
}

#[test]
fn the_deepest_that_is_taken_fits_a_small_stack() {
    // A chain as long as the bound, and a tree as deep as the bound: each on half a worker's stack.
    let mut chain = String::from(r##"{"$ref":"#/$defs/a0","$defs":{"##);
    for at in 0..126 {
        write!(chain, r##""a{at}":{{"allOf":[{{"$ref":"#/$defs/a{}"}}]}},"##, at + 1).unwrap();
    }
    chain.push_str(r#""a126":{"required":["n","x"]}}}"#);
    let tree = r##"{"required":["x"],"allOf":[{"properties":{"n":{"$ref":"#"}}}]}"##;
    let mut value = json!({});
    for _ in 0..126 {
        value = json!({"n": value, "x": 1});
    }
    let run = move || {
        let chain = Schema::compile(&chain).unwrap();
        assert_eq!(chain.check(&json!({"n": 1}), 7), Err(vec!["`x` is missing".to_owned()]));
        assert!(chain.check(&json!({"n": 1, "x": 1}), 7).is_ok());
        assert_eq!(Schema::compile(tree).unwrap().check(&value, 2000), Err(vec![]));
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap().join().unwrap();
}
