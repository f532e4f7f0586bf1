use super::Piece;
use super::remote::Arriving;

/// What was asked for and is still to be waited for. What is let go of is not waited for, and may never come.
#[derive(Debug, Default)]
pub(crate) struct Late {
    /// Of local files.
    pub(super) local: Vec<Piece>,
    /// Of remote objects, with the number of each.
    pub(super) remote: Vec<(usize, Arriving)>,
}

impl Late {
    /// Bytes of memory held, used or not.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.local.capacity() * size_of::<Piece>() + self.remote.capacity() * size_of::<(usize, Arriving)>()
    }

    pub(super) fn clear(&mut self) {
        self.local.clear();
        self.remote.clear();
    }
}
