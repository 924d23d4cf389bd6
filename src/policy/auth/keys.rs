//! The keys file: who may come in with a key, as salted hashes.
//!
//! A key is `tt_<id>_<secret>`. The secret is 256 random bits, so there is nothing to guess and nothing
//! that a slow hash would protect: a keyed BLAKE3 hash under a salt of its own says whether a key is the
//! one that was given out, and the file gives none away. The id is no secret. It finds the one entry to
//! compare with, so that neither the number of keys nor their order shows in how long an answer takes.
//!
//! ```toml
//! [[key]]
//! id = "3kQx7BzL"
//! name = "support-agent"              # the principal; two keys may bear one name (rotation)
//! tenant = "acme"                     # all that follow may be missing
//! models = ["qwen3"]                  # missing: any
//! tools = ["get_order_status"]        # missing: any that the operator allows
//! expires = "2027-06-30T00:00:00Z"    # missing: never
//! salt = "…64 hexadecimal digits…"
//! hash = "…64 hexadecimal digits…"
//! ```

use crate::policy::findings::Findings;
use crate::policy::problem::{Origin, Problem, Problems};
use crate::policy::raw;
use crate::policy::section::{Found, Section, text, words};
use crate::wire::moment;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

/// What every key begins with: secret scanners and people can tell what it is.
pub const PREFIX: &str = "tt_";

/// Letters of ids and secrets.
const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const ID_LETTERS: usize = 8;
/// Longest id that is looked up: what a stranger sends is named in the log.
const ID_AT_MOST: usize = 32;
/// 43 of 62 letters are 256 bits.
const SECRET_LETTERS: usize = 43;
/// Longest name of a principal or a tenant, in bytes.
pub const NAME_BYTES: usize = 256;

/// All keys of a file, by id.
#[derive(Clone, Debug, Default)]
pub struct KeyRing {
    entries: Vec<Entry>,
    by_id: HashMap<String, usize>,
}

/// One key, as the file holds it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Finds it. Part of the key's text, and no secret.
    pub id: String,
    /// The principal that it proves.
    pub name: String,
    /// The principal's tenant.
    pub tenant: Option<String>,
    /// The models it may ask; `None`: any.
    pub models: Option<Vec<String>>,
    /// The tools that may be proposed to it; `None`: any that the operator allows.
    pub tools: Option<Vec<String>>,
    /// Its end, in milliseconds since 1970.
    pub expires: Option<u64>,
    seal: Seal,
}

/// What a key is compared with.
#[derive(Clone, Copy)]
pub struct Seal {
    salt: [u8; 32],
    hash: blake3::Hash,
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal(..)")
    }
}

impl Seal {
    /// Of a key's whole text.
    #[must_use]
    pub fn of(key: &str, salt: [u8; 32]) -> Self {
        Seal { salt, hash: blake3::keyed_hash(&salt, key.as_bytes()) }
    }

    /// Whether this is the key. Takes the same time for any that is of the same length.
    #[must_use]
    pub fn fits(&self, key: &str) -> bool {
        // `Hash` compares in constant time.
        blake3::keyed_hash(&self.salt, key.as_bytes()) == self.hash
    }
}

/// What a new key is to prove, and until when.
#[derive(Clone, Debug, Default)]
pub struct Grant {
    /// The principal.
    pub name: String,
    /// Its tenant.
    pub tenant: Option<String>,
    /// The models it may ask; `None`: any.
    pub models: Option<Vec<String>>,
    /// The tools that may be proposed to it; `None`: any that the operator allows.
    pub tools: Option<Vec<String>>,
    /// Its end, in milliseconds since 1970.
    pub expires: Option<u64>,
}

/// The id within a key's text.
#[must_use]
pub fn id_of(key: &str) -> Option<&str> {
    let (id, secret) = key.strip_prefix(PREFIX)?.split_once('_')?;
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let sized = (1..=ID_AT_MOST).contains(&id.len()) && secret.len() == SECRET_LETTERS;
    (sized && plain(id) && plain(secret)).then_some(id)
}

impl Entry {
    /// A new key and its text, which is kept nowhere. `random` gives numbers below its argument.
    pub fn make(grant: Grant, random: &mut dyn FnMut(usize) -> usize) -> (Self, String) {
        let mut letters = |count: usize| -> String {
            (0..count).map(|_| char::from(LETTERS[random(LETTERS.len())])).collect()
        };
        let id = letters(ID_LETTERS);
        let key = format!("{PREFIX}{id}_{}", letters(SECRET_LETTERS));
        let salt = std::array::from_fn(|_| u8::try_from(random(256)).unwrap_or(0));
        let Grant { name, tenant, models, tools, expires } = grant;
        let seal = Seal::of(&key, salt);
        (Entry { id, name, tenant, models, tools, expires, seal }, key)
    }

    /// What a key is compared with.
    #[must_use]
    pub fn seal(&self) -> &Seal {
        &self.seal
    }

