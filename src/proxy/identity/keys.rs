//! `mode = "keys"`: a key of this proxy's own, looked up by the id that it bears.
//!
//! Every answer takes the same work: one look-up, one hash, one comparison in constant time. An id that is
//! unknown is compared with a key that nobody has, so that it cannot be told from a wrong secret.

use super::{Principal, Unproven, bearer, single};
use crate::policy::auth::keys::{Entry, KeyRing, Seal, id_of};
use http::{HeaderMap, HeaderName};
use std::collections::HashMap;
use std::sync::Arc;

/// All keys, each with the principal that it proves.
#[derive(Debug)]
pub(super) struct Keys {
    known: HashMap<String, (Entry, Principal)>,
    nobody: Seal,
}

impl Keys {
    pub(super) fn new(ring: &KeyRing) -> Self {
        let names = |list: &Vec<String>| Arc::new(list.iter().cloned().collect());
        let known = ring.iter().map(|entry| {
            let principal = Principal::named(&entry.name, entry.tenant.as_deref())
                .restricted(entry.models.as_ref().map(names), entry.tools.as_ref().map(names));
            (entry.id.clone(), (entry.clone(), principal))
        });
        Keys { known: known.collect(), nobody: Seal::of("", [0; 32]) }
    }

    /// Whose key a request bears. `now` is in milliseconds since 1970.
    pub(super) fn prove(&self, headers: &HeaderMap, now: u64) -> Result<Principal, Unproven> {
        let key = shown(headers)?;
        let id = id_of(key).ok_or_else(|| Unproven::invalid("not the form of a key"))?;
        let known = self.known.get(id);
        let seal = known.map_or(&self.nobody, |(entry, _)| entry.seal());
        let fits = seal.fits(key);
        match known {
            None => Err(Unproven::invalid(format!("no key has the id {id}"))),
            Some(_) if !fits => Err(Unproven::invalid(format!("not the key with the id {id}"))),
            Some((entry, _)) if entry.is_over(now) => {
                Err(Unproven::invalid(format!("the key with the id {id} has expired")))
            }
            Some((_, principal)) => Ok(principal.clone()),
        }
    }
}

/// The key that a request bears: as OpenAI's SDKs send it, or in the headers that servers of their kind take.
fn shown(headers: &HeaderMap) -> Result<&str, Unproven> {
    const OTHERS: [HeaderName; 2] =
        [HeaderName::from_static("x-api-key"), HeaderName::from_static("api-key")];
    match bearer(headers) {
        Err(Unproven::Nothing) => {}
        found => return found,
    }
    for name in OTHERS {
        if let Some(value) = single(headers, &name)? {
            return Ok(value);
        }
    }
    Err(Unproven::Nothing)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::policy::auth::keys::Grant;

    fn asked(
        keys: &Keys,
        entries: &[(&'static str, &str)],
        now: u64,
    ) -> Result<Principal, Unproven> {
        let mut headers = HeaderMap::new();
        for (name, value) in entries {
            headers.append(*name, value.parse().unwrap());
        }
        keys.prove(&headers, now)
    }

    #[test]
    fn a_key_proves_its_principal_until_it_expires_and_nothing_else_does() {
        let mut seed = 1;
        let mut random = |below| {
            seed = seed * 31 % 1_000_003;
            seed % below
        };
        let grant = Grant {
            name: "a".to_owned(),
            tools: Some(vec!["t".to_owned()]),
            expires: Some(1000),
            ..Grant::default()
        };
        let (entry, key) = Entry::make(grant, &mut random);
        let (_, stranger) = Entry::make(Grant::default(), &mut random);
        let mut ring = KeyRing::default();
        ring.insert(entry);
        let keys = Keys::new(&ring);
        let bearer = format!("Bearer {key}");
        let proven = asked(&keys, &[("authorization", &bearer)], 999).unwrap();
        assert_eq!(proven.as_bytes(), Principal::named("a", None).as_bytes());
        assert!(proven.models().is_none() && proven.tools().unwrap().contains("t"));
        assert!(asked(&keys, &[("authorization", &bearer.replace("Bearer", "bearer"))], 1).is_ok());
        assert!(asked(&keys, &[("x-api-key", &key)], 1).is_ok());
        assert!(asked(&keys, &[("api-key", &key)], 1).is_ok());
        assert_eq!(asked(&keys, &[], 1), Err(Unproven::Nothing));
        let mut wrong = key.clone();
        wrong.replace_range(key.len() - 1.., if key.ends_with('a') { "b" } else { "a" });
        for (entries, now) in [
            (vec![("authorization", bearer.as_str())], 1000),
            (vec![("authorization", &*format!("Bearer {wrong}"))], 1),
            (vec![("authorization", &*format!("Bearer {stranger}"))], 1),
            (vec![("authorization", &*format!("Basic {key}"))], 1),
            (vec![("authorization", "Bearer ")], 1),
            (vec![("authorization", "Bearer sk-x"), ("x-api-key", &key)], 1),
            (vec![("authorization", &bearer), ("authorization", &bearer)], 1),
        ] {
            let told = asked(&keys, &entries, now);
            assert!(matches!(told, Err(Unproven::Invalid(_))), "{entries:?}");
        }
    }
}
