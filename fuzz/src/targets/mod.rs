//! The readers, and how their seeds are damaged.

mod arrays;
mod h5ad;
mod mds;
mod records;
mod text;

use std::path::Path;

use rand_pcg::Pcg64Mcg;

use crate::Outcome;
use crate::damage::damaged_copy;

/// A reader.
pub struct Target {
    /// Its name, and that of its folder in the corpus.
    pub name: &'static str,
    /// Writes a damaged copy of a seed.
    pub damage: fn(&Path, &Path, &mut Pcg64Mcg) -> Outcome<()>,
    /// Reads a seed or a case; a digest of its content.
    pub read: fn(&Path) -> Outcome<u64>,
}

/// All readers.
pub const TARGETS: [Target; 10] = [
    Target { name: "h5ad", damage: h5ad::damage, read: h5ad::read },
    Target { name: "zarr", damage: anywhere, read: arrays::zarr },
    Target { name: "parquet", damage: anywhere, read: arrays::parquet },
    Target { name: "mds", damage: mds::damage, read: arrays::mds },
    Target { name: "graph", damage: anywhere, read: records::graph },
    Target { name: "ledger", damage: anywhere, read: records::ledger },
    Target { name: "timings", damage: anywhere, read: records::timings },
    Target { name: "config", damage: anywhere, read: text::config },
    Target { name: "log", damage: anywhere, read: text::log },
    Target { name: "slurm", damage: anywhere, read: text::slurm },
];

fn anywhere(seed: &Path, case: &Path, rng: &mut Pcg64Mcg) -> Outcome<()> {
    Ok(damaged_copy(seed, case, rng)?)
}

/// FNV over words: quick, and differs with the order.
#[derive(Clone, Copy)]
pub struct Digest(u64);

impl Digest {
    /// Of nothing.
    pub const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds a word.
    pub fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    }

    /// The digest.
    pub const fn value(self) -> u64 {
        self.0
    }
}