    /// Whether its time is over at `now`, in milliseconds since 1970.
    #[must_use]
    pub fn is_over(&self, now: u64) -> bool {
        self.expires.is_some_and(|end| end <= now)
    }

    fn read(mut section: Section<'_>, findings: &Findings) -> Option<Self> {
        section.require(&["id", "name", "salt", "hash"]);
        let id = section.found("id", words);
        let name = section.found("name", words).filter(|name| is_name(name, findings));
        let tenant = section.found("tenant", words).filter(|name| is_name(name, findings));
        let mut list = |key| -> Option<Vec<String>> {
            Some(section.list(key)?.into_iter().map(|item| item.value).collect())
        };
        let (models, tools) = (list("models"), list("tools"));
        let written = section.found("expires", text);
        let expires = written.as_ref().and_then(|written| end(written, findings));
        let hex = |found: Option<Found<String>>| {
            let found = found?;
            let read = blake3::Hash::from_hex(found.value.trim()).ok();
            if read.is_none() {
                findings.tell(&found.origin, &found.key, "must be 64 hexadecimal digits");
            }
            read
        };
        let salt = hex(section.found("salt", words));
        let hash = hex(section.found("hash", words));
        section.finish();
        if written.is_some() && expires.is_none() {
            // A key without its end would be one for ever.
            return None;
        }
        let id = id?;
        let plain = id.value.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !plain || id.value.len() > ID_AT_MOST {
            findings.tell(&id.origin, &id.key, "must be at most 32 letters and digits");
            return None;
        }
        let seal = Seal { salt: *salt?.as_bytes(), hash: hash? };
        let (id, name, tenant) = (id.value, name?.value, tenant.map(|tenant| tenant.value));
        Some(Entry { id, name, tenant, models, tools, expires, seal })
    }

    fn write(&self, page: &mut String) {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let list = |names: &[String]| {
            let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
            format!("[{}]", names.join(", "))
        };
        let mut line = |key: &str, value: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(page, "{key} = {value}");
        };
        line("id", quoted(&self.id));
        line("name", quoted(&self.name));
        for (key, value) in [
            ("tenant", self.tenant.as_deref().map(quoted)),
            ("models", self.models.as_deref().map(list)),
            ("tools", self.tools.as_deref().map(list)),
            ("expires", self.expires.map(|end| quoted(&moment::rfc3339(end)))),
        ] {
            if let Some(value) = value {
                line(key, value);
            }
        }
        line("salt", quoted(&blake3::Hash::from(self.seal.salt).to_hex()));
        line("hash", quoted(&self.seal.hash.to_hex()));
    }
}

fn end(found: &Found<String>, findings: &Findings) -> Option<u64> {
    let end = moment::parse(&found.value);
    if end.is_none() {
        let message = "is no point in time; write it as \"2027-06-30T00:00:00Z\"";
        findings.tell(&found.origin, &found.key, message);
    }
    end
}

/// Whether a text can name a principal or a tenant.
fn is_name(found: &Found<String>, findings: &Findings) -> bool {
    let told = check_name(&found.value);
    if let Err(message) = told {
        findings.tell(&found.origin, &found.key, message);
    }
    told.is_ok()
}

/// Whether a text can name a principal or a tenant.
///
/// # Errors
/// Why not.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    if name.trim().is_empty() {
        return Err("must not be empty");
    }
    if name.len() > NAME_BYTES {
        return Err("is longer than 256 bytes");
    }
    if name.chars().any(char::is_control) { Err("holds control characters") } else { Ok(()) }
}

