//! `drop_from_page_cache` takes files out of the page cache of this machine, so that a measurement reads them from the disk; `mincore` counts the
//! bytes that were and that stay in memory. Nothing is written to the files.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::unistd::{AccessFlags, access, geteuid};
use serde::{Deserialize, Serialize};

/// Bytes of a file that one call of mincore covers: it writes a byte for each page.
const WINDOW: u64 = 1 << 30;

/// Why files could not be dropped from the page cache.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {source}", path.display())]
pub struct PageCacheError {
    /// The file or folder.
    pub path: PathBuf,
    /// The system's reason.
    pub source: std::io::Error,
}

impl PageCacheError {
    fn at(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { path, source }
    }
}

/// Files whose pages the kernel was asked to drop, so that they are read from the disk again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedPages {
    /// Number of files.
    pub files: u64,
    /// Their length, bytes.
    pub bytes: u64,
    /// Bytes of them that were in the page cache before. `None`: the kernel does not say, as for files of other users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_before: Option<u64>,
    /// Bytes of them that were in the page cache afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_after: Option<u64>,
}

impl DroppedPages {
    /// The sum of two.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let sum = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a + b);
        Self {
            files: self.files + other.files,
            bytes: self.bytes + other.bytes,
            cached_before: sum(self.cached_before, other.cached_before),
            cached_after: sum(self.cached_after, other.cached_after),
        }
    }

    /// Share of the bytes that was in the page cache afterwards, in [0, 1]. `None`: not known, or there are no bytes.
    pub fn cached_share(&self) -> Option<f64> {
        Some(self.cached_after? as f64 / self.bytes as f64).filter(|share| share.is_finite())
    }
}

/// Ask the kernel to drop `paths`, and the files below those that are folders, from the page cache of this machine
/// (`posix_fadvise`, `POSIX_FADV_DONTNEED`). Needs no rights beyond reading them.
///
/// Pages that another process has mapped or is reading stay, and so do those of a file system in memory (tmpfs). Caches below the page cache
/// (of a disk, a RAID controller, a file server, the ARC of ZFS) are out of reach.
///
/// # Errors
/// A file cannot be opened, or a folder cannot be listed.
pub fn drop_from_page_cache<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<DroppedPages, PageCacheError> {
    let mut files = Vec::new();
    paths.into_iter().try_for_each(|path| add_files(path, &mut files))?;
    let none = DroppedPages { cached_before: Some(0), cached_after: Some(0), ..DroppedPages::default() };
    files.iter().try_fold(none, |all, path| Ok(all.plus(drop_file(path)?)))
}

/// Add a file, or all files below a folder.
fn add_files(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), PageCacheError> {
    if !path.metadata().map_err(PageCacheError::at(path))?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in path.read_dir().map_err(PageCacheError::at(path))? {
        add_files(&entry.map_err(PageCacheError::at(path))?.path(), files)?;
    }
    Ok(())
}

fn drop_file(path: &Path) -> Result<DroppedPages, PageCacheError> {
    let file = File::open(path).map_err(PageCacheError::at(path))?;
    let bytes = file.metadata().map_err(PageCacheError::at(path))?.len();
    let cached_before = cached_bytes(&file, path, bytes);
    // Pages that are not on the disk yet are not dropped. Where a file system refuses, there is nothing to write.
    let _ = file.sync_data();
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
        .map_err(|e| PageCacheError::at(path)(e.into()))?;
    Ok(DroppedPages { files: 1, bytes, cached_before, cached_after: cached_bytes(&file, path, bytes) })
}

/// Bytes of a file that are in the page cache (`mincore`). `None`: the file is neither this user's nor writable, and the kernel calls all pages
/// of such files resident.
fn cached_bytes(file: &File, path: &Path, bytes: u64) -> Option<u64> {
    let own = file.metadata().ok()?.uid() == geteuid().as_raw();
    if !own && access(path, AccessFlags::W_OK).is_err() {
        return None;
    }
    // SAFETY: asks for a constant of the system.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok().filter(|page| *page > 0)?;
    let mut pages = 0;
    for start in (0..bytes).step_by(WINDOW as usize) {
        let len = WINDOW.min(bytes - start);
        let mut resident = vec![0u8; len.div_ceil(page) as usize];
        let length = usize::try_from(len).ok()?;
        // SAFETY: a new mapping of an open file that nobody reads through: a file that becomes shorter meanwhile does no harm.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                libc::off_t::try_from(start).ok()?,
            )
        };
        if map == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the mapping has this length, and the vector a byte for each of its pages.
        let status = unsafe { libc::mincore(map, length, resident.as_mut_ptr()) };
        // SAFETY: the mapping is this function's own.
        unsafe { libc::munmap(map, length) };
        if status != 0 {
            return None;
        }
        pages += resident.iter().filter(|page| **page & 1 == 1).count() as u64;
    }
    Some((pages * page).min(bytes))
}

#[cfg(test)]
mod tests {
    use nix::sys::statfs::{TMPFS_MAGIC, statfs};

    use super::*;

    #[test]
    fn files_of_a_folder_leave_the_page_cache() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("below")).unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("below/other"));
        // The last page is not full.
        std::fs::write(&one, vec![1; 300_001]).unwrap();
        std::fs::write(&other, vec![2; 700_000]).unwrap();
        std::fs::write(folder.path().join("empty"), "").unwrap();
        std::fs::read(&one).unwrap();
        let dropped = drop_from_page_cache([folder.path()]).unwrap();
        assert_eq!((dropped.files, dropped.bytes, dropped.cached_before), (3, 1_000_001, Some(1_000_001)));
        // Nothing is dropped of what is in memory alone.
        let in_memory = statfs(folder.path()).unwrap().filesystem_type() == TMPFS_MAGIC;
        let share = dropped.cached_share().unwrap();
        assert!(if in_memory { share == 1.0 } else { share < 0.5 }, "{dropped:?}");
        assert_eq!(std::fs::read(&one).unwrap(), vec![1; 300_001], "what was not on the disk was lost");
    }

    #[test]
    fn what_is_not_there_is_an_error_and_nothing_is_no_share() {
        let error = drop_from_page_cache([Path::new("/nowhere/at/all")]).unwrap_err().to_string();
        assert!(error.contains("/nowhere/at/all"), "{error}");
        let nothing = drop_from_page_cache([]).unwrap();
        assert_eq!((nothing.files, nothing.cached_share()), (0, None));
        let unknown = DroppedPages { files: 1, bytes: 10, cached_before: None, cached_after: None };
        assert_eq!(nothing.plus(unknown), unknown);
    }
}
