use super::stored::Stored;

/// How it is encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Csr,
    Csc,
}

/// A matrix as its files describe it.
pub(crate) struct Described {
    pub(crate) rows: u64,
    pub(crate) columns: u64,
    pub(crate) arrays: Arrays,
}

/// Its data sets.
pub(crate) enum Arrays {
    Dense(Stored),
    /// indptr, indices and data.
    Sparse(Encoding, Box<[Stored; 3]>),
}

impl Described {
    /// Values that are stored.
    pub(crate) fn values(&self) -> u64 {
        match &self.arrays {
            Arrays::Dense(data) => data.len,
            Arrays::Sparse(_, arrays) => arrays[2].len,
        }
    }

    /// Bytes of all of them in the files.
    pub(crate) fn stored_bytes(&self) -> u64 {
        match &self.arrays {
            Arrays::Dense(data) => data.stored_bytes,
            Arrays::Sparse(_, arrays) => arrays.iter().map(|stored| stored.stored_bytes).sum(),
        }
    }
}
