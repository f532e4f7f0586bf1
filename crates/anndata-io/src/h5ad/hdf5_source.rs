use std::path::Path;

use crate::AnnDataError;
use crate::source::Source;

/// What every HDF5 file has at byte 0, 512, 1024, 2048, …: what comes before is the user's.
const SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";

/// The part of a superblock that is looked at: no version has fewer bytes.
const SUPERBLOCK: usize = 16;

/// Bytes of a size, and of an address, in every file that h5py writes.
const SIZE_BYTES: u8 = 8;

/// Open a file that has the signature of HDF5.
///
/// # Errors
/// It cannot be opened, or is another one.
pub(super) fn open(path: &Path) -> Result<Source, AnnDataError> {
    let source = Source::open(path)?;
    match size_bytes(&source)? {
        None => Err(source.damaged("is not an HDF5 file: it has no HDF5 signature")),
        Some(SIZE_BYTES) => Ok(source),
        Some(other) => Err(source.damaged(format!("has sizes of {other} bytes; {SIZE_BYTES} are supported"))),
    }
}

/// Bytes of a size in this file, which its superblock says; `None` if there is none.
fn size_bytes(source: &Source) -> Result<Option<u8>, AnnDataError> {
    let mut at = 0;
    while at + SUPERBLOCK as u64 <= source.bytes() {
        let mut found = [0; SUPERBLOCK];
        source.read_near(at, &mut found)?;
        if found.starts_with(&SIGNATURE) {
            // Behind the signature is the version.
            return Ok(Some(if found[8] < 2 { found[14] } else { found[10] }));
        }
        at = (at * 2).max(512);
    }
    Ok(None)
}
