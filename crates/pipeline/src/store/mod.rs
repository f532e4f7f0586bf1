//! Where records are read from.

mod sample;

pub use sample::Sample;
