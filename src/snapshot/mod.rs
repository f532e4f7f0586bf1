//! Snapshots of code: a job runs from the project's files as they were when it was submitted.
//!
//! [`fn@take`] lists the files of a project (`code_files`), leaves unchanged ones as they are known (`file_index`), and puts the others into a
//! store that all jobs of a user share (`store`); [`place`] writes the list, `snapshot.json`, into the folder of a job, and [`fn@unpack`] makes
//! the folder of it that programs run in. [`CodeDifference`] compares two jobs, [`prune`] removes what no job has any more.
//!
//! Invariant: a file of a job's folder `code` has the content that `snapshot.json` names by its hash.

mod code_difference;
mod code_files;
mod error;
mod file_index;
mod store;
mod take;
mod unpack;

pub use code_difference::{CodeDifference, FileChange, FileDifference};
pub use error::SnapshotError;
pub(crate) use store::Store;
pub use store::{Pruned, prune};
pub use take::{SnapshotLimits, TakenSnapshot, take};
pub(crate) use unpack::write_code;
pub use unpack::{code_folder, place, unpack};
