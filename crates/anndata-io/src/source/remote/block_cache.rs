//! A cache of blocks of remote objects on a disk of the node, shared by all processes of the node.
//!
//! Invariants: the cache is one file with a fixed number of slots, so it never exceeds its capacity, even if a process is killed; a
//! block is returned only if its checksum matches, so a torn, half written or replaced block is a miss; a cache that cannot be
//! written to behaves like an empty one.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::libc;

use crate::source::SourceError;
use crate::source::remote::service::{CacheOptions, lock};
use crate::{AnnDataError, RequestError};

/// Size of a block in bytes: small compared with a chunk of rows, and several times what a disk or a network transfers in the
/// latency of a request.
pub(crate) const BLOCK: u64 = 256 << 10;

/// Name of the blocks of one version of an object: 16 bytes of BLAKE3 over its URL and the tag of its version.
pub(crate) fn block_name(url: &str, version: &str) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(url.as_bytes()).update(b"\n").update(version.as_bytes());
    let mut name = [0; 16];
    name.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    name
}

/// The time of use of a slot is not updated more often than this.
const SAME_USE_MS: u64 = 1000;

/// The open cache.
#[derive(Debug)]
pub(crate) struct BlockCache {
    files: CacheFiles,
    layout: CacheLayout,
    /// Serializes the writers of this process; the lock of the file serializes processes.
    writing: Mutex<()>,
    /// Whether the warning about a failed write was given.
    warned: AtomicBool,
}

/// The last block that a reader read, and its counts.
#[derive(Debug, Default)]
pub(crate) struct BlockBuffer {
    /// Number of the block in `bytes`.
    number: Option<u64>,
    bytes: Vec<u8>,
    /// Blocks found in the cache.
    pub hits: u64,
    /// Blocks not found in the cache.
    pub misses: u64,
}

impl BlockCache {
    /// Opens or creates the cache.
    ///
    /// # Errors
    /// The capacity is too small for a block, or the folder cannot be used.
    pub fn open(options: &CacheOptions) -> Result<Self, AnnDataError> {
        let layout = CacheLayout::new(options.bytes).ok_or(RequestError::CacheTooSmall { bytes: options.bytes })?;
        let files = open_cache_files(&options.folder, &layout)?;
        Ok(Self { files, layout, writing: Mutex::new(()), warned: AtomicBool::new(false) })
    }

