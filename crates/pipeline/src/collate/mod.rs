//! Samples to batches.
