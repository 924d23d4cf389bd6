//! The JSON Schemas of offered tools: compiled when a tool is called, kept between requests.
//!
//! An agent sends the same `tools` with every request, and most of them are never called. So a list
//! is known by its digest, and a schema is compiled when its tool is first called, once. The cache is
//! bounded in entries and in (estimated) bytes; what is dropped is compiled again. Its lock is held
//! for a look-up only, never while compiling.
//!
//! Schemas come from clients and are not trusted: see [`bounds`] for what is refused, and
//! [`validator`] for what is never read (network, files) and never told (values).

pub mod bounds;
pub mod validator;

pub use validator::{Schema, Unusable};

use crate::wire::json::Field;
use crate::wire::request::Tool;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// What a compiled schema takes, as a multiple of its text: measured, rounded up.
const COMPILED_FACTOR: usize = 16;

/// The tools that one request offers.
#[derive(Debug)]
pub struct OfferedTools {
    tools: Vec<OfferedTool>,
}

impl OfferedTools {
    fn of(tools: &[Tool<'_>]) -> Self {
        let tools = tools.iter().filter_map(|tool| {
            let Field::Text(name) = tool.name else { return None };
            Some(OfferedTool {
                name: name.decode().into(),
                custom: tool.custom,
                parameters: tool.parameters.map(Into::into),
                schema: OnceLock::new(),
            })
        });
        OfferedTools { tools: tools.collect() }
    }

    /// Every tool offered under this name: more than one when the request repeats it.
    pub fn named<'a, 'n>(
        &'a self,
        name: &'n str,
    ) -> impl Iterator<Item = &'a OfferedTool> + Clone + use<'a, 'n> {
        self.tools.iter().filter(move |tool| &*tool.name == name)
    }

    fn weight(&self) -> usize {
        let each = self.tools.iter().map(|tool| {
            let parameters = tool.parameters.as_deref().unwrap_or("");
            let patterns = memchr::memmem::find_iter(parameters.as_bytes(), b"\"pattern").count();
            tool.name.len()
                + parameters.len() * COMPILED_FACTOR
                + patterns.min(bounds::MAX_PATTERNS) * validator::PATTERN_BYTES
        });
        size_of::<Self>() + self.tools.len() * size_of::<OfferedTool>() + each.sum::<usize>()
    }
}

/// One offered tool.
#[derive(Debug)]
pub struct OfferedTool {
    name: Box<str>,
    custom: bool,
    parameters: Option<Box<str>>,
    schema: OnceLock<Result<Schema, Unusable>>,
}

impl OfferedTool {
    /// Whether it is a `custom` tool, which takes raw text and has no schema.
    #[must_use]
    pub fn is_custom(&self) -> bool {
        self.custom
    }

    /// Its compiled schema. The first call compiles it; a tool without one takes any object.
    ///
    /// # Errors
    /// When the schema does not compile or passes a bound.
    pub fn schema(&self) -> Result<&Schema, Unusable> {
        let compile = || self.parameters.as_deref().map_or(Ok(Schema::any()), Schema::compile);
        self.schema.get_or_init(compile).as_ref().map_err(|unusable| *unusable)
    }
}

/// Tool lists that were offered lately, by digest, with what was compiled of them.
#[derive(Debug)]
pub struct SchemaCache {
    kept: Mutex<Kept>,
    max_entries: usize,
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct Kept {
    lists: HashMap<[u8; 32], Entry>,
    bytes: usize,
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    tools: Arc<OfferedTools>,
    weight: usize,
    used: u64,
}

impl SchemaCache {
    /// A cache of at most `max_entries` tool lists and about `max_bytes` of memory.
    #[must_use]
    pub fn new(max_entries: usize, max_bytes: usize) -> Self {
        SchemaCache { kept: Mutex::default(), max_entries, max_bytes }
    }

    /// The tools of a request; `None` when it offers none.
    #[must_use]
    pub fn offered(&self, tools: &[Tool<'_>]) -> Option<Arc<OfferedTools>> {
        if tools.is_empty() {
            return None;
        }
        let key = digest(tools);
        if let Some(known) = self.kept.lock().touch(&key) {
            return Some(known);
        }
        let fresh = Arc::new(OfferedTools::of(tools));
        let weight = fresh.weight();
        if weight > self.max_bytes || self.max_entries == 0 {
            return Some(fresh);
        }
        let mut kept = self.kept.lock();
        if let Some(known) = kept.touch(&key) {
            return Some(known);
        }
        kept.bytes += weight;
        let used = kept.tick();
        kept.lists.insert(key, Entry { tools: Arc::clone(&fresh), weight, used });
        while kept.lists.len() > self.max_entries || kept.bytes > self.max_bytes {
            kept.drop_oldest();
        }
        Some(fresh)
    }

    /// How many lists are kept, and their estimated bytes.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let kept = self.kept.lock();
        (kept.lists.len(), kept.bytes)
    }
}

impl Default for SchemaCache {
    /// 512 lists, 64 MiB.
    fn default() -> Self {
        SchemaCache::new(512, 64 << 20)
    }
}

impl Kept {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn touch(&mut self, key: &[u8; 32]) -> Option<Arc<OfferedTools>> {
        let used = self.tick();
        let entry = self.lists.get_mut(key)?;
        entry.used = used;
        Some(Arc::clone(&entry.tools))
    }

    /// A scan: it runs only when a new list is kept and there are few hundred.
    fn drop_oldest(&mut self) {
        let oldest = self.lists.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key);
        if let Some(entry) = oldest.and_then(|key| self.lists.remove(&key)) {
            self.bytes -= entry.weight;
        }
    }
}

/// What is judged of a tool list, as one digest: descriptions may change without a new entry.
fn digest(tools: &[Tool<'_>]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    for tool in tools {
        let name = if let Field::Text(name) = tool.name { name.raw() } else { "" };
        part(name.as_bytes());
        part(&[u8::from(tool.custom), u8::from(tool.parameters.is_some())]);
        part(tool.parameters.unwrap_or("").as_bytes());
    }
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests;
