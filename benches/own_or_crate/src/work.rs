//! Which rows a pass reads.

use std::ops::Range;

use anndata_io::RowSelection;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Rows of a batch of single rows.
const BATCH_ROWS: usize = 128;

/// How rows are drawn.
#[derive(Clone, Copy)]
pub enum Draw {
    /// All rows in order, so many at once.
    InOrder(u64),
    /// All rows in blocks of this length, the blocks in random order; each block is one read.
    Blocks(u64),
    /// So many batches of 128 random rows.
    Single(u64),
}

/// The rows of one read.
pub enum Request {
    /// Consecutive rows.
    Range(Range<u64>),
    /// Rows by number.
    Rows(Vec<u64>),
}

impl Request {
    /// As our readers take it.
    pub fn selection(&self) -> RowSelection<'_> {
        match self {
            Self::Range(range) => RowSelection::Range(range.clone()),
            Self::Rows(rows) => RowSelection::Rows(rows),
        }
    }

    /// Number of rows.
    pub fn len(&self) -> u64 {
        match self {
            Self::Range(range) => range.end - range.start,
            Self::Rows(rows) => rows.len() as u64,
        }
    }
}

impl Draw {
    /// The reads of a pass over a file of `rows`.
    pub fn requests(self, rows: u64) -> Vec<Request> {
        let mut random = Pcg64Mcg::seed_from_u64(7);
        let blocks = |of: u64| (0..rows).step_by(of as usize).map(move |start| start..(start + of).min(rows));
        match self {
            Self::InOrder(of) => blocks(of).map(Request::Range).collect(),
            Self::Blocks(of) => {
                let mut blocks: Vec<_> = blocks(of).collect();
                for i in (1..blocks.len()).rev() {
                    blocks.swap(i, random.random_range(0..=i));
                }
                blocks.into_iter().map(Request::Range).collect()
            }
            Self::Single(batches) => {
                let mut batch = || (0..BATCH_ROWS).map(|_| random.random_range(0..rows)).collect();
                (0..batches).map(|_| Request::Rows(batch())).collect()
            }
        }
    }
}
