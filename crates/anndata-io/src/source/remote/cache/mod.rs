//! Blocks of objects on a disk of the node, for all processes that read them there.
//!
//! Invariants: the cache is one file of as many slots as fit into its bytes, so it never has more, whatever ends when; a block
//! is taken only if its checksum is that of the bytes that were read, so what was torn, half written or replaced meanwhile is
//! a miss; a cache that cannot be written to is as good as an empty one.

mod entry;
mod file;
mod layout;
mod locked;
mod slots;

pub(super) use slots::{Cache, Scratch};

/// Bytes of a block: little beside what a chunk of rows has, and some times what a disk or a network does in the time of a
/// request.
pub(super) const BLOCK: u64 = 256 << 10;

/// What the blocks of one version of an object are called: 16 bytes of BLAKE3 over its URL and what tells its version.
pub(super) fn name_of(url: &str, version: &str) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(url.as_bytes()).update(b"\n").update(version.as_bytes());
    let mut name = [0; 16];
    name.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    name
}
