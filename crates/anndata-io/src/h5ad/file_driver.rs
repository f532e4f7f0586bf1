//! A read-only file driver for libhdf5 2. It reads local files and remote objects, and rejects a damaged global heap on which libhdf5 would
//! loop forever.
//! Invariant: libhdf5 parses a global heap only after the walk through its objects was seen to end.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use std::{io, thread};

use hdf5_metno::plist::FileAccess;
use hdf5_metno::sync::sync;
use hdf5_metno_sys::h5::{H5get_libversion, haddr_t, herr_t, hsize_t};
use hdf5_metno_sys::h5f::{H5F_ACC_RDONLY, H5F_close_degree_t, H5Fopen};
use hdf5_metno_sys::h5i::hid_t;
use hdf5_metno_sys::h5p::H5Pset_driver;
use nix::libc;

use crate::AnnDataError;
use crate::h5ad::array_layout::Hdf5Error;
use crate::h5ad::global_heap::{HEAP_HEADER, HEAP_SIGNATURE, collection_bytes, walk_objects};
use crate::source::byte_source::{ByteSource, url_of};
use crate::source::remote::object::RemoteObject;

/// Signature of HDF5, at byte 0, 512, 1024, 2048, …; bytes before it belong to the user.
const HDF5_SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";

/// Bytes of a superblock that are inspected; no version is shorter.
const SUPERBLOCK_BYTES: usize = 16;

/// Bytes of a superblock up to its base address, in the version in which that comes last.
const SUPERBLOCK_ADDRESS_BYTES: usize = 36;

/// Size of an offset and of a length in bytes, in every file that h5py writes.
const SIZE_BYTES: u8 = 8;

/// Opens a file and finds the signature of HDF5.
///
/// # Errors
/// The file cannot be opened, or is not HDF5.
pub(crate) fn open_hdf5(path: &Path) -> Result<ByteSource, AnnDataError> {
    let source = ByteSource::open(path)?;
    match size_bytes(&source)? {
        None => Err(source.damaged(Hdf5Error::NoSignature)),
        Some(SIZE_BYTES) => Ok(source),
        Some(bytes) => Err(source.damaged(Hdf5Error::SizeBytes { bytes })),
    }
}

/// Size of a length in this file, from its superblock; `None` if there is no superblock.
fn size_bytes(source: &ByteSource) -> Result<Option<u8>, AnnDataError> {
    let mut at = 0;
    while at + SUPERBLOCK_BYTES as u64 <= source.bytes() {
        let mut found = [0; SUPERBLOCK_BYTES];
        source.read_near(at, &mut found)?;
        if found.starts_with(&HDF5_SIGNATURE) {
            // The version follows the signature.
            return Ok(Some(if found[8] < 2 { found[14] } else { found[10] }));
        }
        at = (at * 2).max(512);
    }
    Ok(None)
}

/// Whether addresses in this file are offsets in it, of 8 bytes, so that they can be followed without libhdf5.
pub(crate) fn has_plain_addresses(source: &ByteSource) -> bool {
    let mut found = [0; SUPERBLOCK_ADDRESS_BYTES];
    if source.read_near(0, &mut found).is_err() || !found.starts_with(&HDF5_SIGNATURE) {
        return false;
    }
    // The version follows the signature. It says where the size of an offset and the base address are.
    let (size, base) = match found[8] {
        0 => (found[13], &found[24..32]),
        1 => (found[13], &found[28..36]),
        2 | 3 => (found[9], &found[12..20]),
        _ => return false,
    };
    size == SIZE_BYTES && base.iter().all(|byte| *byte == 0)
}

/// Opens a file with libhdf5 through a driver that checks global heaps with [`heap_is_sound`] before libhdf5 parses them: on
/// some damaged heaps libhdf5 does not terminate. The file must have the signature of HDF5.
pub(crate) fn open_with_library(path: &Path) -> Result<hdf5_metno::File, AnnDataError> {
    let failed = |reason: String| AnnDataError::damaged(path, Hdf5Error::NotOpened { reason });
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| failed(e.to_string()))?;
    let opened = sync(|| {
        let driver = (*DRIVER)?;
        let list = FileAccess::try_new().map_err(|e| e.to_string())?;
        // SAFETY: list and driver are open; the driver has no settings.
        if unsafe { H5Pset_driver(list.id(), driver, std::ptr::null()) } < 0 {
            return Err("it does not take a way to read files".to_owned());
        }
        // SAFETY: the name ends with NUL; the list is open.
        match unsafe { H5Fopen(name.as_ptr(), H5F_ACC_RDONLY, list.id()) } {
            id if id < 0 => Err(hdf5_metno::Error::query().map_or_else(|_| "no reason".to_owned(), |e| e.to_string())),
            // SAFETY: the file was just opened and is closed only here.
            id => unsafe { hdf5_metno::from_id(id) }.map_err(|e: hdf5_metno::Error| e.to_string()),
        }
    });
    opened.map_err(|reason| {
        // The failure of a remote object says more than the error of libhdf5.
        let object = url_of(path).and_then(RemoteObject::find_open);
        object.and_then(|object| object.failure()).unwrap_or_else(|| failed(reason))
    })
}

