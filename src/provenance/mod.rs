//! Provenance of a job: code, config, programs and environment, gathered at submission and written into the folder of the job.
//!
//! Invariant: nothing that looks like a secret is written; texts that were left out or cut off say so.

mod origin;
mod secrets;
mod source_tree;

pub use origin::{CodeOf, ConfigOf, JobOrigin, changes_since_submit};
pub(crate) use secrets::Secrets;
pub use source_tree::source_state;
pub(crate) use source_tree::{git, own_folders, split_names};
