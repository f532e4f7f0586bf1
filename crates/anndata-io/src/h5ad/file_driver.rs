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
use crate::source::byte_source::{ByteSource, url_of};
use crate::source::remote::object::RemoteObject;

/// What every HDF5 file has at byte 0, 512, 1024, 2048, …: what comes before is the user's.
const HDF5_SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";

/// The part of a superblock that is looked at: no version has fewer bytes.
const SUPERBLOCK_BYTES: usize = 16;

/// Bytes of a size, and of an address, in every file that h5py writes.
const SIZE_BYTES: u8 = 8;

/// Open a file that has the signature of HDF5.
///
/// # Errors
/// It cannot be opened, or is another one.
pub(crate) fn open_hdf5(path: &Path) -> Result<ByteSource, AnnDataError> {
    let source = ByteSource::open(path)?;
    match size_bytes(&source)? {
        None => Err(source.damaged("is not an HDF5 file: it has no HDF5 signature")),
        Some(SIZE_BYTES) => Ok(source),
        Some(other) => Err(source.damaged(format!("has sizes of {other} bytes; {SIZE_BYTES} are supported"))),
    }
}

/// Bytes of a size in this file, which its superblock says; `None` if there is none.
fn size_bytes(source: &ByteSource) -> Result<Option<u8>, AnnDataError> {
    let mut at = 0;
    while at + SUPERBLOCK_BYTES as u64 <= source.bytes() {
        let mut found = [0; SUPERBLOCK_BYTES];
        source.read_near(at, &mut found)?;
        if found.starts_with(&HDF5_SIGNATURE) {
            // Behind the signature is the version.
            return Ok(Some(if found[8] < 2 { found[14] } else { found[10] }));
        }
        at = (at * 2).max(512);
    }
    Ok(None)
}

/// Open a file to read with the HDF5 library, which gets to see only what [`heap_is_sound`] has seen before: it does not come to
/// an end on some damaged files otherwise. The file must have the signature of HDF5.
pub(crate) fn open_with_library(path: &Path) -> Result<hdf5_metno::File, AnnDataError> {
    let failed = |reason: String| AnnDataError::damaged(path, format!("the HDF5 library cannot open it: {reason}"));
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| failed(e.to_string()))?;
    let opened = sync(|| {
        let driver = (*DRIVER)?;
        let list = FileAccess::try_new().map_err(|e| e.to_string())?;
        // SAFETY: the list and the driver are open; the driver takes no settings.
        if unsafe { H5Pset_driver(list.id(), driver, std::ptr::null()) } < 0 {
            return Err("it does not take a way to read files".to_owned());
        }
        // SAFETY: the name ends with a zero, the list is open.
        match unsafe { H5Fopen(name.as_ptr(), H5F_ACC_RDONLY, list.id()) } {
            id if id < 0 => Err(hdf5_metno::Error::query().map_or_else(|_| "no reason".to_owned(), |e| e.to_string())),
            // SAFETY: it was just opened, and nobody else closes it.
            id => unsafe { hdf5_metno::from_id(id) }.map_err(|e: hdf5_metno::Error| e.to_string()),
        }
    });
    opened.map_err(|reason| {
        // Of an object that did not come this says more.
        let object = url_of(path).and_then(RemoteObject::find_open);
        object.and_then(|object| object.failure()).unwrap_or_else(|| failed(reason))
    })
}

/// The driver's number in the library, once it is registered.
static DRIVER: LazyLock<Result<hid_t, &'static str>> = LazyLock::new(|| {
    let [mut major, mut minor, mut release] = [0; 3];
    // SAFETY: three places that are written to. The class has the form that version 2 of the library wants, and is static.
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

/// Numbers from 256 on are free to use.
const DRIVER_NUMBER: c_int = 391;

/// A function that this driver does not have.
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

// SAFETY: it is never written to; the name it points to is static.
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

/// What the library holds of an open file: its own part, `H5FD_t` of HDF5 2, comes first.
#[repr(C)]
struct OpenedFile {
    library: LibraryPart,
    file: FileContent,
    /// End of the addresses that the library uses.
    end: haddr_t,
    bytes: u64,
    /// Device and inode, or 0 and the number of a remote object.
    identity: (u64, u64),
}

/// Where its bytes are.
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
    // Bit 0 to 4: write, truncate, exclusive, create.
    if flags & 0b11111 != 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: as the caller says.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
    let Some((file, bytes, identity)) = open_content(path) else { return std::ptr::null_mut() };
    // SAFETY: all of it may be zero; the library fills it.
    let library = unsafe { std::mem::zeroed() };
    Box::into_raw(Box::new(OpenedFile { library, file, end: 0, bytes, identity }))
}

