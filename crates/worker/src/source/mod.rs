//! What a trial reads: samples of a graph, or rows of an array. Invariant: whoever steps, records and keeps states knows the
//! traits alone.

mod array;
mod graph;
mod options;
mod row_builder;
mod source_trait;

pub(crate) use array::ArraySource;
pub(crate) use graph::GraphSource;
pub(crate) use source_trait::{Batches, Source, StepMasks};
