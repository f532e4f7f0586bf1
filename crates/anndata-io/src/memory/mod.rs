//! Rows in memory, as narrow as they go without loss, on huge pages.

mod narrow;
mod pages;
mod prefetch;
mod read;
mod resident;
mod store;
mod widen;
mod width;

pub use narrow::{NarrowRow, NarrowRows};
pub(super) use prefetch::prefetch;
pub use resident::Resident;
pub use store::MemoryStore;