/// The content at a path or URL, its length, and what tells it from others.
fn open_content(path: &Path) -> Option<(FileContent, u64, (u64, u64))> {
    if let Some(url) = url_of(path) {
        // Whoever asks the library has it open.
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
    // SAFETY: as the caller says.
    drop(unsafe { Box::from_raw(file) });
    0
}

/// # Safety
/// Both are from [`open_file`], as in all that follows.
unsafe extern "C" fn cmp(one: *const OpenedFile, other: *const OpenedFile) -> c_int {
    // SAFETY: as the caller says.
    unsafe { (*one).identity.cmp(&(*other).identity) as c_int }
}

/// # Safety
/// `flags` may be written to.
unsafe extern "C" fn query(_: *const OpenedFile, flags: *mut c_ulong) -> herr_t {
    if !flags.is_null() {
        // SAFETY: as the caller says. No features: each block is read by itself.
        unsafe { *flags = 0 };
    }
    0
}

unsafe extern "C" fn get_eoa(file: *const OpenedFile, _: c_int) -> haddr_t {
    // SAFETY: as the caller says.
    unsafe { (*file).end }
}

unsafe extern "C" fn set_eoa(file: *mut OpenedFile, _: c_int, end: haddr_t) -> herr_t {
    // SAFETY: as the caller says.
    unsafe { (*file).end = end };
    0
}

unsafe extern "C" fn get_eof(file: *const OpenedFile, _: c_int) -> haddr_t {
    // SAFETY: as the caller says.
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
    // SAFETY: as the caller says; the bytes are given a value before they are looked at.
    let (file, buffer) = unsafe {
        buffer.cast::<u8>().write_bytes(0, size);
        (&*file, std::slice::from_raw_parts_mut(buffer.cast::<u8>(), size))
    };
    // The library asks for more than there is at the end of a file, and takes zeros.
    let there = file.bytes.saturating_sub(address).min(size as u64) as usize;
    if !file.file.read_at(address, &mut buffer[..there]) {
        return -1;
    }
    // What is read is no reliable word for this: the library calls a heap of texts the numbers of a data set.
    if buffer.starts_with(HEAP_SIGNATURE) && !heap_is_sound(&file.file, address, file.bytes) {
        return -1;
    }
    0
}

unsafe extern "C" fn write(_: *mut OpenedFile, _: c_int, _: hid_t, _: haddr_t, _: usize, _: *const c_void) -> herr_t {
    -1
}

/// Times that a file is tried to be locked, [`LOCK_PAUSE`] apart.
const LOCK_TRIES: usize = 25;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Lock the file for reading; an error if another program writes it. A writer of this process has closed its file by then, but a
/// process that another thread is about to start shares the lock from `fork` to `exec`: the lock is tried for half a second.
unsafe extern "C" fn lock(file: *mut OpenedFile, _: bool) -> herr_t {
    // SAFETY: as the caller says.
    let FileContent::Local(file) = (unsafe { &(*file).file }) else { return 0 };
    for attempt in 1..=LOCK_TRIES {
        // SAFETY: the file is open.
        let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB) } == 0;
        // File systems without locks are read without.
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
    // SAFETY: as the caller says.
    if let FileContent::Local(file) = unsafe { &(*file).file } {
        // SAFETY: the file is open. If it does not work, closing the file does.
        let _ = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
    }
    0
}

/// What can be read at positions.
trait ReadAt {
    /// Fill `into` from `offset` on; false if that cannot be done.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> bool;
}

/// What a collection of HDF5's global heap begins with: signature, version and three reserved bytes.
const HEAP_SIGNATURE: &[u8] = b"GCOL\x01\0\0\0";

/// Bytes before the first object: signature, version, reserved, size.
const HEAP_HEADER: usize = 16;
/// Bytes before the content of an object: number, references, reserved, size.
const HEAP_OBJECT_HEADER: usize = 16;
/// More text than in one collection of any file.
const MAX_HEAP_BYTES: u64 = 1 << 30;

/// Walk through the collection of texts at `address` as the library will: an object that takes no bytes has it go round for
/// ever (H5HG__cache_heap_deserialize). Of a file whose sizes have 8 bytes, which is checked when it is opened.
///
/// Source: HDF5 File Format Specification, III.E.
fn heap_is_sound(file: &impl ReadAt, address: u64, end: u64) -> bool {
    let mut header = [0; HEAP_HEADER];
    if !file.read_at(address, &mut header) {
        return false;
    }
    let size = u64::from_le_bytes(heap_size_at(&header));
    if size < HEAP_HEADER as u64 || size > MAX_HEAP_BYTES || address.checked_add(size).is_none_or(|past| past > end) {
        return false;
    }
    let mut all = vec![0; size as usize];
    file.read_at(address, &mut all) && objects_end(&all)
}

/// Going from object to object comes to the end.
fn objects_end(all: &[u8]) -> bool {
    let mut rest = all.get(HEAP_HEADER..).unwrap_or_default();
    while let Some(object) = rest.get(..OBJECT) {
        let size = u64::from_le_bytes(heap_size_at(object));
        // Object 0 is what is free, and its size is that of all of it.
        let takes = match u16::from_le_bytes([object[0], object[1]]) {
            0 => Some(size),
            _ => size.checked_next_multiple_of(8).and_then(|size| size.checked_add(HEAP_OBJECT_HEADER as u64)),
        };
        match takes.and_then(|takes| usize::try_from(takes).ok()).filter(|takes| *takes > 0) {
            Some(takes) if takes <= rest.len() => rest = &rest[takes..],
            _ => return false,
        }
    }
    true
}

/// The size in a header of a collection or an object.
fn heap_size_at(header: &[u8]) -> [u8; 8] {
    let mut size = [0; 8];
    size.copy_from_slice(&header[8..16]);
    size
}

#[cfg(test)]
mod heap_tests {

    fn collection(objects: &[(u16, u64, usize)]) -> Vec<u8> {
        let mut all = vec![0; 16];
        for (number, size, bytes) in objects {
            all.extend(number.to_le_bytes());
            all.extend([0; 6]);
            all.extend(size.to_le_bytes());
            all.extend(vec![0; *bytes]);
        }
        all
    }

    #[test]
    fn what_has_no_end_is_refused() {
        assert!(objects_end(&collection(&[(1, 5, 8), (2, 8, 8), (0, 40, 24)])));
        assert!(objects_end(&collection(&[(1, 5, 8)])), "no free space");
        assert!(!objects_end(&collection(&[(1, 5, 8), (0, 0, 24)])), "free space of no bytes");
        assert!(!objects_end(&collection(&[(1, u64::MAX - 15, 8)])), "a size that wraps to nothing");
        assert!(!objects_end(&collection(&[(1, 50, 8)])), "beyond the end");
    }
}
