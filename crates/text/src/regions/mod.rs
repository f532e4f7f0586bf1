//! The generated sections of a note, between markers, and what a writer put around them.
//!
//! Invariant: what stands outside of the markers is never changed, byte for byte; what stands between them is replaced
//! only if it is as it was generated, or if its loss was asked for.

mod layout;
mod marker;
mod merge;
mod updated;

pub use layout::{Damage, Layout};
pub use merge::{Fresh, Merged, fresh, merge, plain, tidy};
pub use updated::with_updated;
