use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::BLOCK;
use super::entry::{ENTRY, Entry, USED};
use super::file::{self, Files};
use super::layout::{Layout, WAYS};
use super::locked::Locked;
use crate::AnnDataError;
use crate::source::remote::options::CacheOptions;
use crate::source::remote::service::lock;

/// Uses that are closer together are one.
const SAME_USE_MS: u64 = 1000;

/// Blocks of objects, as they are on disk.
#[derive(Debug)]
pub(in crate::source::remote) struct Cache {
    files: Files,
    layout: Layout,
    /// Threads of this process write one after another: the lock of the file is the process's.
    writing: Mutex<()>,
    /// Somebody was told that it cannot be written to.
    told: AtomicBool,
}

/// What a reader of blocks keeps from one to the next.
#[derive(Debug, Default)]
pub(in crate::source::remote) struct Scratch {
    /// The block that `bytes` is.
    of: Option<u64>,
    bytes: Vec<u8>,
    /// Blocks that were there, and that were not.
    pub(in crate::source::remote) hits: u64,
    pub(in crate::source::remote) misses: u64,
}

impl Cache {
    /// Open it, or make it.
    ///
    /// # Errors
    /// It is too small for a block, or the folder is of no use.
    pub(in crate::source::remote) fn open(options: &CacheOptions) -> Result<Self, AnnDataError> {
        let layout = Layout::of(options.bytes).ok_or_else(|| {
            AnnDataError::Invalid(format!("a cache of {} bytes has no room for blocks: 3 MiB do", options.bytes))
        })?;
        let files = file::open(&options.folder, &layout)?;
        Ok(Self { files, layout, writing: Mutex::new(()), told: AtomicBool::new(false) })
    }

