//! Where a job comes from: code, config, programs, environment. Written once, at submission, into the job's folder.
//!
//! Invariant: nothing that looks like a secret is written down, and what was left out or cut off says so.

mod drift;
mod gather;
mod programs;
mod record;
mod secrets;
mod source_diff;
mod source_tree;
mod variables;

pub use drift::changes_since_submit;
pub use gather::Origin;
pub use record::{ConfigFile, ConfigOrigin, LibtorchFound, PROVENANCE_SCHEMA_VERSION, Program, Provenance, Source};
