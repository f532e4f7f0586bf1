use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use hdf5_metno::plist::FileAccess;
use hdf5_metno::sync::sync;
use hdf5_metno_sys::h5::{H5get_libversion, haddr_t, herr_t, hsize_t};
use hdf5_metno_sys::h5f::{H5F_ACC_RDONLY, H5F_close_degree_t, H5Fopen};
use hdf5_metno_sys::h5i::hid_t;
use hdf5_metno_sys::h5p::H5Pset_driver;
use nix::libc;

use super::heap::{self, ReadAt};
use crate::PipelineError;
use crate::array::source::remote::RemoteObject;
use crate::array::source::url_of;

/// Open a file to read with the HDF5 library, which gets to see only what [`heap::check`] has seen before: it does not come to
/// an end on some damaged files otherwise. The file must have the signature of HDF5.
pub(super) fn open(path: &Path) -> Result<hdf5_metno::File, PipelineError> {
    let failed = |reason: String| PipelineError::damaged(path, format!("the HDF5 library cannot open it: {reason}"));
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
        let object = url_of(path).and_then(RemoteObject::find);
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
        match H5FDregister((&raw const CLASS).cast()) {
            id if id < 0 => Err("it does not take a way to read files"),
            id => Ok(id),
        }
    })
});

unsafe extern "C" {
    fn H5FDregister(class: *const c_void) -> hid_t;
}

/// Numbers from 256 on are free to use.
const NUMBER: c_int = 391;

/// A function that this driver does not have.
type Absent = Option<unsafe extern "C" fn()>;

/// `H5FD_class_t` of HDF5 2 (H5FDdevelop.h).
#[repr(C)]
struct Class {
    version: c_uint,
    value: c_int,
    name: *const c_char,
    maxaddr: haddr_t,
    fc_degree: H5F_close_degree_t,
    terminate: Absent,
    superblock: [Absent; 3],
    fapl_size: usize,
    fapl: [Absent; 3],
    dxpl_size: usize,
    dxpl: [Absent; 2],
    open: unsafe extern "C" fn(*const c_char, c_uint, hid_t, haddr_t) -> *mut Opened,
    close: unsafe extern "C" fn(*mut Opened) -> herr_t,
    cmp: unsafe extern "C" fn(*const Opened, *const Opened) -> c_int,
    query: unsafe extern "C" fn(*const Opened, *mut c_ulong) -> herr_t,
    get_type_map: Absent,
    alloc: Absent,
    free: Absent,
    get_eoa: unsafe extern "C" fn(*const Opened, c_int) -> haddr_t,
    set_eoa: unsafe extern "C" fn(*mut Opened, c_int, haddr_t) -> herr_t,
    get_eof: unsafe extern "C" fn(*const Opened, c_int) -> haddr_t,
    get_handle: Absent,
    read: unsafe extern "C" fn(*mut Opened, c_int, hid_t, haddr_t, usize, *mut c_void) -> herr_t,
    write: unsafe extern "C" fn(*mut Opened, c_int, hid_t, haddr_t, usize, *const c_void) -> herr_t,
    vectors: [Absent; 4],
    flush: Absent,
    truncate: Absent,
    lock: unsafe extern "C" fn(*mut Opened, bool) -> herr_t,
    unlock: unsafe extern "C" fn(*mut Opened) -> herr_t,
    del: Absent,
    ctl: Absent,
    fl_map: [c_int; 7],
}

// SAFETY: it is never written to; the name it points to is static.
unsafe impl Sync for Class {}

