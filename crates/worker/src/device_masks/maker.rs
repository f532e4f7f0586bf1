use expctl_record::DeviceMasks;
use graph_loader::{CellGraph, Common};
use tch::{Device, Tensor};

use super::DeviceMaskError;
use super::looped::Looped;
use super::vectorised::Vectorised;
use crate::models::sent;

/// Makes the edge masks of batches on one device.
#[derive(Debug)]
pub struct DeviceMaskMaker {
    num_genes: usize,
    device: Device,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Looped(Vec<Looped>),
    Vectorised(Vec<Vectorised>),
}

impl DeviceMaskMaker {
    /// Brings the incidence of all edge types of `graph` to `device`; none if no masks are wanted there.
    ///
    /// # Errors
    /// There is no room on the device, or an edge type is too large.
    pub fn new(kind: DeviceMasks, graph: &CellGraph, device: Device) -> Result<Option<Self>, DeviceMaskError> {
        let num_genes = graph.num_genes();
        let types = || graph.edge_types.iter();
        let kind = match kind {
            DeviceMasks::None => return Ok(None),
            DeviceMasks::Looped => {
                Kind::Looped(types().map(|edges| Looped::new(edges, num_genes, device)).collect::<Result<_, _>>()?)
            }
            DeviceMasks::Vectorised => Kind::Vectorised(
                types().map(|edges| Vectorised::new(edges, num_genes, device)).collect::<Result<_, _>>()?,
            ),
        };
        Ok(Some(Self { num_genes, device, kind }))
    }

    /// The masks of one batch of B samples: for each edge type of the graph, in its order, bool `[B·E]` on the device, sample
    /// by sample. A GPU may not have finished them when this returns.
    ///
    /// # Errors
    /// A gene that the graph does not have, or libtorch refuses.
    pub fn make(&self, common: &Common) -> Result<Vec<Tensor>, DeviceMaskError> {
        // Here, and not by the device: on a GPU an index that is out of range ends the process.
        let known = |gene: &i64| usize::try_from(*gene).is_ok_and(|gene| gene < self.num_genes);
        if let Some((&gene, &sample)) = common.genes.iter().zip(&common.gene_sample).find(|(gene, _)| !known(gene)) {
            return Err(DeviceMaskError::Gene { sample: sample as usize, gene, genes: self.num_genes });
        }
        // All that is copied for a batch: 8 bytes a gene.
        let genes = sent(&common.genes, self.device)?;
        let masks = match &self.kind {
            Kind::Looped(types) => {
                types.iter().map(|edges| edges.make(&genes, &common.gene_ptr)).collect::<Result<_, _>>()?
            }
            Kind::Vectorised(types) => {
                let samples = sent(&common.gene_sample, self.device)?;
                let size = common.len() as i64;
                types.iter().map(|edges| edges.make(&genes, &samples, size)).collect::<Result<_, _>>()?
            }
        };
        Ok(masks)
    }

    /// Bytes that stay on the device.
    pub fn resident_bytes(&self) -> u64 {
        match &self.kind {
            Kind::Looped(types) => types.iter().map(Looped::resident_bytes).sum(),
            Kind::Vectorised(types) => types.iter().map(Vectorised::resident_bytes).sum(),
        }
    }
}
