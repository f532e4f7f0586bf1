//! Edge masks made where the batch is used, as published in 081 (looped) and 082 (vectorised). Invariants: the incidence
//! and what else does not change lies on the device once, for the whole run; of a batch only gene ids are needed; both ways
//! give the same masks, True = kept.
//!
//! They cover the edge types between genes. Masks of reactions and of the edges gpr and rmr stay with the loader.

mod error;
mod looped;
mod maker;
mod vectorised;

pub use error::DeviceMaskError;
pub use maker::DeviceMaskMaker;
