//! Parts of expctl-worker that its tests drive directly.

pub mod models;
