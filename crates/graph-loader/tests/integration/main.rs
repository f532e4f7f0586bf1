//! Layouts of batches, the loader and stores, against references of their own.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod layouts;
mod lmdb;
mod loader;
mod masked;
mod published;
