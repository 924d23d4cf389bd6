//! What is measured of the pure parts. By time in `benches/pure`, by instructions in `benches/instructions`.

use crate::bodies::{self, ARGUMENTS, SCHEMA};
use crate::streams;
use crate::turns::{Agent, Tasks};
use bytes::Bytes;
use std::any::Any;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use tigertally::guard::arguments::arguments_object;
use tigertally::guard::assembly::{Assembly, End};
use tigertally::guard::offer::{Offer, ToolRules};
use tigertally::guard::pairing;
use tigertally::guard::proposal;
use tigertally::guard::schema::SchemaCache;
use tigertally::ledger::digest::DigestKey;
use tigertally::store::encoding;
use tigertally::wire::chunk::{Chunk, Stencil};
use tigertally::wire::content;
use tigertally::wire::request::ChatRequest;
use tigertally::wire::sse::Decoder;

const DEPTH: usize = 128;
/// Chunks in one go: a single one is too short to be timed.
const CHUNKS: usize = 100;

/// One thing that is measured.
pub(crate) struct Workload {
    pub(crate) name: String,
    /// How many bytes it reads, where that is the measure of it.
    pub(crate) bytes: Option<usize>,
    /// Gets ready for one run.
    pub(crate) prepare: Box<dyn Fn() -> Run>,
}

/// One run. What it gives is dropped after the measurement.
pub(crate) type Run = Box<dyn FnOnce() -> Box<dyn Any>>;

fn workload<T: 'static, G: 'static>(
    name: &str,
    bytes: Option<usize>,
    input: impl Fn() -> T + 'static,
    run: impl Fn(&mut T) -> G + Copy + 'static,
) -> Workload {
    let prepare = move || -> Run {
        let mut input = input();
        Box::new(move || {
            let given = run(black_box(&mut input));
            Box::new((black_box(given), input))
        })
    };
    Workload { name: name.to_owned(), bytes, prepare: Box::new(prepare) }
}

/// All of them.
pub(crate) fn all() -> Vec<Workload> {
    let mut all = Vec::new();
    requests(&mut all);
    proposals(&mut all);
    chunks(&mut all);
    stenciled(&mut all);
    events(&mut all);
    turns(&mut all);
    all
}

fn requests(all: &mut Vec<Workload>) {
    let bodies = [
        ("1k", bodies::history(1 << 10)),
        ("100k", bodies::history(100_000)),
        ("200k", bodies::history(200_000)),
        ("1m", bodies::history(1_000_000)),
        ("4m", bodies::history(4_000_000)),
        ("4m-picture", bodies::picture(4 << 20)),
    ];
    for (size, body) in bodies {
        let body: Rc<str> = body.into();
        let bytes = Some(body.len());
        let input = || {
            let body = Rc::clone(&body);
            move || Rc::clone(&body)
        };
        if !matches!(size, "100k" | "1m") {
            all.push(workload(&format!("view/{size}"), bytes, input(), |body| {
                parsed(body).messages.len()
            }));
        }
        if size == "4m-picture" {
            continue;
        }
        // A view borrows its body, so pairing is measured with it; what it adds is the difference.
        all.push(workload(&format!("view+pairing/{size}"), bytes, input(), |body| {
            pairing::judge(&parsed(body)).runs.len()
        }));
        if !matches!(size, "100k" | "1m") {
            all.push(workload(&format!("view+digests/{size}"), bytes, input(), |body| {
                digests(&parsed(body))
            }));
        }
    }
}

fn parsed(body: &str) -> ChatRequest<'_> {
    ChatRequest::parse(body.as_bytes(), DEPTH).unwrap()
}

/// What the ledger is asked with: the list, and each call with its result.
fn digests(request: &ChatRequest<'_>) -> u8 {
    let key = DigestKey::new([7; 32]);
    let mut list = key.begin("list");
    let mut sum = 0;
    for message in &request.messages {
        list.object(request.members_of(message));
        for call in &message.tool_calls {
            let text = call.arguments.text().map(|text| text.decode()).unwrap_or_default();
            sum ^= key.arguments(&text).as_bytes()[0];
        }
        if message.tool_call_id.text().is_some() {
            let raw = message.content.map_or("null", |content| content.raw);
            if content::may_be_as_short_as(raw, "cancelled".len()) {
                sum ^= u8::from(content::text(raw).is_some_and(|text| text == "cancelled"));
            }
            let result = message.text.map(|text| key.text("result", &text));
            sum ^= result.unwrap_or_else(|| key.json("result", raw)).as_bytes()[0];
        }
    }
    sum ^ list.digest().as_bytes()[0]
}