    /// A block, if it is there. `scratch` is for blocks of this object alone.
    pub(in crate::source::remote) fn get<'s>(
        &self,
        name: &[u8; 16],
        block: u64,
        scratch: &'s mut Scratch,
    ) -> Option<&'s [u8]> {
        if scratch.of != Some(block) {
            scratch.of = None;
            if self.read(name, block, &mut scratch.bytes).is_none() {
                scratch.misses += 1;
                return None;
            }
            scratch.of = Some(block);
            scratch.hits += 1;
        }
        Some(&scratch.bytes)
    }

    /// Whether a block seems to be there.
    pub(in crate::source::remote) fn has(&self, name: &[u8; 16], block: u64) -> bool {
        self.find(self.layout.set(name, block), name, block).is_some()
    }

    fn read(&self, name: &[u8; 16], block: u64, bytes: &mut Vec<u8>) -> Option<()> {
        let set = self.layout.set(name, block);
        let (way, entry) = self.find(set, name, block)?;
        if u64::from(entry.len) > BLOCK {
            return None;
        }
        bytes.resize(entry.len as usize, 0);
        self.files.blocks.read_exact_at(bytes, self.layout.slot(set, way)).ok()?;
        if crc32fast::hash(bytes) != entry.sum {
            return None;
        }
        let now = now_ms();
        if now.saturating_sub(entry.used) > SAME_USE_MS {
            // Where another block has taken the slot meanwhile, that one is used: as good.
            let at = self.layout.entries(set) + way * ENTRY as u64 + USED;
            let _ = self.files.blocks.write_all_at(&now.to_le_bytes(), at);
        }
        Some(())
    }

    fn find(&self, set: u64, name: &[u8; 16], block: u64) -> Option<(u64, Entry)> {
        let entries = self.entries(set).ok()?;
        let mut entries = (0..).zip(entries).filter_map(|(way, entry)| Some((way, entry?)));
        entries.find(|(_, entry)| entry.name == *name && entry.block == block)
    }

    fn entries(&self, set: u64) -> io::Result<[Option<Entry>; WAYS as usize]> {
        let mut bytes = [0; WAYS as usize * ENTRY];
        self.files.blocks.read_exact_at(&mut bytes, self.layout.entries(set))?;
        let mut entries = [None; WAYS as usize];
        for (entry, bytes) in entries.iter_mut().zip(bytes.as_chunks::<ENTRY>().0) {
            *entry = Entry::read(bytes);
        }
        Ok(entries)
    }

    /// Keep the blocks from number `first` on that `bytes` are; returns how many could not be kept.
    pub(in crate::source::remote) fn put(&self, name: &[u8; 16], first: u64, bytes: &[u8]) -> u64 {
        let count = bytes.len().div_ceil(BLOCK as usize) as u64;
        let _writing = lock(&self.writing);
        let written = Locked::soon(&self.files.writer).and_then(|_locked| {
            (first..).zip(bytes.chunks(BLOCK as usize)).try_for_each(|(block, bytes)| self.write(name, block, bytes))
        });
        match written {
            Ok(()) => 0,
            Err(e) => {
                if !self.told.swap(true, Ordering::Relaxed) {
                    tracing::warn!("{} takes no blocks, which are read again then: {e}", self.files.path.display());
                }
                count
            }
        }
    }

    /// Write a block into the slot of its set that is empty or was not used for longest. The caller has the lock.
    fn write(&self, name: &[u8; 16], block: u64, bytes: &[u8]) -> io::Result<()> {
        let set = self.layout.set(name, block);
        let entries = self.entries(set)?;
        let sum = crc32fast::hash(bytes);
        let same = |entry: &Option<Entry>| entry.is_some_and(|entry| entry.name == *name && entry.block == block);
        let way = match entries.iter().position(same) {
            // It may be torn, which only who reads it sees; what is written is the same.
            Some(way) => way,
            None => {
                let used = |way: &usize| entries[*way].map_or(0, |entry| entry.used);
                (0..WAYS as usize).min_by_key(used).unwrap_or(0)
            }
        };
        let at = self.layout.entries(set) + way as u64 * ENTRY as u64;
        // Empty while it is written: whoever ends in between leaves an empty slot.
        self.files.blocks.write_all_at(&[0; ENTRY], at)?;
        self.files.blocks.write_all_at(bytes, self.layout.slot(set, way as u64))?;
        let entry = Entry { name: *name, block, len: bytes.len() as u32, sum, used: now_ms() };
        self.files.blocks.write_all_at(&entry.written(), at)
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(folder: &std::path::Path, mib: u64) -> Cache {
        Cache::open(&CacheOptions { folder: folder.to_owned(), bytes: mib << 20 }).unwrap()
    }

    fn block(number: u64) -> Vec<u8> {
        (0..BLOCK).map(|i| (i * 31 + number) as u8).collect()
    }

    fn get(cache: &Cache, name: &[u8; 16], block: u64) -> Option<Vec<u8>> {
        cache.get(name, block, &mut Scratch::default()).map(<[u8]>::to_vec)
    }

    #[test]
    fn blocks_are_kept_for_others_and_the_longest_unused_go() {
        let folder = tempfile::tempdir().unwrap();
        let one = cache(folder.path(), 3);
        let other = cache(folder.path(), 3);
        let slots = one.layout.sets * WAYS;
        for number in 0..slots {
            assert_eq!(one.put(&[1; 16], number, &block(number)), 0);
        }
        for number in 0..slots {
            assert_eq!(get(&other, &[1; 16], number).unwrap(), block(number));
        }
        assert_eq!(get(&other, &[2; 16], 0), None);
        // One more of each set: each takes the place of one.
        for number in slots..slots + one.layout.sets {
            one.put(&[1; 16], number, &block(number));
        }
        let left = (0..slots + one.layout.sets).filter(|number| get(&other, &[1; 16], *number).is_some()).count();
        assert_eq!(left as u64, slots);
        let path = one.files.path.clone();
        assert!(path.metadata().unwrap().len() <= 3 << 20);
        // A short last block.
        assert_eq!(one.put(&[3; 16], 5, &[1, 2, 3]), 0);
        assert_eq!(get(&other, &[3; 16], 5).unwrap(), [1, 2, 3]);
        drop((one, other));
        let larger = cache(folder.path(), 8);
        assert!(!path.exists() && larger.files.path.exists(), "a cache of another size that nobody uses goes");
    }

    #[test]
    fn what_is_torn_is_a_miss() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path(), 3);
        cache.put(&[1; 16], 0, &[block(0), block(1)].concat());
        let set = cache.layout.set(&[1; 16], 0);
        let (way, _) = cache.find(set, &[1; 16], 0).unwrap();
        cache.files.blocks.write_all_at(&[255, 254], cache.layout.slot(set, way) + 777).unwrap();
        assert!(cache.has(&[1; 16], 0));
        assert_eq!(get(&cache, &[1; 16], 0), None);
        assert_eq!(get(&cache, &[1; 16], 1).unwrap(), block(1));
        // Written again it is there again, in the same slot.
        cache.put(&[1; 16], 0, &block(0));
        assert_eq!(get(&cache, &[1; 16], 0).unwrap(), block(0));
        // What is no cache is written anew.
        let path = cache.files.path.clone();
        drop(cache);
        std::fs::write(&path, b"something else").unwrap();
        let again = super::tests::cache(folder.path(), 3);
        assert_eq!(get(&again, &[1; 16], 0), None);
        again.put(&[1; 16], 0, &block(0));
        assert_eq!(get(&again, &[1; 16], 0).unwrap(), block(0));
    }

    #[test]
    fn writers_of_several_files_leave_no_wrong_block() {
        let folder = tempfile::tempdir().unwrap();
        let wrong: u64 = std::thread::scope(|threads| {
            let work = |seed: u64| {
                let cache = cache(folder.path(), 3);
                let mut wrong = 0;
                for i in 0..300 {
                    let number = (i * 7 + seed * 3) % 40;
                    if let Some(found) = get(&cache, &[9; 16], number) {
                        wrong += u64::from(found != block(number));
                    } else {
                        cache.put(&[9; 16], number, &block(number));
                    }
                }
                wrong
            };
            let threads: Vec<_> = (0..4).map(|seed| threads.spawn(move || work(seed))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(wrong, 0);
    }
}