    /// A block of an object, if the cache has it. `scratch` must not be shared between objects.
    pub fn get<'s>(&self, name: &[u8; 16], block: u64, scratch: &'s mut BlockBuffer) -> Option<&'s [u8]> {
        if scratch.number != Some(block) {
            scratch.number = None;
            if self.read(name, block, &mut scratch.bytes).is_none() {
                scratch.misses += 1;
                return None;
            }
            scratch.number = Some(block);
            scratch.hits += 1;
        }
        Some(&scratch.bytes)
    }

    /// Whether the cache has an entry for a block; its checksum is not compared.
    pub fn has(&self, name: &[u8; 16], block: u64) -> bool {
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
            // If another block has taken the slot meanwhile, its time of use is updated instead, which does no harm.
            let at = self.layout.entries(set) + way * ENTRY_BYTES as u64 + USED_OFFSET;
            let _ = self.files.blocks.write_all_at(&now.to_le_bytes(), at);
        }
        Some(())
    }

    fn find(&self, set: u64, name: &[u8; 16], block: u64) -> Option<(u64, CacheEntry)> {
        let entries = self.entries(set).ok()?;
        let mut entries = (0..).zip(entries).filter_map(|(way, entry)| Some((way, entry?)));
        entries.find(|(_, entry)| entry.name == *name && entry.block == block)
    }

    fn entries(&self, set: u64) -> io::Result<[Option<CacheEntry>; WAYS as usize]> {
        let mut bytes = [0; WAYS as usize * ENTRY_BYTES];
        self.files.blocks.read_exact_at(&mut bytes, self.layout.entries(set))?;
        let mut entries = [None; WAYS as usize];
        for (entry, bytes) in entries.iter_mut().zip(bytes.as_chunks::<ENTRY_BYTES>().0) {
            *entry = CacheEntry::from_bytes(bytes);
        }
        Ok(entries)
    }

    /// Writes `bytes`, which are the blocks from number `first` on; returns how many blocks could not be written.
    pub fn put(&self, name: &[u8; 16], first: u64, bytes: &[u8]) -> u64 {
        let count = bytes.len().div_ceil(BLOCK as usize) as u64;
        let _writing = lock(&self.writing);
        let written = FileLock::acquire(&self.files.writer).and_then(|_locked| {
            (first..).zip(bytes.chunks(BLOCK as usize)).try_for_each(|(block, bytes)| self.write(name, block, bytes))
        });
        match written {
            Ok(()) => 0,
            Err(e) => {
                if !self.warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!("{} takes no blocks, which are read again then: {e}", self.files.path.display());
                }
                count
            }
        }
    }

    /// Writes a block into an empty or the least recently used slot of its set. The caller holds the lock.
    fn write(&self, name: &[u8; 16], block: u64, bytes: &[u8]) -> io::Result<()> {
        let set = self.layout.set(name, block);
        let entries = self.entries(set)?;
        let sum = crc32fast::hash(bytes);
        let same = |entry: &Option<CacheEntry>| entry.is_some_and(|entry| entry.name == *name && entry.block == block);
        let way = match entries.iter().position(same) {
            // The slot has the block already; it may be torn, so it is written again.
            Some(way) => way,
            None => {
                let used = |way: &usize| entries[*way].map_or(0, |entry| entry.used);
                (0..WAYS as usize).min_by_key(used).unwrap_or(0)
            }
        };
        let at = self.layout.entries(set) + way as u64 * ENTRY_BYTES as u64;
        // The entry is empty while the slot is written: a process that is killed in between leaves an empty slot.
        self.files.blocks.write_all_at(&[0; ENTRY_BYTES], at)?;
        self.files.blocks.write_all_at(bytes, self.layout.slot(set, way as u64))?;
        let entry = CacheEntry { name: *name, block, len: bytes.len() as u32, sum, used: now_ms() };
        self.files.blocks.write_all_at(&entry.to_bytes(), at)
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Size of an entry in the file in bytes.
const ENTRY_BYTES: usize = 64;

/// Offset of the time of use in an entry, which is written on its own.
const USED_OFFSET: u64 = 40;

/// The entry of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CacheEntry {
    /// Name of the object's blocks, from [`block_name`].
    name: [u8; 16],
    /// Number of the block in its object.
    block: u64,
    /// Length in bytes; the last block of an object may be shorter.
    len: u32,
    /// CRC-32 of the bytes.
    sum: u32,
    /// Time of the last use in ms since 1970. It is not part of the checksum of the entry.
    used: u64,
}

impl CacheEntry {
    /// Encodes name, block, length, checksum of the block, checksum of these, 4 unused bytes, time of use; the rest is 0.
    fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..16].copy_from_slice(&self.name);
        bytes[16..24].copy_from_slice(&self.block.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.len.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.sum.to_le_bytes());
        let sum = crc32fast::hash(&bytes[..32]);
        bytes[32..36].copy_from_slice(&sum.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.used.to_le_bytes());
        bytes
    }

    /// Decodes an entry; `None` for a slot that is empty or being written.
    fn from_bytes(bytes: &[u8; ENTRY_BYTES]) -> Option<Self> {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        // A length of 0 is an empty slot.
        if crc32fast::hash(&bytes[..32]) != u32_at(32) || u32_at(24) == 0 {
            return None;
        }
        let mut name = [0; 16];
        name.copy_from_slice(&bytes[..16]);
        Some(Self { name, block: u64_at(16), len: u32_at(24), sum: u32_at(28), used: u64_at(USED_OFFSET as usize) })
    }
}

/// Slots of a set. A new block replaces the least recently used slot.
const WAYS: u64 = 8;

