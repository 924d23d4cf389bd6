//! How much work a schema may ask for, measured before it is compiled.
//!
//! A small text can ask for a lot: forty definitions that each refer twice to the next make 2⁴⁰
//! checks, and a long chain of references a deep stack. The validator guards against endless loops
//! only. So the schema is read as a graph: a node for each subschema, an edge to each part that is
//! applied *in place* (to the same value) or *below* (to a member of it), references included. From
//! it come the cost of one full expansion, the longest in-place chain, and whether it is recursive.
//!
//! References by local pointer (`#/$defs/x`) are followed. Anything else (other documents, anchors,
//! dynamic references, an `$id` inside) would mean another graph, and makes the schema unusable.

use super::Unusable;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// Longest schema text, in bytes.
pub const MAX_BYTES: usize = 256 << 10;
/// Most subschemas.
pub const MAX_NODES: usize = 10_000;
/// Longest path through subschemas, references followed, until it repeats.
pub const MAX_PATH: usize = 256;
/// Most subschemas in one full expansion.
pub const MAX_COST: u64 = 20_000;
/// Most patterns.
pub const MAX_PATTERNS: usize = 64;

/// What the graph of a schema tells.
#[derive(Debug, Default)]
pub struct Measure {
    /// Subschemas in one full expansion.
    pub cost: u64,
    /// Longest chain of subschemas applied to one value.
    pub chain: usize,
    /// Whether it refers to itself, so that the value decides how deep it goes.
    pub recursive: bool,
    /// Property names that the schema itself declares.
    pub declared: HashSet<Box<str>>,
}

/// Measures a schema.
///
/// # Errors
/// When it passes a bound, or refers to anything but its own parts.
pub fn measure(root: &Value) -> Result<Measure, Unusable> {
    let mut graph = Graph::default();
    graph.read(root)?;
    let mut measure = Measure { declared: graph.declared, ..Measure::default() };
    let mut chains = vec![Mark::New; graph.nodes.len()];
    for node in 0..graph.nodes.len() {
        measure.chain = measure.chain.max(chain(&graph.nodes, &mut chains, node, 0)?);
    }
    let mut costs = vec![Mark::New; graph.nodes.len()];
    measure.cost = cost(&graph.nodes, &mut costs, 0, 0, &mut measure.recursive)?;
    Ok(measure)
}

#[derive(Debug, Default)]
struct Node {
    in_place: Vec<usize>,
    below: Vec<usize>,
    unevaluated: bool,
}

#[derive(Debug, Default)]
struct Graph<'s> {
    nodes: Vec<Node>,
    values: Vec<&'s Value>,
    /// By address: one value is one node, however often it is referred to.
    known: HashMap<*const Value, usize>,
    declared: HashSet<Box<str>>,
    patterns: usize,
}

impl<'s> Graph<'s> {
    fn read(&mut self, root: &'s Value) -> Result<(), Unusable> {
        self.node(root);
        let mut next = 0;
        while let Some(value) = self.values.get(next).copied() {
            if let Value::Object(members) = value {
                self.members(root, next, members)?;
            }
            if self.nodes.len() > MAX_NODES {
                return Err(Unusable("it has too many parts"));
            }
            if self.patterns > MAX_PATTERNS {
                return Err(Unusable("it has too many patterns"));
            }
            next += 1;
        }
        Ok(())
    }

    fn node(&mut self, value: &'s Value) -> usize {
        let fresh = self.nodes.len();
        let index = *self.known.entry(std::ptr::from_ref(value)).or_insert(fresh);
        if index == fresh {
            self.nodes.push(Node::default());
            self.values.push(value);
        }
        index
    }

