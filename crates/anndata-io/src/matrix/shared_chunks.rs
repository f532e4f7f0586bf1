//! `SharedChunks`: decompressed chunks of many arrays, which the readers of all threads use.
//! Invariant: all chunks together take no more memory than was allowed, unless there is one only.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::lru_cache::LruCache;

/// Decompressed chunks by the number of their array and their number in its grid.
type ChunkCache = LruCache<(usize, u64), Arc<Vec<u8>>>;

/// The chunks of one array among those of many that were decompressed last.
#[derive(Debug)]
pub(crate) struct SharedChunks {
    array: usize,
    all: Arc<Mutex<ChunkCache>>,
}

impl SharedChunks {
    /// The cache is searched linearly.
    const MAX_CHUNKS: usize = 1024;

    /// A cache of at most `max_bytes` bytes, unless it has one chunk only, and its chunks of array 0.
    pub fn new(max_bytes: u64) -> Self {
        let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
        Self { array: 0, all: Arc::new(Mutex::new(LruCache::new(Self::MAX_CHUNKS, max_bytes))) }
    }

    /// The chunks of another array in the same memory.
    pub fn of_array(&self, array: usize) -> Self {
        Self { array, all: Arc::clone(&self.all) }
    }

    /// The bytes of a chunk.
    pub fn get(&self, chunk: u64) -> Option<Arc<Vec<u8>>> {
        self.lock().get(&(self.array, chunk)).map(Arc::clone)
    }

    /// Adds a chunk; those that were not used for longest make room for it.
    pub fn insert(&self, chunk: u64, bytes: Arc<Vec<u8>>) {
        let (key, mut chunks) = ((self.array, chunk), self.lock());
        // Another thread may have decompressed it, too.
        if chunks.find(&key).is_none() {
            chunks.make_room(bytes.capacity());
            chunks.insert(key, bytes);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ChunkCache> {
        // No panic can leave the cache half changed.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_there_while_there_is_room() {
        let (first, chunk) = (SharedChunks::new(100), |value: u8, bytes| Arc::new(vec![value; bytes]));
        let second = first.of_array(1);
        first.insert(7, chunk(0, 40));
        first.insert(8, chunk(1, 40));
        second.insert(7, chunk(2, 40));
        assert_eq!((first.get(7), second.get(7)), (None, Some(chunk(2, 40))));
        // Chunk 8 is used, so that of the second array goes.
        first.get(8).unwrap();
        first.insert(9, chunk(3, 40));
        assert_eq!((first.get(8).is_some(), second.get(7), first.get(9).is_some()), (true, None, true));
        second.insert(4, chunk(4, 400));
        assert_eq!((first.get(8), first.get(9), first.get(4)), (None, None, None));
        second.insert(4, chunk(5, 400));
        assert_eq!(second.get(4), Some(chunk(4, 400)), "the first stays");
    }
}
