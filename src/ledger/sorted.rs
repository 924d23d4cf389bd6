//! Things in order in one piece of memory, to be found by halving. There are some hundred at most, mostly a few: moving
//! what stands behind costs less than a tree's nodes do, in time and in memory.

/// Things in order, each once.
#[derive(Clone, Debug)]
pub(super) struct Sorted<T>(Vec<T>);

impl<T> Default for Sorted<T> {
    fn default() -> Self {
        Sorted(Vec::new())
    }
}

impl<T: Ord> Sorted<T> {
    pub(super) fn contains(&self, one: &T) -> bool {
        self.0.binary_search(one).is_ok()
    }

    /// Adds it; whether it was not there.
    pub(super) fn insert(&mut self, one: T) -> bool {
        let place = self.0.binary_search(&one);
        if let Err(at) = place {
            self.0.insert(at, one);
        }
        place.is_err()
    }

    /// Takes it out; whether it was there.
    pub(super) fn remove(&mut self, one: &T) -> bool {
        let place = self.0.binary_search(one);
        place.map(|at| self.0.remove(at)).is_ok()
    }
}

impl<K: Ord + Copy> Sorted<(K, u64)> {
    /// The numbers beside `key`, in order.
    pub(super) fn beside(&self, key: K) -> impl DoubleEndedIterator<Item = u64> {
        let begin = self.0.partition_point(|(one, _)| *one < key);
        let rest = self.0.get(begin..).unwrap_or_default();
        let end = rest.iter().position(|(one, _)| *one != key).unwrap_or(rest.len());
        rest.iter().take(end).map(|(_, number)| *number)
    }
}

impl<T: Ord> FromIterator<T> for Sorted<T> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        let mut all: Vec<T> = all.into_iter().collect();
        all.sort_unstable();
        all.dedup();
        Sorted(all)
    }
}

impl<T> Sorted<T> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beside_a_key_is_found_in_order() {
        let mut sorted = Sorted::default();
        for pair in [(2, 5), (1, 9), (2, 1), (3, 0), (2, 3)] {
            assert!(sorted.insert(pair) && !sorted.insert(pair));
        }
        let beside = |sorted: &Sorted<(i32, u64)>, key| sorted.beside(key).collect::<Vec<_>>();
        assert_eq!(beside(&sorted, 2), [1, 3, 5]);
        assert!(sorted.remove(&(2, 3)) && !sorted.remove(&(2, 3)) && !sorted.contains(&(2, 3)));
        assert_eq!(beside(&sorted, 2), [1, 5]);
        assert!(beside(&sorted, 0).is_empty());
        assert_eq!(sorted.beside(2).next_back(), Some(5));
        let same: Sorted<_> = [(2, 1), (3, 0), (1, 9), (2, 5), (2, 5)].into_iter().collect();
        assert_eq!((same.0, sorted.len()), (sorted.0.clone(), 4));
    }
}