    fn members(
        &mut self,
        root: &'s Value,
        at: usize,
        members: &'s Map<String, Value>,
    ) -> Result<(), Unusable> {
        let mut in_place = Vec::new();
        let mut below = Vec::new();
        for (keyword, value) in members {
            match (keyword.as_str(), value) {
                ("$ref" | "$recursiveRef" | "$dynamicRef", Value::String(target)) => {
                    in_place.push(resolve(root, target)?);
                }
                ("$id" | "id", Value::String(_)) if at != 0 => {
                    return Err(Unusable("it holds a second document"));
                }
                ("allOf" | "anyOf" | "oneOf", Value::Array(parts)) => in_place.extend(parts),
                ("not" | "if" | "then" | "else", part) => in_place.push(part),
                ("dependentSchemas" | "dependencies", Value::Object(parts)) => {
                    in_place.extend(parts.values());
                }
                ("properties", Value::Object(parts)) => {
                    self.declared.extend(parts.keys().map(|name| name.as_str().into()));
                    below.extend(parts.values());
                }
                ("required", Value::Array(names)) => {
                    self.declared.extend(names.iter().filter_map(Value::as_str).map(Into::into));
                }
                ("patternProperties", Value::Object(parts)) => {
                    self.patterns += parts.len();
                    below.extend(parts.values());
                }
                ("pattern", _) => self.patterns += 1,
                ("items" | "prefixItems", Value::Array(parts)) => below.extend(parts),
                (
                    "items"
                    | "additionalItems"
                    | "contains"
                    | "additionalProperties"
                    | "propertyNames",
                    part,
                ) => below.push(part),
                ("unevaluatedItems" | "unevaluatedProperties", part) => {
                    self.nodes[at].unevaluated = true;
                    below.push(part);
                }
                _ => {}
            }
        }
        self.nodes[at].in_place = in_place.into_iter().map(|value| self.node(value)).collect();
        self.nodes[at].below = below.into_iter().map(|value| self.node(value)).collect();
        Ok(())
    }
}

/// The part that a local reference names.
fn resolve<'s>(root: &'s Value, target: &str) -> Result<&'s Value, Unusable> {
    match target.strip_prefix('#') {
        Some("") => Ok(root),
        Some(pointer) if pointer.starts_with('/') => percent_decoded(pointer)
            .and_then(|pointer| root.pointer(&pointer))
            .ok_or(Unusable("it refers to a part that it does not have")),
        _ => Err(Unusable("it refers to something other than its own parts by pointer")),
    }
}

/// RFC 3986, section 2.1: a pointer in a fragment may be percent-encoded.
fn percent_decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        out.push(if byte == b'%' { u8::try_from(digit()? * 16 + digit()?).ok()? } else { byte });
    }
    String::from_utf8(out).ok()
}

#[derive(Clone, Copy)]
enum Mark {
    New,
    Open,
    Done(u64),
}

/// The longest chain of in-place steps from a node.
fn chain(nodes: &[Node], marks: &mut [Mark], at: usize, path: usize) -> Result<usize, Unusable> {
    match marks[at] {
        Mark::Done(length) => return Ok(usize::try_from(length).unwrap_or(usize::MAX)),
        Mark::Open => return Err(Unusable("it refers to itself without an end")),
        Mark::New if path >= MAX_PATH => return Err(Unusable("it is nested too deeply")),
        Mark::New => marks[at] = Mark::Open,
    }
    let mut longest = 0;
    for next in &nodes[at].in_place {
        longest = longest.max(chain(nodes, marks, *next, path + 1)?);
    }
    marks[at] = Mark::Done(longest as u64 + 1);
    Ok(longest + 1)
}

/// Subschemas in the full expansion from a node; a way back to an open one counts nothing.
fn cost(
    nodes: &[Node],
    marks: &mut [Mark],
    at: usize,
    path: usize,
    recursive: &mut bool,
) -> Result<u64, Unusable> {
    match marks[at] {
        Mark::Done(cost) => return Ok(cost),
        Mark::Open => {
            *recursive = true;
            return Ok(0);
        }
        Mark::New if path >= MAX_PATH => return Err(Unusable("it is nested too deeply")),
        Mark::New => marks[at] = Mark::Open,
    }
    // What was evaluated is found by evaluating the in-place parts again.
    let times = if nodes[at].unevaluated { 2 } else { 1 };
    let mut total: u64 = 1;
    for next in &nodes[at].in_place {
        total += times * cost(nodes, marks, *next, path + 1, recursive)?;
    }
    for next in &nodes[at].below {
        total += cost(nodes, marks, *next, path + 1, recursive)?;
    }
    if total > MAX_COST {
        return Err(Unusable("it asks for too much work"));
    }
    marks[at] = Mark::Done(total);
    Ok(total)
}
