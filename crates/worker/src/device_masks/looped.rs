use graph_loader::{EdgeType, Incidence};
use tch::{Device, Kind, Tensor};

use super::DeviceMaskError;

/// One edge type, mask by mask and gene by gene: the published first attempt.
#[derive(Debug)]
pub(super) struct Looped {
    /// For each gene, int64: positions of its edges. Views of one tensor.
    positions: Vec<Tensor>,
    /// bool `[E]`, all True.
    base: Tensor,
    entries: usize,
}

impl Looped {
    pub(super) fn new(edges: &EdgeType, num_genes: usize, device: Device) -> Result<Self, DeviceMaskError> {
        let incidence = Incidence::build(edges, num_genes);
        let mut all = Vec::with_capacity(incidence.num_positions());
        let mut sizes = Vec::with_capacity(num_genes);
        for gene in 0..num_genes as i64 {
            let list = incidence.of(gene);
            all.extend(list.iter().map(|position| i64::from(*position)));
            sizes.push(list.len() as i64);
        }
        let positions = Tensor::f_from_slice(&all)?.f_to_device(device)?.f_split_with_sizes(sizes, 0)?;
        let base = Tensor::f_ones([edges.num_edges() as i64], (Kind::Bool, device))?;
        Ok(Self { positions, base, entries: all.len() })
    }

    /// bool `[B·E]` from int64 `genes` `[Σk]` on the device and where each sample's start, `[B + 1]`.
    ///
    /// Every gene is read out of `genes` for each edge type, as the published loop did: on a GPU each of these reads waits
    /// for it.
    pub(super) fn make(&self, genes: &Tensor, ptr: &[i64]) -> Result<Tensor, DeviceMaskError> {
        let mut masks = Vec::with_capacity(ptr.len());
        for sample in ptr.windows(2) {
            let mut mask = self.base.f_detach_copy()?;
            for at in sample[0]..sample[1] {
                let gene = genes.f_int64_value(&[at])?;
                // `make` of the maker has looked at their range.
                if let Some(positions) = self.positions.get(gene as usize) {
                    let _ = mask.f_index_fill_(0, positions, 0i64)?;
                }
            }
            masks.push(mask);
        }
        match masks.is_empty() {
            true => Ok(self.base.f_narrow(0, 0, 0)?),
            false => Ok(Tensor::f_cat(&masks, 0)?),
        }
    }

    pub(super) fn resident_bytes(&self) -> u64 {
        8 * self.entries as u64 + self.base.numel() as u64
    }
}
