//! A cluster that is reached from outside, with the user's own `ssh`: its code is sent, its jobs are submitted once, its records are fetched.
//!
//! Here: [`Host`] starts the program `ssh`, [`HostSession`] asks over one connection ([`protocol`]), [`ProjectTree`] sends the code,
//! [`LocalSubmission`] remembers what was asked for, [`fn@fetch`] copies the records of jobs; [`Transferred`] is what went in either direction.
//! There: `expctl remote serve` is [`fn@serve`] in the folder of the project ([`RemoteFolder`]); [`ReceivedTree`] takes the code,
//! [`OnceSubmission`] submits; behind it, trees that no job names any more are removed.
//!
//! Invariant: a connection that ends at any point leaves no file that is cut off, and no submission that happens twice.

mod error;
mod fetch;
mod host;
mod host_address;
mod job_files;
mod local_submission;
mod once_submission;
mod project_tree;
pub mod protocol;
mod received_tree;
mod remote_folder;
mod running_mark;
mod serve;
mod session;
mod transfer;
mod unused_trees;

pub use error::RemoteError;
pub use fetch::{FetchedJobs, ask_again, fetch, fetched_before};
pub use host::Host;
pub(crate) use host::is_host_name;
pub use host_address::HostAddress;
pub use job_files::FetchExtent;
pub use local_submission::LocalSubmission;
pub use once_submission::{OnceSubmission, SubmissionOrder, SubmissionResult, SubmissionRoot};
pub use project_tree::ProjectTree;
pub use received_tree::ReceivedTree;
pub use remote_folder::RemoteFolder;
pub use serve::serve;
pub use session::{EndedThere, HostSession, ThereStreams, run_there};
pub use transfer::Transferred;
