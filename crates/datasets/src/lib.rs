//! Data sets of expctl: the recipe, how it is built, what was built, conversion to other stores and verification.
//!
//! There are two families. A data set of a [`graph`] has networks, a metabolism and samples that perturb genes. A data set of
//! an [`mod@array`] has files of rows (cells). Both are built in a folder of their own under a lock, and get their name when they
//! are complete.
//!
//! Invariant: everything in a data set follows from the recipe's files and the settings of `[data]`; two machines build the
//! same edges, samples, rows and records.

pub mod array;
mod build_folder;
mod damage;
mod error;
pub mod graph;
mod manifest;
mod parallel;
mod random;
mod settings;
mod verify;

pub use build_folder::{BuildProgress, free_bytes};
pub use damage::Damage;
pub use error::{DatasetError, RequestError, SettingError};
pub use manifest::{DataOrigin, Family, FileInfo};
pub use settings::{
    cell_batch_options, graph_batch_options, ledger_operations, ledger_shuffle, ledger_stage, ledger_times,
    record_format, row_draw,
};
