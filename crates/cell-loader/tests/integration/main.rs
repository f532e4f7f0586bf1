//! Samplers and loading of arrays, from a store whose values tell row and column.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod collate;
mod loading;
mod mishaps;
mod quality;
mod samplers;
mod store;