/// Offset of the first entry.
const HEADER_BYTES: u64 = 4096;

/// Layout of the file: a header, the entries of all slots set by set, then the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CacheLayout {
    sets: u64,
    /// Offset of the first slot.
    data: u64,
}

impl CacheLayout {
    /// The largest layout that fits into `bytes`; `None` if not even one set fits.
    fn new(bytes: u64) -> Option<Self> {
        let sets = bytes.checked_sub(2 * HEADER_BYTES)? / (WAYS * (BLOCK + ENTRY_BYTES as u64));
        let data = (HEADER_BYTES + sets * WAYS * ENTRY_BYTES as u64).next_multiple_of(HEADER_BYTES);
        (sets > 0).then_some(Self { sets, data })
    }

    /// Size of the file in bytes.
    fn bytes(&self) -> u64 {
        self.data + self.sets * WAYS * BLOCK
    }

    /// Set of a block. Consecutive blocks are in consecutive sets, so that an object that fits into the cache fits completely.
    fn set(&self, name: &[u8; 16], block: u64) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&name[..8]);
        (u64::from_le_bytes(first) % self.sets + block % self.sets) % self.sets
    }

    /// Offset of the entries of a set.
    fn entries(&self, set: u64) -> u64 {
        HEADER_BYTES + set * WAYS * ENTRY_BYTES as u64
    }

    /// Offset of a slot.
    fn slot(&self, set: u64, way: u64) -> u64 {
        self.data + (set * WAYS + way) * BLOCK
    }
}

/// Magic bytes of the file; a file with others is overwritten.
const MAGIC: &[u8; 16] = b"expctl cache 1\n\0";

/// Names of cache files are `blocks-BYTES.cache`.
const PREFIX: &str = "blocks-";
const SUFFIX: &str = ".cache";

/// The open files of a cache.
#[derive(Debug)]
struct CacheFiles {
    path: PathBuf,
    blocks: File,
    /// Locked by the process that writes.
    writer: File,
}

/// Opens or creates the cache in `folder`, and removes unused cache files of other sizes.
///
/// # Errors
/// The folder cannot be created or written to, or belongs to another user; another process holds the lock for too long.
fn open_cache_files(folder: &Path, layout: &CacheLayout) -> Result<CacheFiles, AnnDataError> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(AnnDataError::io("create", folder))?;
    let about = folder.metadata().map_err(AnnDataError::io("inspect", folder))?;
    if about.uid() != nix::unistd::geteuid().as_raw() {
        return Err(AnnDataError::damaged(folder, SourceError::ForeignCache));
    }
    let writer = open_cache_file(&folder.join("lock"))?;
    let locked = FileLock::acquire(&writer).map_err(AnnDataError::io("lock", &folder.join("lock")))?;
    let path = folder.join(format!("{PREFIX}{}{SUFFIX}", layout.bytes()));
    let blocks = open_cache_file(&path)?;
    prepare_cache_file(&blocks, layout).map_err(AnnDataError::io("write", &path))?;
    flock_shared(&blocks).map_err(AnnDataError::io("lock", &path))?;
    remove_other_caches(folder, &path);
    drop(locked);
    Ok(CacheFiles { path, blocks, writer })
}

fn open_cache_file(path: &Path) -> Result<File, AnnDataError> {
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    options.map_err(AnnDataError::io("open", path))
}

/// Sets the length of a new file, which is sparse, and writes its header.
fn prepare_cache_file(file: &File, layout: &CacheLayout) -> io::Result<()> {
    let mut header = [0; 40];
    header[..16].copy_from_slice(MAGIC);
    header[16..24].copy_from_slice(&BLOCK.to_le_bytes());
    header[24..32].copy_from_slice(&layout.sets.to_le_bytes());
    header[32..40].copy_from_slice(&HEADER_BYTES.to_le_bytes());
    let mut found = [0; 40];
    let is_one = file.metadata()?.len() == layout.bytes() && file.read_exact_at(&mut found, 0).is_ok();
    if !is_one || found != header {
        file.set_len(0)?;
        file.set_len(layout.bytes())?;
        file.write_all_at(&header, 0)?;
    }
    Ok(())
}

