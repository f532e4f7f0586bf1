//! Data sets of both families: builds, conversions, damage, and loading from them.

#![expect(clippy::unwrap_used, reason = "a test")]

mod array_dataset;
mod convert_formats;
mod converted;
mod damage;
mod dataset;
mod records;
mod remote;
mod stores;
