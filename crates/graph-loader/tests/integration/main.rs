//! Layouts of batches, the loader and stores, against references of their own.

mod layouts;
mod lmdb;
mod loader;
mod masked;
mod published;
