//! Provenance of a job: code, config, programs and environment, gathered at submission and written into the folder of the job.
//!
//! Invariant: nothing that looks like a secret is written; texts that were left out or cut off say so.

mod origin;
mod secrets;
mod source_tree;

pub use origin::{JobOrigin, changes_since_submit};