/// Id of the driver in libhdf5, registered on first use.
static DRIVER: LazyLock<Result<hid_t, &'static str>> = LazyLock::new(|| {
    let [mut major, mut minor, mut release] = [0; 3];
    // SAFETY: the three outputs are written to. The class is static and has the layout of version 2 of libhdf5.
    sync(|| unsafe {
        H5get_libversion(&raw mut major, &raw mut minor, &raw mut release);
        if major != 2 {
            return Err("another version than 2 of the HDF5 library");
        }
        match H5FDregister((&raw const DRIVER_CLASS).cast()) {
            id if id < 0 => Err("it does not take a way to read files"),
            id => Ok(id),
        }
    })
});

unsafe extern "C" {
    fn H5FDregister(class: *const c_void) -> hid_t;
}

/// Numbers from 256 on are for unregistered drivers.
const DRIVER_NUMBER: c_int = 391;

/// A callback that this driver does not have.
type NoFunction = Option<unsafe extern "C" fn()>;

/// `H5FD_class_t` of HDF5 2 (H5FDdevelop.h).
#[repr(C)]
struct DriverClass {
    version: c_uint,
    value: c_int,
    name: *const c_char,
    maxaddr: haddr_t,
    fc_degree: H5F_close_degree_t,
    terminate: NoFunction,
    superblock: [NoFunction; 3],
    fapl_size: usize,
    fapl: [NoFunction; 3],
    dxpl_size: usize,
    dxpl: [NoFunction; 2],
    open: unsafe extern "C" fn(*const c_char, c_uint, hid_t, haddr_t) -> *mut OpenedFile,
    close: unsafe extern "C" fn(*mut OpenedFile) -> herr_t,
    cmp: unsafe extern "C" fn(*const OpenedFile, *const OpenedFile) -> c_int,
    query: unsafe extern "C" fn(*const OpenedFile, *mut c_ulong) -> herr_t,
    get_type_map: NoFunction,
    alloc: NoFunction,
    free: NoFunction,
    get_eoa: unsafe extern "C" fn(*const OpenedFile, c_int) -> haddr_t,
    set_eoa: unsafe extern "C" fn(*mut OpenedFile, c_int, haddr_t) -> herr_t,
    get_eof: unsafe extern "C" fn(*const OpenedFile, c_int) -> haddr_t,
    get_handle: NoFunction,
    read: unsafe extern "C" fn(*mut OpenedFile, c_int, hid_t, haddr_t, usize, *mut c_void) -> herr_t,
    write: unsafe extern "C" fn(*mut OpenedFile, c_int, hid_t, haddr_t, usize, *const c_void) -> herr_t,
    vectors: [NoFunction; 4],
    flush: NoFunction,
    truncate: NoFunction,
    lock: unsafe extern "C" fn(*mut OpenedFile, bool) -> herr_t,
    unlock: unsafe extern "C" fn(*mut OpenedFile) -> herr_t,
    del: NoFunction,
    ctl: NoFunction,
    fl_map: [c_int; 7],
}

// SAFETY: the class is never written to; its name is static.
unsafe impl Sync for DriverClass {}

static DRIVER_CLASS: DriverClass = DriverClass {
    version: 1,
    value: DRIVER_NUMBER,
    name: c"anndata-io".as_ptr(),
    maxaddr: i64::MAX as haddr_t,
    fc_degree: H5F_close_degree_t::H5F_CLOSE_WEAK,
    terminate: None,
    superblock: [None; 3],
    fapl_size: 0,
    fapl: [None; 3],
    dxpl_size: 0,
    dxpl: [None; 2],
    open: open_file,
    close,
    cmp,
    query,
    get_type_map: None,
    alloc: None,
    free: None,
    get_eoa,
    set_eoa,
    get_eof,
    get_handle: None,
    read,
    write,
    vectors: [None; 4],
    flush: None,
    truncate: None,
    lock,
    unlock,
    del: None,
    ctl: None,
    fl_map: [0; 7],
};