static CLASS: Class = Class {
    version: 1,
    value: NUMBER,
    name: c"expctl".as_ptr(),
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
struct Opened {
    library: Library,
    file: Content,
    /// End of the addresses that the library uses.
    end: haddr_t,
    bytes: u64,
    /// Device and inode, or 0 and the number of a remote object.
    identity: (u64, u64),
}

/// Where its bytes are.
enum Content {
    Local(File),
    Remote(Arc<RemoteObject>),
}

impl ReadAt for Content {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> bool {
        match self {
            Self::Local(file) => file.read_exact_at(into, offset).is_ok(),
            Self::Remote(object) => object.read_near(offset, into).is_ok(),
        }
    }
}

#[repr(C)]
struct Library {
    driver_id: hid_t,
    cls: *const Class,
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
unsafe extern "C" fn open_file(name: *const c_char, flags: c_uint, _: hid_t, _: haddr_t) -> *mut Opened {
    // Bit 0 to 4: write, truncate, exclusive, create.
    if flags & 0b11111 != 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: as the caller says.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
    let Some((file, bytes, identity)) = open_content(path) else { return std::ptr::null_mut() };
    // SAFETY: all of it may be zero; the library fills it.
    let library = unsafe { std::mem::zeroed() };
    Box::into_raw(Box::new(Opened { library, file, end: 0, bytes, identity }))
}

/// The content at a path or URL, its length, and what tells it from others.
fn open_content(path: &Path) -> Option<(Content, u64, (u64, u64))> {
    if let Some(url) = url_of(path) {
        // Whoever asks the library has it open.
        let object = RemoteObject::find(url).or_else(|| RemoteObject::open(url).ok())?;
        let (bytes, identity) = (object.bytes(), (0, object.number()));
        return Some((Content::Remote(object), bytes, identity));
    }
    let file = File::open(path).ok()?;
    let about = file.metadata().ok()?;
    Some((Content::Local(file), about.len(), (about.dev(), about.ino())))
}

/// # Safety
/// `file` is from [`open_file`] and is not used again.
unsafe extern "C" fn close(file: *mut Opened) -> herr_t {
    // SAFETY: as the caller says.
    drop(unsafe { Box::from_raw(file) });
    0
}

/// # Safety
/// Both are from [`open_file`], as in all that follows.
unsafe extern "C" fn cmp(one: *const Opened, other: *const Opened) -> c_int {
    // SAFETY: as the caller says.
    unsafe { (*one).identity.cmp(&(*other).identity) as c_int }
}

/// # Safety
/// `flags` may be written to.
unsafe extern "C" fn query(_: *const Opened, flags: *mut c_ulong) -> herr_t {
    if !flags.is_null() {
        // SAFETY: as the caller says. No features: each block is read by itself.
        unsafe { *flags = 0 };
    }
    0
}

unsafe extern "C" fn get_eoa(file: *const Opened, _: c_int) -> haddr_t {
    // SAFETY: as the caller says.
    unsafe { (*file).end }
}

unsafe extern "C" fn set_eoa(file: *mut Opened, _: c_int, end: haddr_t) -> herr_t {
    // SAFETY: as the caller says.
    unsafe { (*file).end = end };
    0
}

unsafe extern "C" fn get_eof(file: *const Opened, _: c_int) -> haddr_t {
    // SAFETY: as the caller says.
    unsafe { (*file).bytes }
}

/// # Safety
/// `buffer` has `size` bytes that may be written to.
unsafe extern "C" fn read(
    file: *mut Opened,
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
    if buffer.starts_with(heap::SIGNATURE) && !heap::check(&file.file, address, file.bytes) {
        return -1;
    }
    0
}

unsafe extern "C" fn write(_: *mut Opened, _: c_int, _: hid_t, _: haddr_t, _: usize, _: *const c_void) -> herr_t {
    -1
}

/// Times that a file is tried to be locked, [`LOCK_PAUSE`] apart.
const LOCK_TRIES: usize = 25;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Lock the file for reading; an error if another program writes it. A process that another thread of that program is about to
/// start shares its lock from `fork` to `exec`: the lock is tried for half a second.
unsafe extern "C" fn lock(file: *mut Opened, _: bool) -> herr_t {
    // SAFETY: as the caller says.
    let Content::Local(file) = (unsafe { &(*file).file }) else { return 0 };
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

unsafe extern "C" fn unlock(file: *mut Opened) -> herr_t {
    // SAFETY: as the caller says.
    if let Content::Local(file) = unsafe { &(*file).file } {
        // SAFETY: the file is open. If it does not work, closing the file does.
        let _ = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
    }
    0
}