fn proposals(all: &mut Vec<Workload>) {
    all.push(workload(
        "arguments",
        Some(ARGUMENTS.len()),
        || (),
        |()| arguments_object(black_box(ARGUMENTS), DEPTH),
    ));
    let long = format!(
        r#"{{"path":"a.rs","text":{}}}"#,
        serde_json::to_string(&"let x = \"1\";\n".repeat(800)).unwrap()
    );
    let long: Rc<str> = long.into();
    all.push(workload(
        "arguments/10k",
        Some(long.len()),
        move || Rc::clone(&long),
        |text| arguments_object(text, DEPTH),
    ));
    let body = format!(r#"{{"messages":[],"tools":{}}}"#, bodies::tools(12));
    let rules = Arc::new(ToolRules::default());
    let cache = Arc::new(SchemaCache::default());
    let _ = Offer::of(&parsed(&body), Arc::clone(&rules), &cache);
    let offer = Offer::of(&parsed(&body), Arc::clone(&rules), &cache);
    let stream: Vec<String> = std::iter::once(streams::head())
        .chain(
            [ARGUMENTS]
                .map(|text| streams::piece(0).replace(r#"{\"order"#, &text.replace('"', "\\\""))),
        )
        .chain([streams::last()])
        .collect();
    let mut assembly = Assembly::new(1);
    for chunk in &stream {
        let _ = assembly.push(&Chunk::parse(chunk.as_bytes(), DEPTH).unwrap());
    }
    let (proposed, faults) = assembly.finish(End::Clean);
    assert!(faults.is_empty() && proposed.has_calls());
    // The first call compiles the schema.
    assert_eq!(proposal::judge(&proposed, &offer, true), []);
    let both = Rc::new((proposed, offer));
    all.push(workload(
        "proposal with a schema",
        None,
        move || Rc::clone(&both),
        |both| proposal::judge(&both.0, &both.1, true).len(),
    ));
    let body: Rc<str> = body.into();
    all.push(workload(
        "offer of 12 known tools",
        Some(body.len()),
        move || (Rc::clone(&body), Arc::clone(&rules), Arc::clone(&cache)),
        |input| Offer::of(&parsed(&input.0), Arc::clone(&input.1), &input.2),
    ));
    all.push(workload(
        "schema compiled",
        Some(SCHEMA.len()),
        || (),
        |()| tigertally::guard::schema::Schema::compile(black_box(SCHEMA)).unwrap(),
    ));
}

fn chunks(all: &mut Vec<Workload>) {
    let kinds: [(&str, Vec<String>); 3] = [
        ("text", vec![streams::text(); CHUNKS]),
        (
            "call",
            std::iter::once(streams::head())
                .chain((1..CHUNKS).map(|_| streams::piece(3)))
                .collect(),
        ),
        ("last", vec![streams::last(); CHUNKS]),
    ];
    for (name, chunks) in kinds {
        let chunks: Rc<[String]> = chunks.into();
        let bytes = chunks.iter().map(String::len).sum();
        let input = move || (Rc::clone(&chunks), Assembly::new(1));
        all.push(workload(
            &format!("100 chunks/{name}"),
            Some(bytes),
            input,
            |(chunks, assembly)| {
                for chunk in &**chunks {
                    let chunk = Chunk::parse(chunk.as_bytes(), DEPTH).unwrap();
                    let _ = black_box(assembly.push(&chunk));
                }
            },
        ));
    }
}

/// Text as the relay takes it: only what does not look like the chunk before is read.
fn stenciled(all: &mut Vec<Workload>) {
    let chunks: Rc<[String]> = vec![streams::text(); CHUNKS].into();
    let bytes = chunks.iter().map(String::len).sum();
    let input = move || (Rc::clone(&chunks), Stencil::default());
    all.push(workload("100 chunks/text by stencil", Some(bytes), input, |(chunks, stencil)| {
        for chunk in &**chunks {
            let payload = chunk.as_bytes();
            if !stencil.fits(black_box(payload)) {
                stencil.take(payload, &Chunk::parse(payload, DEPTH).unwrap());
            }
        }
    }));
}

fn events(all: &mut Vec<Workload>) {
    let stream = streams::stream(std::iter::repeat_n(streams::text(), CHUNKS));
    let stream = Bytes::from(stream);
    let event = stream.len() / CHUNKS;
    for (name, size) in [
        ("one buffer", stream.len()),
        ("buffers of 1400", 1400),
        ("a buffer each", event),
        ("half an event", event / 2),
    ] {
        let stream = stream.clone();
        let input = move || {
            let buffers: Vec<Bytes> = (0..stream.len())
                .step_by(size)
                .map(|at| stream.slice(at..stream.len().min(at + size)))
                .collect();
            (buffers, Decoder::default())
        };
        all.push(workload(
            &format!("100 events/{name}"),
            Some(event * CHUNKS),
            input,
            |(buffers, decoder)| {
                for buffer in &*buffers {
                    decoder.push(buffer.clone());
                    while let Some(event) = decoder.next_event() {
                        black_box(event);
                    }
                }
            },
        ));
    }
}

fn turns(all: &mut Vec<Workload>) {
    for (kind, tasks) in [("tasks", Tasks::Each), ("one task", Tasks::One)] {
        for age in [1, 10, 100, 1000, 2000] {
            let agent = Rc::new(Agent::of_age(age, tasks));
            for history in [0, 100] {
                if history > 0 && age != 100 {
                    continue;
                }
                let agent = Rc::clone(&agent);
                let name = if history > 0 {
                    format!("turn/{kind}, {age} before and shown")
                } else {
                    format!("turn/{kind}, {age} before")
                };
                let input = move || {
                    let mut agent = Agent::clone(&agent);
                    // A clone has no room to spare: the first turn makes some.
                    let events = agent.next_turn(history);
                    agent.apply(&events);
                    let events = agent.next_turn(history);
                    (agent, events)
                };
                all.push(workload(&name, None, input, |(agent, events)| agent.apply(events)));
            }
            if age == 2000 {
                continue;
            }
            let used = tigertally::ledger::event::Millis(1);
            let encoded: Rc<[u8]> = encoding::encode(used, &agent.conversation).unwrap().into();
            let bytes = Some(encoded.len());
            let name = |what: &str| format!("{what}/{kind}, {age} before");
            all.push(workload(
                &name("encode"),
                bytes,
                move || Rc::clone(&agent),
                move |agent| encoding::encode(used, &agent.conversation).unwrap(),
            ));
            all.push(workload(
                &name("decode"),
                bytes,
                move || Rc::clone(&encoded),
                |bytes| encoding::decode(bytes).unwrap(),
            ));
        }
    }
}
