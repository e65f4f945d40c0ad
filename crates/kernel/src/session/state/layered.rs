//! The fold's map: built in place while it is alone, persistent once it was shared. Folding a long log costs a hash table's inserts; a
//! snapshot of what came of it costs nothing, and a batch tried on one costs only itself.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use foldhash::fast::RandomState;
use rpds::HashTrieMapSync;

/// A map that is one value whatever layers it lies in.
///
/// Its hash is fast and not made against an attacker. Nobody gains by collisions here: what a model names is in the keys only as a sha256
/// or as the name of a tool that was offered, and the hash has a seed of each process.
#[derive(Clone, Debug)]
pub(super) struct Layered<K: Eq + Hash, V> {
    /// What was folded before the first snapshot.
    base: Arc<HashMap<K, V, RandomState>>,
    /// What came after it; stands before the base. Once it holds anything the base stays as it is: moving it there would cost a copy
    /// for each snapshot that is still held.
    over: HashTrieMapSync<K, V, RandomState>,
}

impl<K: Eq + Hash + Clone, V: Clone> Layered<K, V> {
    pub(super) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let newer = if self.over.is_empty() { None } else { self.over.get(key) };
        newer.or_else(|| self.base.get(key))
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        match self.alone() {
            Some(base) => drop(base.insert(key, value)),
            None => self.over.insert_mut(key, value),
        }
    }

    /// Changes the value of `key` where there is one, and answers what `change` did.
    pub(super) fn change<R>(&mut self, key: &K, change: impl FnOnce(&mut V) -> R) -> Option<R> {
        if let Some(base) = self.alone() {
            return base.get_mut(key).map(change);
        }
        if !self.over.contains_key(key) {
            let value = self.base.get(key)?.clone();
            self.over.insert_mut(key.clone(), value);
        }
        self.over.get_mut(key).map(change)
    }

    /// Every value, in no order.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let older = self.base.iter().filter(|(key, _)| self.over.is_empty() || !self.over.contains_key(*key));
        self.over.iter().chain(older)
    }

    /// The base, while no snapshot shares it and nothing stands before it.
    fn alone(&mut self) -> Option<&mut HashMap<K, V, RandomState>> {
        if self.over.is_empty() { Arc::get_mut(&mut self.base) } else { None }
    }
}

impl<K: Eq + Hash, V> Default for Layered<K, V> {
    fn default() -> Self {
        Self { base: Arc::default(), over: HashTrieMapSync::new_with_hasher_and_ptr_kind(RandomState::default()) }
    }
}

impl<K: Eq + Hash + Clone, V: Clone + PartialEq> PartialEq for Layered<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().count() == other.iter().count()
            && self.iter().all(|(key, value)| other.get(key).is_some_and(|found| found == value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(u8, u8)]) -> Layered<u8, u8> {
        let mut map = Layered::default();
        pairs.iter().for_each(|(key, value)| map.insert(*key, *value));
        map
    }

    #[test]
    fn a_snapshot_keeps_what_it_was_taken_of() {
        let mut map = of(&[(1, 1), (2, 2)]);
        let snapshot = map.clone();
        map.insert(2, 20);
        map.insert(3, 30);
        assert_eq!(map.change(&1, |value| std::mem::replace(value, 10)), Some(1));
        assert_eq!(map.change(&3, |value| *value += 1), Some(()));
        assert_eq!(map.change(&4, |_| ()), None);
        assert_eq!(snapshot, of(&[(1, 1), (2, 2)]));
        assert_eq!(map, of(&[(1, 10), (2, 20), (3, 31)]));
    }

    #[test]
    fn two_maps_are_equal_whatever_layers_they_lie_in() {
        let mut layered = of(&[(1, 0), (2, 2)]);
        let _snapshot = layered.clone();
        layered.insert(1, 1);
        layered.insert(3, 3);
        let whole = of(&[(3, 3), (2, 2), (1, 1)]);
        assert_eq!(layered, whole);
        assert_eq!(whole, layered);
        assert_eq!(layered.values().count(), 3, "an older value is not seen beside the newer one");
        assert_ne!(layered, of(&[(1, 1), (2, 2)]));
        assert_ne!(of(&[(1, 1), (2, 2)]), layered);
        assert_ne!(layered, of(&[(1, 0), (2, 2), (3, 3)]));
    }

    #[test]
    fn what_nobody_shares_is_changed_in_place() {
        let mut map = of(&[(1, 1)]);
        drop(map.clone());
        map.insert(2, 2);
        map.change(&1, |value| *value = 7);
        assert!(map.over.is_empty());
        assert_eq!(map, of(&[(1, 7), (2, 2)]));
    }
}
