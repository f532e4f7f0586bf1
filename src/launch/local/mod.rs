//! The local backend: ranks as processes of this machine, one trial after another.
//!
//! Invariant: whatever ends a trial, its ranks are gone and its `outcome.json` is written when the next one starts.

mod check;
mod checkpoint_request;
mod job;
mod launcher;
mod lock;
mod progress;
mod ranks;

pub use check::check;
pub use job::{allocate, detach, run};
pub use launcher::{Launcher, Life};