/// An open file in libhdf5; the part of libhdf5, `H5FD_t` of HDF5 2, comes first.
#[repr(C)]
struct OpenedFile {
    library: LibraryPart,
    file: FileContent,
    /// End of the addresses that libhdf5 has allocated.
    end: haddr_t,
    bytes: u64,
    /// Device and inode, or 0 and the number of a remote object.
    identity: (u64, u64),
}

/// Bytes of a file.
enum FileContent {
    Local(File),
    Remote(Arc<RemoteObject>),
}

impl ReadAt for FileContent {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> bool {
        match self {
            Self::Local(file) => file.read_exact_at(into, offset).is_ok(),
            Self::Remote(object) => object.read_near(offset, into).is_ok(),
        }
    }
}

#[repr(C)]
struct LibraryPart {
    driver_id: hid_t,
    cls: *const DriverClass,
    fileno: c_ulong,
    access_flags: c_uint,
    feature_flags: c_ulong,
    maxaddr: haddr_t,
    base_addr: haddr_t,
    threshold: hsize_t,
    alignment: hsize_t,
    paged_aggr: bool,
}

/// # Safety
/// `name` ends with a zero.
unsafe extern "C" fn open_file(name: *const c_char, flags: c_uint, _: hid_t, _: haddr_t) -> *mut OpenedFile {
    // Bits 0 to 4: write, truncate, exclusive, create.
    if flags & 0b11111 != 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: promised by the caller.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
    let Some((file, bytes, identity)) = open_content(path) else { return std::ptr::null_mut() };
    // SAFETY: zeros are valid; libhdf5 fills the struct.
    let library = unsafe { std::mem::zeroed() };
    Box::into_raw(Box::new(OpenedFile { library, file, end: 0, bytes, identity }))
}

/// Opens a path or URL; returns its content, length and identity.
fn open_content(path: &Path) -> Option<(FileContent, u64, (u64, u64))> {
    if let Some(url) = url_of(path) {
        // The caller of libhdf5 has the object open.
        let object = RemoteObject::find_open(url).or_else(|| RemoteObject::open(url).ok())?;
        let (bytes, identity) = (object.bytes(), (0, object.number()));
        return Some((FileContent::Remote(object), bytes, identity));
    }
    let file = File::open(path).ok()?;
    let about = file.metadata().ok()?;
    Some((FileContent::Local(file), about.len(), (about.dev(), about.ino())))
}

/// # Safety
/// `file` is from [`open_file`] and is not used again.
unsafe extern "C" fn close(file: *mut OpenedFile) -> herr_t {
    // SAFETY: promised by the caller.
    drop(unsafe { Box::from_raw(file) });
    0
}

/// # Safety
/// Both are from [`open_file`]; this holds for all callbacks below.
unsafe extern "C" fn cmp(one: *const OpenedFile, other: *const OpenedFile) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { (*one).identity.cmp(&(*other).identity) as c_int }
}

/// # Safety
/// `flags` may be written to.
unsafe extern "C" fn query(_: *const OpenedFile, flags: *mut c_ulong) -> herr_t {
    if !flags.is_null() {
        // SAFETY: promised by the caller. Without features, each block is read on its own.
        unsafe { *flags = 0 };
    }
    0
}

unsafe extern "C" fn get_eoa(file: *const OpenedFile, _: c_int) -> haddr_t {
    // SAFETY: promised by the caller.
    unsafe { (*file).end }
}

unsafe extern "C" fn set_eoa(file: *mut OpenedFile, _: c_int, end: haddr_t) -> herr_t {
    // SAFETY: promised by the caller.
    unsafe { (*file).end = end };
    0
}

unsafe extern "C" fn get_eof(file: *const OpenedFile, _: c_int) -> haddr_t {
    // SAFETY: promised by the caller.
    unsafe { (*file).bytes }
}

/// # Safety
/// `buffer` has `size` bytes that may be written to.
unsafe extern "C" fn read(
    file: *mut OpenedFile,
    _: c_int,
    _: hid_t,
    address: haddr_t,
    size: usize,
    buffer: *mut c_void,
) -> herr_t {
    // SAFETY: promised by the caller; the bytes are initialised before they are read.
    let (file, buffer) = unsafe {
        buffer.cast::<u8>().write_bytes(0, size);
        (&*file, std::slice::from_raw_parts_mut(buffer.cast::<u8>(), size))
    };
    // libhdf5 reads beyond the end of a file and expects zeros there.
    let there = file.bytes.saturating_sub(address).min(size as u64) as usize;
    if !file.file.read_at(address, &mut buffer[..there]) {
        return -1;
    }
    // The type of the read does not say whether this is a heap: libhdf5 reads a heap of strings as raw data.
    if buffer.starts_with(HEAP_SIGNATURE) && !heap_is_sound(&file.file, address, file.bytes) {
        return -1;
    }
    0
}

