use super::stored::Stored;

/// How it is encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::array) enum Encoding {
    Csr,
    Csc,
}

/// A matrix as its files describe it.
pub(in crate::array) struct Described {
    pub(in crate::array) rows: u64,
    pub(in crate::array) columns: u64,
    pub(in crate::array) arrays: Arrays,
}

/// Its data sets.
pub(in crate::array) enum Arrays {
    Dense(Stored),
    /// indptr, indices and data.
    Sparse(Encoding, Box<[Stored; 3]>),
}

impl Described {
    /// Values that are stored.
    pub(in crate::array) fn values(&self) -> u64 {
        match &self.arrays {
            Arrays::Dense(data) => data.len,
            Arrays::Sparse(_, arrays) => arrays[2].len,
        }
    }

    /// Bytes of all of them in the files.
    pub(in crate::array) fn stored_bytes(&self) -> u64 {
        match &self.arrays {
            Arrays::Dense(data) => data.stored_bytes,
            Arrays::Sparse(_, arrays) => arrays.iter().map(|stored| stored.stored_bytes).sum(),
        }
    }
}
