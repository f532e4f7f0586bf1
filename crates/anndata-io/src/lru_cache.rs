//! `LruCache`: a small cache that is searched linearly. Readers store decoded chunks, MDS shards and row groups in it, and the service of remote
//! objects stores pages.

use std::sync::Arc;

/// Values that were read or decoded and may be needed again. When there is no room for another one, the value that was used
/// least recently is evicted.
#[derive(Debug)]
pub(crate) struct LruCache<K, V> {
    entries: Vec<LruEntry<K, V>>,
    max_entries: usize,
    max_bytes: usize,
    /// Memory of all values.
    bytes: usize,
    /// Counts uses.
    clock: u64,
}

#[derive(Debug)]
struct LruEntry<K, V> {
    key: K,
    value: V,
    /// Memory of the value when it was inserted.
    bytes: usize,
    /// Clock of its last use.
    used: u64,
}

/// A value whose memory is known.
pub(crate) trait MemoryBytes {
    /// Bytes of memory held.
    fn memory_bytes(&self) -> usize;
}

impl<T> MemoryBytes for Vec<T> {
    fn memory_bytes(&self) -> usize {
        self.capacity() * size_of::<T>()
    }
}

impl MemoryBytes for Arc<[u8]> {
    fn memory_bytes(&self) -> usize {
        self.len()
    }
}

impl<T> MemoryBytes for Arc<Vec<T>> {
    fn memory_bytes(&self) -> usize {
        (**self).memory_bytes()
    }
}

impl<K: PartialEq, V: MemoryBytes> LruCache<K, V> {
    /// A cache of at most `max_entries` values, and of at most `max_bytes` bytes unless it has one value only.
    pub const fn new(max_entries: usize, max_bytes: usize) -> Self {
        Self { entries: Vec::new(), max_entries, max_bytes, bytes: 0, clock: 0 }
    }

    /// The index of a value. It is valid until the next insertion or eviction.
    pub fn find(&self, key: &K) -> Option<usize> {
        self.entries.iter().position(|entry| entry.key == *key)
    }

    /// The value that [`Self::find`] or [`Self::insert`] has named. This does not count as a use.
    pub fn value(&self, at: usize) -> &V {
        &self.entries[at].value
    }

    /// A value; this counts as a use.
    pub fn get(&mut self, key: &K) -> Option<&V> {
        let at = self.find(key)?;
        self.clock += 1;
        self.entries[at].used = self.clock;
        Some(&self.entries[at].value)
    }

    /// Evicts values until there is room for another one of `bytes` bytes. Returns the last evicted value, whose memory can be
    /// used again.
    pub fn make_room(&mut self, bytes: usize) -> Option<V> {
        let mut evicted = None;
        while self.entries.len() >= self.max_entries
            || (!self.entries.is_empty() && self.bytes + bytes > self.max_bytes)
        {
            let oldest = (0..self.entries.len()).min_by_key(|at| self.entries[*at].used)?;
            let entry = self.entries.swap_remove(oldest);
            self.bytes -= entry.bytes;
            evicted = Some(entry.value);
        }
        evicted
    }

    /// Inserts or replaces a value, for which [`Self::make_room`] has made room. Returns its index.
    pub fn insert(&mut self, key: K, value: V) -> usize {
        if let Some(at) = self.find(&key) {
            let entry = self.entries.swap_remove(at);
            self.bytes -= entry.bytes;
        }
        self.clock += 1;
        let bytes = value.memory_bytes();
        self.bytes += bytes;
        self.entries.push(LruEntry { key, value, bytes, used: self.clock });
        self.entries.len() - 1
    }

    /// Bytes of memory of all values.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(max_entries: usize, max_bytes: usize, count: usize) -> LruCache<usize, Vec<u8>> {
        let mut cache = LruCache::new(max_entries, max_bytes);
        for key in 0..count {
            assert_eq!(cache.make_room(10), None);
            assert_eq!(cache.insert(key, vec![key as u8; 10]), key);
        }
        cache
    }

    #[test]
    fn the_value_that_was_not_used_for_longest_is_evicted() {
        let mut cache = filled(4, 1000, 4);
        assert_eq!(cache.get(&0), Some(&vec![0; 10]));
        assert_eq!(cache.make_room(10), Some(vec![1; 10]));
        let at = cache.insert(4, vec![4; 10]);
        assert_eq!(cache.value(at), &[4; 10]);
        assert_eq!([0, 1, 2, 3, 4].map(|key| cache.find(&key).is_some()), [true, false, true, true, true]);
        assert_eq!(cache.get(&1), None);
        assert_eq!(cache.bytes(), 40);
    }

    #[test]
    fn bytes_are_bounded_but_for_one_value() {
        let mut cache = filled(4, 35, 3);
        assert_eq!(cache.make_room(16), Some(vec![1; 10]), "the last of two");
        cache.insert(3, vec![3; 16]);
        assert_eq!((cache.find(&2).is_some(), cache.bytes()), (true, 26));
        assert_eq!(cache.make_room(1000), Some(vec![3; 16]));
        cache.insert(4, vec![4; 1000]);
        assert_eq!((cache.find(&4), cache.bytes()), (Some(0), 1000));
    }

    #[test]
    fn a_value_can_be_replaced() {
        let mut cache = filled(4, 1000, 2);
        cache.insert(0, vec![7; 20]);
        assert_eq!(cache.get(&0), Some(&vec![7; 20]));
        assert_eq!(cache.bytes(), 30);
    }
}