/// Removes unused cache files of other sizes; failures are ignored.
fn remove_other_caches(folder: &Path, own: &Path) {
    let Ok(entries) = folder.read_dir() else { return };
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| path != own) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with(PREFIX) || !name.ends_with(SUFFIX) {
            continue;
        }
        let Ok(file) = File::open(&path) else { continue };
        if FileLock::try_acquire(&file).is_ok() {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// An exclusive lock of a file against other processes.
#[derive(Debug)]
struct FileLock<'f>(&'f File);

/// Attempts to lock, and the pause between them: the holder writes about a MiB.
const LOCK_TRIES: u32 = 40;
const LOCK_PAUSE: Duration = Duration::from_millis(2);

impl<'f> FileLock<'f> {
    /// Locks the file; waits for a short time.
    ///
    /// # Errors
    /// Another process holds the lock for too long, or the file system has no locks.
    fn acquire(file: &'f File) -> io::Result<Self> {
        for _ in 1..LOCK_TRIES {
            match flock_nonblocking(file, libc::LOCK_EX) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(LOCK_PAUSE),
                result => return result.map(|()| Self(file)),
            }
        }
        flock_nonblocking(file, libc::LOCK_EX).map(|()| Self(file))
    }

    /// Locks the file without waiting.
    ///
    /// # Errors
    /// Another process holds the lock, or the file system has no locks.
    fn try_acquire(file: &'f File) -> io::Result<Self> {
        flock_nonblocking(file, libc::LOCK_EX).map(|()| Self(file))
    }
}

impl Drop for FileLock<'_> {
    fn drop(&mut self) {
        // SAFETY: the file is open. If this fails, closing the file unlocks it.
        let _ = unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
    }
}

/// Marks the file as in use until it is closed.
fn flock_shared(file: &File) -> io::Result<()> {
    flock_nonblocking(file, libc::LOCK_SH)
}

fn flock_nonblocking(file: &File, how: i32) -> io::Result<()> {
    // SAFETY: the file is open.
    match unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(folder: &std::path::Path, mib: u64) -> BlockCache {
        BlockCache::open(&CacheOptions { folder: folder.to_owned(), bytes: mib << 20 }).unwrap()
    }

    fn block(number: u64) -> Vec<u8> {
        (0..BLOCK).map(|i| (i * 31 + number) as u8).collect()
    }

    fn get(cache: &BlockCache, name: &[u8; 16], block: u64) -> Option<Vec<u8>> {
        cache.get(name, block, &mut BlockBuffer::default()).map(<[u8]>::to_vec)
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

    #[test]
    fn an_entry_is_read_back_or_is_none() {
        let entry = CacheEntry { name: [3; 16], block: 1 << 40, len: 77, sum: 0xdead_beef, used: 1 << 50 };
        let bytes = entry.to_bytes();
        assert_eq!(CacheEntry::from_bytes(&bytes), Some(entry));
        assert_eq!(CacheEntry::from_bytes(&[0; ENTRY_BYTES]), None);
        for at in 0..36 {
            let mut torn = bytes;
            torn[at] ^= 1;
            assert_eq!(CacheEntry::from_bytes(&torn), None, "byte {at}");
        }
    }

    #[test]
    fn it_is_no_larger_than_it_may_be_and_an_object_that_fits_has_room() {
        for mib in [3u64, 4, 64, 1000] {
            let layout = CacheLayout::new(mib << 20).unwrap();
            assert!(layout.bytes() <= mib << 20 && layout.bytes() + WAYS * (BLOCK + 64) + 2 * HEADER_BYTES > mib << 20);
            let mut filled = vec![0u64; layout.sets as usize];
            for block in 0..layout.sets * WAYS {
                filled[layout.set(&[7; 16], block) as usize] += 1;
            }
            assert!(filled.iter().all(|n| *n == WAYS));
        }
        assert_eq!(CacheLayout::new(1 << 20), None);
    }
}
