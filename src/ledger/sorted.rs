//! Things in order, to be found by halving: mostly a few, in one piece of memory, which takes less of it than a tree
//! and less time; and a tree when there are many, as what stands behind in one piece would have to be moved.

use std::collections::BTreeSet;

/// From here on they are many, until they are few again.
const MANY: usize = 32;
const FEW: usize = 8;

/// Things in order, each once.
#[derive(Clone, Debug)]
pub(super) enum Sorted<T> {
    Few(Vec<T>),
    Many(BTreeSet<T>),
}

impl<T> Default for Sorted<T> {
    fn default() -> Self {
        Sorted::Few(Vec::new())
    }
}

impl<T: Ord> Sorted<T> {
    pub(super) fn contains(&self, one: &T) -> bool {
        match self {
            Sorted::Few(few) => few.binary_search(one).is_ok(),
            Sorted::Many(many) => many.contains(one),
        }
    }

    /// Adds it; whether it was not there.
    pub(super) fn insert(&mut self, one: T) -> bool {
        let few = match self {
            Sorted::Few(few) => few,
            Sorted::Many(many) => return many.insert(one),
        };
        let Err(at) = few.binary_search(&one) else { return false };
        few.insert(at, one);
        if few.len() >= MANY {
            *self = Sorted::Many(std::mem::take(few).into_iter().collect());
        }
        true
    }

    /// Takes it out; whether it was there.
    pub(super) fn remove(&mut self, one: &T) -> bool {
        let many = match self {
            Sorted::Few(few) => {
                return few.binary_search(one).map(|at| few.remove(at)).is_ok();
            }
            Sorted::Many(many) => many,
        };
        let there = many.remove(one);
        if many.len() <= FEW {
            *self = Sorted::Few(std::mem::take(many).into_iter().collect());
        }
        there
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Sorted::Few(few) => few.len(),
            Sorted::Many(many) => many.len(),
        }
    }
}

impl<K: Ord + Copy> Sorted<(K, u64)> {
    /// The numbers beside `key`, in order.
    pub(super) fn beside(&self, key: K) -> impl DoubleEndedIterator<Item = u64> {
        let (few, many) = match self {
            Sorted::Few(few) => {
                let begin = few.partition_point(|(one, _)| *one < key);
                let rest = few.get(begin..).unwrap_or_default();
                let end = rest.iter().position(|(one, _)| *one != key).unwrap_or(rest.len());
                (rest.get(..end), None)
            }
            Sorted::Many(many) => (None, Some(many.range((key, 0)..=(key, u64::MAX)))),
        };
        let all = few.into_iter().flatten().chain(many.into_iter().flatten());
        all.map(|(_, number)| *number)
    }
}

impl<T: Ord> FromIterator<T> for Sorted<T> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        let all: BTreeSet<T> = all.into_iter().collect();
        if all.len() < MANY { Sorted::Few(all.into_iter().collect()) } else { Sorted::Many(all) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beside_a_key_is_found_in_order_be_it_few_or_many() {
        let beside = |sorted: &Sorted<(u64, u64)>, key| sorted.beside(key).collect::<Vec<_>>();
        for more in [0, 100] {
            let mut sorted = Sorted::default();
            for pair in [(2, 5), (1, 9), (2, 1), (3, 0), (2, 3)] {
                assert!(sorted.insert(pair) && !sorted.insert(pair));
            }
            (0..more).for_each(|n| assert!(sorted.insert((10 + n, n))));
            assert_eq!(matches!(sorted, Sorted::Many(_)), more > 0);
            assert_eq!(beside(&sorted, 2), [1, 3, 5]);
            assert!(sorted.remove(&(2, 3)) && !sorted.remove(&(2, 3)));
            assert!(!sorted.contains(&(2, 3)) && sorted.contains(&(2, 5)));
            assert_eq!(beside(&sorted, 2), [1, 5]);
            assert!(beside(&sorted, 0).is_empty() && beside(&sorted, 200).is_empty());
            assert_eq!(sorted.beside(2).next_back(), Some(5));
            let all = [(2, 1), (3, 0), (1, 9), (2, 5), (2, 5)];
            let same: Sorted<_> = all.into_iter().chain((0..more).map(|n| (10 + n, n))).collect();
            assert_eq!((beside(&same, 2), same.len()), (beside(&sorted, 2), sorted.len()));
            (0..more).for_each(|n| assert!(sorted.remove(&(10 + n, n))));
            assert!(matches!(sorted, Sorted::Few(_)));
            assert_eq!((beside(&sorted, 2), sorted.len()), (vec![1, 5], 4));
        }
    }
}
