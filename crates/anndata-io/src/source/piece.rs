use std::mem::MaybeUninit;

/// A part of a source, and where in a buffer it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// First byte in the source.
    pub(crate) offset: u64,
    /// First byte in the buffer.
    pub(crate) at: usize,
    /// Bytes.
    pub(crate) len: usize,
}

impl Piece {
    /// What is left of it when `done` bytes are there.
    pub(super) const fn behind(&self, done: usize) -> Self {
        Self { offset: self.offset + done as u64, at: self.at + done, len: self.len - done }
    }
}

/// Write `bytes` to memory, which is as long.
pub(super) fn fill(into: &mut [MaybeUninit<u8>], bytes: &[u8]) {
    into.iter_mut().zip(bytes).for_each(|(to, byte)| {
        to.write(*byte);
    });
}
