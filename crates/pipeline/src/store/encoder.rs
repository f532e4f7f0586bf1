use expctl_record::StoreKind;

use super::mask_encoder::MaskEncoder;
use super::{MaskSizes, Sample, ids};
use crate::graph::CellGraph;

/// Writes the records of a store that is made from the base store. Each thread has its own; clones share the graph.
#[derive(Clone)]
pub(crate) struct StoreEncoder(Option<MaskEncoder>);

impl StoreEncoder {
    /// An encoder over all networks and the metabolism of a data set. The base store is not one of the kinds.
    pub(crate) fn new(kind: StoreKind, sizes: MaskSizes, graph: &CellGraph) -> Self {
        Self(if kind == StoreKind::Ids { None } else { MaskEncoder::new(kind, sizes, graph) })
    }

    /// Append the record of `sample` to `out`.
    pub(crate) fn encode(&mut self, sample: &Sample, out: &mut Vec<u8>) {
        match &mut self.0 {
            Some(masks) => masks.encode(sample, out),
            None => ids::encode(sample, out),
        }
    }
}
