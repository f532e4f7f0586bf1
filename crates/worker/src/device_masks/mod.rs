//! Edge masks made where the batch is used, as published in 081 (looped) and 082 (vectorised). Invariants: the incidence
//! and what else does not change lies on the device once, for the whole run; of a batch only gene ids are needed; both ways
//! give the same masks, True = kept.
//!
//! They cover the edge types between genes. Masks of reactions and of the edges gpr and rmr stay with the loader.
//!
//! On a GPU the published loops waited for it more often than these do. 081 read every gene of every sample out for each edge
//! type (its notes count 864 reads a batch, which is 32 samples, 9 types, 3 genes), and so does the looped way here; 082 has 64
//! reads left by its notes, two a sample. Not counted there: both first split the batch into a list of genes per sample, and
//! 082 waits twice per type to see whether a gene is out of range and once to count what is no padding. Here the loader has
//! left the starts of the samples on the host, genes are looked at there, and the vectorised way waits for nothing.

mod error;
mod looped;
mod maker;
mod vectorised;

pub use error::DeviceMaskError;
pub use maker::DeviceMaskMaker;