unsafe extern "C" fn write(_: *mut OpenedFile, _: c_int, _: hid_t, _: haddr_t, _: usize, _: *const c_void) -> herr_t {
    -1
}

/// Attempts to lock a file, [`LOCK_PAUSE`] apart.
const LOCK_TRIES: usize = 25;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Locks the file for reading; fails if another program writes it. A writer in this process has closed its file by then, but a
/// child process shares its lock between `fork` and `exec`, so the lock is tried for half a second.
unsafe extern "C" fn lock(file: *mut OpenedFile, _: bool) -> herr_t {
    // SAFETY: promised by the caller.
    let FileContent::Local(file) = (unsafe { &(*file).file }) else { return 0 };
    for attempt in 1..=LOCK_TRIES {
        // SAFETY: the file is open.
        let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB) } == 0;
        // File systems without locks are read without a lock.
        if locked || io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock {
            return 0;
        }
        if attempt < LOCK_TRIES {
            thread::sleep(LOCK_PAUSE);
        }
    }
    -1
}

unsafe extern "C" fn unlock(file: *mut OpenedFile) -> herr_t {
    // SAFETY: promised by the caller.
    if let FileContent::Local(file) = unsafe { &(*file).file } {
        // SAFETY: the file is open. If this fails, closing the file unlocks it.
        let _ = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
    }
    0
}

/// Bytes that can be read at positions.
trait ReadAt {
    /// Fills `into` from `offset` on; `false` if that fails.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> bool;
}

/// Walks through the global heap at `address` as libhdf5 does, and rejects one on which libhdf5 loops forever.
fn heap_is_sound(file: &impl ReadAt, address: u64, end: u64) -> bool {
    let mut header = [0; HEAP_HEADER];
    if !file.read_at(address, &mut header) {
        return false;
    }
    let Some(bytes) = collection_bytes(&header, address, end) else { return false };
    let mut all = vec![0; bytes];
    file.read_at(address, &mut all) && walk_objects(&all, |_, _| ()).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h5ad::global_heap::HEAP_OBJECT_HEADER;

    #[test]
    fn addresses_are_offsets_where_the_superblock_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.h5ad");
        let is_plain = |version: u8, fields: &[(usize, u8)]| {
            let mut bytes = vec![0; SUPERBLOCK_ADDRESS_BYTES];
            bytes[..8].copy_from_slice(&HDF5_SIGNATURE);
            bytes[8] = version;
            fields.iter().for_each(|(at, byte)| bytes[*at] = *byte);
            std::fs::write(&path, bytes).unwrap();
            has_plain_addresses(&ByteSource::open(&path).unwrap())
        };
        let (old, new) = ((13, 8), (9, 8));
        assert!(is_plain(0, &[old]) && is_plain(1, &[old]) && is_plain(2, &[new]) && is_plain(3, &[new]));
        assert!(!is_plain(0, &[(13, 4)]) && !is_plain(3, &[(9, 4)]), "other sizes");
        assert!(!is_plain(0, &[old, (25, 2)]) && !is_plain(1, &[old, (35, 1)]), "a base address");
        assert!(!is_plain(2, &[new, (12, 1)]) && !is_plain(3, &[new, (19, 1)]), "a base address");
        assert!(!is_plain(4, &[old, new]), "a version that is not known");
        assert!(!is_plain(0, &[old, (0, 0)]), "no signature at the start");
    }

    /// libhdf5 takes a heap also where its reserved bytes are not zero, and would walk this one forever.
    #[test]
    fn a_heap_without_end_is_refused_whatever_its_reserved_bytes_are() {
        use hdf5_metno::types::VarLenUnicode;

        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/h5ad/expctl.h5ad");
        let mut bytes = std::fs::read(corpus).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.h5ad");
        let encoding = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let file = open_with_library(&path).unwrap();
            file.attr("encoding-type").and_then(|attribute| attribute.read_scalar::<VarLenUnicode>())
        };
        assert_eq!(encoding(&bytes).unwrap().as_str(), "anndata");
        let heaps: Vec<usize> =
            (0..bytes.len() - 8).filter(|start| bytes[*start..].starts_with(HEAP_SIGNATURE)).collect();
        assert!(!heaps.is_empty());
        for start in heaps {
            bytes[start + 7] = 4;
            // The first object becomes free space of no bytes.
            bytes[start + HEAP_HEADER..][..HEAP_OBJECT_HEADER].fill(0);
        }
        encoding(&bytes).unwrap_err();
    }
}
