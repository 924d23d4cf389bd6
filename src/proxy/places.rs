//! Places among the exchanges in flight, shared between principals.
//!
//! Whoever comes when there is no place is told so at once: a queue would only let those wait whose clients have
//! given up by the time that they are served. And no principal's flood may take what others need, whether or not
//! they are there yet. A fixed share for each would leave places empty while one principal has work for them;
//! so a share is what is left, some times over: a principal takes a further place only while it holds less than
//! [`SHARE`] times the places that would still be free. One alone gets nearly all. Two that both ask for more come to
//! hold about equally many, as what the greater one gives back is within the reach of the other only. A principal that holds
//! nothing always gets the last place.
//!
//! Where nobody proves who they are there is one principal, and nothing to share.

use super::identity::Principal;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// How many times what is left one principal may hold: of 4096 places, 3640.
const SHARE: usize = 8;

/// All places.
#[derive(Debug)]
pub(crate) struct Places {
    all: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    each: HashMap<Box<[u8]>, usize>,
}

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// All are taken.
    Full,
    /// What is left is for others.
    Share,
}

impl Places {
    pub(crate) fn new(all: usize) -> Arc<Self> {
        Arc::new(Places { all, taken: Mutex::default() })
    }

    /// Takes one for this principal.
    ///
    /// # Errors
    /// When there is none for it.
    pub(crate) fn take(self: &Arc<Self>, principal: &Principal) -> Result<Place, NoPlace> {
        let mut taken = self.taken.lock();
        let free = self.all.saturating_sub(taken.all);
        if free == 0 {
            return Err(NoPlace::Full);
        }
        match taken.each.get_mut(principal.as_bytes()) {
            Some(held) if !principal.is_alone() && *held >= SHARE * (free - 1) => {
                return Err(NoPlace::Share);
            }
            Some(held) => *held += 1,
            None => drop(taken.each.insert(principal.as_bytes().into(), 1)),
        }
        taken.all += 1;
        drop(taken);
        Ok(Place { places: Arc::clone(self), principal: principal.clone() })
    }
}

/// One place, until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    principal: Principal,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        taken.all -= 1;
        match taken.each.get_mut(self.principal.as_bytes()) {
            Some(held) if *held > 1 => *held -= 1,
            _ => drop(taken.each.remove(self.principal.as_bytes())),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn all(places: &Arc<Places>, principal: &Principal) -> Vec<Place> {
        std::iter::from_fn(|| places.take(principal).ok()).collect()
    }

    #[test]
    fn one_alone_gets_nearly_all_and_who_holds_nothing_gets_the_last() {
        let (flood, quiet) = (Principal::named("flood", None), Principal::named("quiet", None));
        for (size, most) in [(1, 1), (2, 1), (8, 7), (16, 14), (4096, 3640)] {
            let places = Places::new(size);
            let held = all(&places, &flood);
            assert_eq!(held.len(), most, "of {size}");
            let wanted = if size == most { NoPlace::Full } else { NoPlace::Share };
            assert_eq!(places.take(&flood).unwrap_err(), wanted, "of {size}");
            assert_eq!(places.take(&quiet).is_ok(), size > 1, "of {size}");
            drop(held);
            assert_eq!(all(&places, &quiet).len(), most, "all came back");
        }
    }

    #[test]
    fn two_that_flood_come_to_hold_about_equally_many() {
        let (one, two) = (Principal::named("one", None), Principal::named("two", None));
        let places = Places::new(90);
        let mut first = all(&places, &one);
        let mut second = Vec::new();
        assert_eq!(first.len(), 80);
        // As exchanges end, whoever asks first, and the flood asks first each time.
        for _ in 0..1000 {
            first.remove(0);
            first.extend(all(&places, &one));
            second.extend(all(&places, &two));
        }
        assert!(
            first.len().abs_diff(second.len()) <= SHARE,
            "{} and {}",
            first.len(),
            second.len()
        );
        assert!(first.len() + second.len() >= 80, "{} and {}", first.len(), second.len());
    }

    #[test]
    fn where_nobody_proves_who_they_are_there_is_nothing_to_share() {
        let places = Places::new(5);
        let held = all(&places, &Principal::anonymous());
        assert_eq!(held.len(), 5);
        assert_eq!(places.take(&Principal::anonymous()).unwrap_err(), NoPlace::Full);
    }
}
