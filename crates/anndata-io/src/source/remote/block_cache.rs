//! Blocks of objects on a disk of the node, for all processes that read them there.
//!
//! Invariants: the cache is one file of as many slots as fit into its bytes, so it never has more, whatever ends when; a block
//! is taken only if its checksum is that of the bytes that were read, so what was torn, half written or replaced meanwhile is
//! a miss; a cache that cannot be written to is as good as an empty one.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::libc;

use crate::AnnDataError;
use crate::source::remote::service::{CacheOptions, lock};

/// Bytes of a block: little beside what a chunk of rows has, and some times what a disk or a network does in the time of a
/// request.
pub(crate) const BLOCK: u64 = 256 << 10;

/// What the blocks of one version of an object are called: 16 bytes of BLAKE3 over its URL and what tells its version.
pub(crate) fn block_name(url: &str, version: &str) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(url.as_bytes()).update(b"\n").update(version.as_bytes());
    let mut name = [0; 16];
    name.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    name
}

/// Uses that are closer together are one.
const SAME_USE_MS: u64 = 1000;

/// Blocks of objects, as they are on disk.
#[derive(Debug)]
pub(crate) struct BlockCache {
    files: CacheFiles,
    layout: CacheLayout,
    /// Threads of this process write one after another: the lock of the file is the process's.
    writing: Mutex<()>,
    /// Somebody was told that it cannot be written to.
    told: AtomicBool,
}

/// What a reader of blocks keeps from one to the next.
#[derive(Debug, Default)]
pub(crate) struct BlockBuffer {
    /// The block that `bytes` is.
    of: Option<u64>,
    bytes: Vec<u8>,
    /// Blocks that were there, and that were not.
    pub hits: u64,
    pub misses: u64,
}

impl BlockCache {
    /// Open it, or make it.
    ///
    /// # Errors
    /// It is too small for a block, or the folder is of no use.
    pub fn open(options: &CacheOptions) -> Result<Self, AnnDataError> {
        let layout = CacheLayout::of(options.bytes).ok_or_else(|| {
            AnnDataError::Invalid(format!("a cache of {} bytes has no room for blocks: 3 MiB do", options.bytes))
        })?;
        let files = open_cache_files(&options.folder, &layout)?;
        Ok(Self { files, layout, writing: Mutex::new(()), told: AtomicBool::new(false) })
    }

    /// A block, if it is there. `scratch` is for blocks of this object alone.
    pub fn get<'s>(&self, name: &[u8; 16], block: u64, scratch: &'s mut BlockBuffer) -> Option<&'s [u8]> {
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
            // Where another block has taken the slot meanwhile, that one is used: as good.
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
            *entry = CacheEntry::read(bytes);
        }
        Ok(entries)
    }

    /// Keep the blocks from number `first` on that `bytes` are; returns how many could not be kept.
    pub fn put(&self, name: &[u8; 16], first: u64, bytes: &[u8]) -> u64 {
        let count = bytes.len().div_ceil(BLOCK as usize) as u64;
        let _writing = lock(&self.writing);
        let written = FileLock::soon(&self.files.writer).and_then(|_locked| {
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
        let same = |entry: &Option<CacheEntry>| entry.is_some_and(|entry| entry.name == *name && entry.block == block);
        let way = match entries.iter().position(same) {
            // It may be torn, which only who reads it sees; what is written is the same.
            Some(way) => way,
            None => {
                let used = |way: &usize| entries[*way].map_or(0, |entry| entry.used);
                (0..WAYS as usize).min_by_key(used).unwrap_or(0)
            }
        };
        let at = self.layout.entries(set) + way as u64 * ENTRY_BYTES as u64;
        // Empty while it is written: whoever ends in between leaves an empty slot.
        self.files.blocks.write_all_at(&[0; ENTRY_BYTES], at)?;
        self.files.blocks.write_all_at(bytes, self.layout.slot(set, way as u64))?;
        let entry = CacheEntry { name: *name, block, len: bytes.len() as u32, sum, used: now_ms() };
        self.files.blocks.write_all_at(&entry.written(), at)
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Bytes of an entry in the file.
const ENTRY_BYTES: usize = 64;

/// Where in an entry is said when it was used last: it is written by itself.
const USED_OFFSET: u64 = 40;

/// What a slot has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CacheEntry {
    /// As [`block_name`] has it.
    pub name: [u8; 16],
    /// Number of the block in its object.
    pub block: u64,
    /// Bytes; those of the last block of an object are fewer.
    pub len: u32,
    /// CRC-32 of the bytes.
    pub sum: u32,
    /// When it was used last, ms since 1970. Not under the checksum of the entry: it orders slots and no more.
    pub used: u64,
}

impl CacheEntry {
    /// As bytes: name, block, length, checksum of the block, checksum of these, 4 unused, time; the rest is 0.
    pub fn written(&self) -> [u8; ENTRY_BYTES] {
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

    /// `None` for an empty slot, and one that is being written.
    pub fn read(bytes: &[u8; ENTRY_BYTES]) -> Option<Self> {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        // Of zeros it is none.
        if crc32fast::hash(&bytes[..32]) != u32_at(32) || u32_at(24) == 0 {
            return None;
        }
        let mut name = [0; 16];
        name.copy_from_slice(&bytes[..16]);
        Some(Self { name, block: u64_at(16), len: u32_at(24), sum: u32_at(28), used: u64_at(USED_OFFSET as usize) })
    }
}

/// Slots that a block may be in: the one that was not used for longest is given up.
const WAYS: u64 = 8;

/// Bytes before the first entry.
const HEADER_BYTES: u64 = 4096;

/// Where things are in the file of a cache: a header, the entries of all slots, set by set, then the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CacheLayout {
    sets: u64,
    /// First byte of the first slot.
    data: u64,
}

impl CacheLayout {
    /// As many sets as fit into `bytes`; `None` where that is none.
    pub fn of(bytes: u64) -> Option<Self> {
        let sets = bytes.checked_sub(2 * HEADER_BYTES)? / (WAYS * (BLOCK + ENTRY_BYTES as u64));
        let data = (HEADER_BYTES + sets * WAYS * ENTRY_BYTES as u64).next_multiple_of(HEADER_BYTES);
        (sets > 0).then_some(Self { sets, data })
    }

    /// Bytes of the whole file.
    pub fn bytes(&self) -> u64 {
        self.data + self.sets * WAYS * BLOCK
    }

    /// Set of a block. Blocks of one object are in one set after another, so that an object that fits has room for all of it.
    pub fn set(&self, name: &[u8; 16], block: u64) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&name[..8]);
        (u64::from_le_bytes(first) % self.sets + block % self.sets) % self.sets
    }

    /// First byte of the entries of a set.
    pub fn entries(&self, set: u64) -> u64 {
        HEADER_BYTES + set * WAYS * ENTRY_BYTES as u64
    }

    /// First byte of a slot.
    pub fn slot(&self, set: u64, way: u64) -> u64 {
        self.data + (set * WAYS + way) * BLOCK
    }
}

