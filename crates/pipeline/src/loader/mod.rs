//! Threads that prepare batches ahead of the step.