impl KeyRing {
    /// Reads the file.
    ///
    /// # Errors
    /// Everything that is wrong with it. No salt, hash or key is repeated.
    pub fn read(path: &Path) -> Result<Self, Problems> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(path, &text),
            Err(error) => {
                let origin = Origin::File { path: path.into(), line: 0 };
                let mut message = format!("cannot be read: {error}");
                if error.kind() == std::io::ErrorKind::NotFound {
                    message.push_str("; `tigertally keys add` makes one");
                }
                Err(Problems::one(Problem { origin, key: String::new(), message }))
            }
        }
    }

    /// Reads the text of the file that is at `path`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, Problems> {
        let mut problems = Vec::new();
        let table = raw::parse(text, path, &mut problems);
        let findings = Findings::new(problems, Vec::new());
        let mut root = Section::root(table, &findings);
        let mut ring = KeyRing::default();
        for (origin, section) in root.tables("key") {
            let Some(entry) = Entry::read(section, &findings) else { continue };
            let id = entry.id.clone();
            if !ring.insert(entry) {
                findings.tell(&origin, "key.id", format!("\"{id}\" is there twice"));
            }
        }
        root.finish();
        Problems::new(findings.into_parts().0).map_or(Ok(ring), Err)
    }

    /// Adds one, unless its id is there already.
    pub fn insert(&mut self, entry: Entry) -> bool {
        let free = !self.by_id.contains_key(&entry.id);
        if free {
            self.by_id.insert(entry.id.clone(), self.entries.len());
            self.entries.push(entry);
        }
        free
    }

    /// Takes one out, if it is there.
    pub fn remove(&mut self, id: &str) -> Option<Entry> {
        let at = self.by_id.remove(id)?;
        let entry = self.entries.remove(at);
        self.by_id.values_mut().filter(|place| **place > at).for_each(|place| *place -= 1);
        Some(entry)
    }

    /// The one with this id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Entry> {
        self.by_id.get(id).and_then(|at| self.entries.get(*at))
    }

    /// All, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The text of the file.
    #[must_use]
    pub fn write(&self) -> String {
        let mut page =
            "# Keys of clients, as salted hashes. Kept by `tigertally keys`.\n".to_owned();
        for entry in &self.entries {
            page.push_str("\n[[key]]\n");
            entry.write(&mut page);
        }
        page
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn counting() -> impl FnMut(usize) -> usize {
        let mut next = 0;
        move |below| {
            next += 7;
            next % below
        }
    }

    fn full() -> Grant {
        Grant {
            name: "süß \"agent\"".to_owned(),
            tenant: Some("acme".to_owned()),
            models: Some(vec!["qwen".to_owned()]),
            tools: Some(Vec::new()),
            expires: Some(1_800_000_000_000),
        }
    }

    #[test]
    fn what_is_written_reads_back_and_the_key_is_not_in_it() {
        let mut random = counting();
        let (entry, key) = Entry::make(full(), &mut random);
        let (other, other_key) =
            Entry::make(Grant { name: "b".to_owned(), ..Grant::default() }, &mut random);
        let mut ring = KeyRing::default();
        assert!(ring.insert(entry.clone()) && ring.insert(other) && !ring.insert(entry));
        let text = ring.write();
        assert!(!text.contains(key.rsplit('_').next().unwrap()));
        let read = KeyRing::parse(Path::new("keys.toml"), &text).unwrap();
        assert_eq!(read.write(), text);
        let found = read.get(id_of(&key).unwrap()).unwrap();
        assert!(found.seal().fits(&key) && !found.seal().fits(&other_key));
        assert_eq!(found.tools.as_deref(), Some(&[][..]));
        assert!(!found.is_over(1_799_999_999_999) && found.is_over(1_800_000_000_000));
        assert!(!format!("{read:?}").contains(&text[text.len() - 20..text.len() - 2]));
    }

    #[test]
    fn one_is_taken_out_and_the_others_are_found_as_before() {
        let mut random = counting();
        let mut ring = KeyRing::default();
        let made: Vec<String> = (0..4)
            .map(|_| {
                let (entry, key) = Entry::make(full(), &mut random);
                assert!(ring.insert(entry));
                key
            })
            .collect();
        let id = |at: usize| id_of(&made[at]).unwrap();
        assert!(ring.remove(id(1)).is_some() && ring.remove(id(1)).is_none());
        for at in [0, 2, 3] {
            assert!(ring.get(id(at)).unwrap().seal().fits(&made[at]));
        }
        assert!(ring.get(id(1)).is_none());
    }

    #[test]
    fn only_the_form_of_a_key_has_an_id() {
        let secret = "a".repeat(SECRET_LETTERS);
        assert_eq!(id_of(&format!("tt_x1_{secret}")), Some("x1"));
        for text in [
            String::new(),
            "sk-abc".to_owned(),
            format!("tt__{secret}"),
            format!("tt_{}_{secret}", "x".repeat(33)),
            format!("tt_x1_{secret}a"),
            format!("tt_x1_{}_", &secret[1..]),
            format!("tt_x 1_{secret}"),
            format!("TT_x1_{secret}"),
        ] {
            assert_eq!(id_of(&text), None, "{text}");
        }
    }

    #[test]
    fn everything_wrong_with_a_file_is_told_at_its_line_without_its_secrets() {
        let text = "[[key]]\nid = \"a-b\"\nname = \"x\"\nsalt = \"5ec7e7\"\nhash = \"5ec7e7\"\n\
                    [[key]]\nnmae = \"x\"\nexpires = \"soon\"\n[keys]\n";
        let problems = KeyRing::parse(Path::new("k.toml"), text).unwrap_err();
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        for words in [
            "k.toml:2: key.id: must be at most 32 letters and digits",
            "k.toml:4: key.salt: must be 64 hexadecimal digits",
            "k.toml:5: key.hash: must be 64 hexadecimal digits",
            "k.toml:6: key.id: is missing",
            "k.toml:6: key.salt: is missing",
            "k.toml:7: key.nmae: unknown key; did you mean \"name\"?",
            "k.toml:8: key.expires: is no point in time; write it as \"2027-06-30T00:00:00Z\"",
            "k.toml:9: keys: unknown section; did you mean \"key\"?",
        ] {
            assert!(told.iter().any(|line| line == words), "{words}\n{told:#?}");
        }
        assert!(!told.join("\n").contains("5ec7e7"));
    }
}