/// What the file of a cache begins with; another one is written anew.
const MAGIC: &[u8; 16] = b"expctl cache 1\n\0";

/// What files of caches are called.
const PREFIX: &str = "blocks-";
const SUFFIX: &str = ".cache";

/// The open files of a cache.
#[derive(Debug)]
struct CacheFiles {
    pub path: PathBuf,
    pub blocks: File,
    /// Locked by whoever writes.
    pub writer: File,
}

/// Open the cache in `folder`, or make it; files of caches of another size that nobody uses go.
///
/// # Errors
/// The folder cannot be made or written to, or is another user's; another process makes it and does not come to an end.
fn open_cache_files(folder: &Path, layout: &CacheLayout) -> Result<CacheFiles, AnnDataError> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(AnnDataError::io("create", folder))?;
    let about = folder.metadata().map_err(AnnDataError::io("inspect", folder))?;
    if about.uid() != nix::unistd::geteuid().as_raw() {
        let reason =
            "belongs to another user, who could change what is kept in it; set array.cache_dir to an own folder";
        return Err(AnnDataError::damaged(folder, reason));
    }
    let writer = open_cache_file(&folder.join("lock"))?;
    let locked = FileLock::soon(&writer).map_err(AnnDataError::io("lock", &folder.join("lock")))?;
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

/// Write the header if it is not there; the file has its length, and takes as much of the disk as is written to it.
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

/// What cannot be removed stays: it is only room.
fn remove_other_caches(folder: &Path, own: &Path) {
    let Ok(entries) = folder.read_dir() else { return };
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| path != own) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with(PREFIX) || !name.ends_with(SUFFIX) {
            continue;
        }
        let Ok(file) = File::open(&path) else { continue };
        if FileLock::now(&file).is_ok() {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// A file that is locked against other processes, until this is dropped.
#[derive(Debug)]
struct FileLock<'f>(&'f File);

/// Tries and pause between them: whoever has it writes a MiB.
const LOCK_TRIES: u32 = 40;
const LOCK_PAUSE: Duration = Duration::from_millis(2);

impl<'f> FileLock<'f> {
    /// Lock it if nobody else has it locked, or lets go of it soon.
    ///
    /// # Errors
    /// Somebody keeps it, or the file system has no locks.
    fn soon(file: &'f File) -> io::Result<Self> {
        for _ in 1..TRIES {
            match flock_nonblocking(file, libc::LOCK_EX) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(LOCK_PAUSE),
                result => return result.map(|()| Self(file)),
            }
        }
        flock_nonblocking(file, libc::LOCK_EX).map(|()| Self(file))
    }

    /// Lock it if nobody else has it locked.
    ///
    /// # Errors
    /// As [`Self::soon`].
    pub fn now(file: &'f File) -> io::Result<Self> {
        flock_nonblocking(file, libc::LOCK_EX).map(|()| Self(file))
    }
}

impl Drop for FileLock<'_> {
    fn drop(&mut self) {
        // SAFETY: the file is open. If it does not work, closing the file does.
        let _ = unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
    }
}

/// Say that the file is in use, until it is closed.
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
        let bytes = entry.written();
        assert_eq!(CacheEntry::read(&bytes), Some(entry));
        assert_eq!(CacheEntry::read(&[0; ENTRY_BYTES]), None);
        for at in 0..36 {
            let mut torn = bytes;
            torn[at] ^= 1;
            assert_eq!(CacheEntry::read(&torn), None, "byte {at}");
        }
    }

    #[test]
    fn it_is_no_larger_than_it_may_be_and_an_object_that_fits_has_room() {
        for mib in [3u64, 4, 64, 1000] {
            let layout = CacheLayout::of(mib << 20).unwrap();
            assert!(layout.bytes() <= mib << 20 && layout.bytes() + WAYS * (BLOCK + 64) + 2 * HEADER_BYTES > mib << 20);
            let mut filled = vec![0u64; layout.sets as usize];
            for block in 0..layout.sets * WAYS {
                filled[layout.set(&[7; 16], block) as usize] += 1;
            }
            assert!(filled.iter().all(|n| *n == WAYS));
        }
        assert_eq!(CacheLayout::of(1 << 20), None);
    }
}
