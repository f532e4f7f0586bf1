//! The one table of keys. Checking, defaults, `--set`, suggestions and the reference in docs/config.md all read it.

mod array;
mod data;
mod model;
mod pipeline;
mod profile;
mod run;
mod spec;
mod train;

pub use spec::{KEYS, KeySpec, Preset, SECTIONS, find};
