use graph_loader::{EdgeType, Incidence};
use tch::{Device, Kind, Tensor};

use super::DeviceMaskError;

/// One edge type, all samples of a batch at once: the published second attempt.
#[derive(Debug)]
pub(super) struct Vectorised {
    /// int32 `[G, D]`: positions of each gene's edges, filled up with -1 to the largest number D of a gene.
    table: Tensor,
    num_edges: i64,
}

/// No edge.
const NONE: i32 = -1;

impl Vectorised {
    pub(super) fn new(edges: &EdgeType, num_genes: usize, device: Device) -> Result<Self, DeviceMaskError> {
        let num_edges = edges.num_edges();
        if i32::try_from(num_edges).is_err() {
            return Err(DeviceMaskError::Edges { name: edges.name.clone(), edges: num_edges });
        }
        let incidence = Incidence::build(edges, num_genes);
        let lists = || (0..num_genes as i64).map(|gene| incidence.of(gene));
        let most = lists().map(<[u32]>::len).max().unwrap_or(0);
        let mut table = vec![NONE; num_genes * most];
        for (row, list) in table.chunks_exact_mut(most.max(1)).zip(lists()) {
            for (to, position) in row.iter_mut().zip(list) {
                *to = *position as i32;
            }
        }
        let table = Tensor::f_from_slice(&table)?.f_view([num_genes as i64, most as i64])?.f_to_device(device)?;
        Ok(Self { table, num_edges: num_edges as i64 })
    }

    /// bool `[B·E]` from int64 `genes` and `samples` `[Σk]` on the device, for `size` samples.
    pub(super) fn make(&self, genes: &Tensor, samples: &Tensor, size: i64) -> Result<Tensor, DeviceMaskError> {
        let all = size * self.num_edges;
        let rows = self.table.f_index_select(0, genes)?.f_to_kind(Kind::Int64)?;
        let offsets = samples.f_mul_scalar(self.num_edges)?.f_unsqueeze(1)?;
        // What is no edge goes to one more place behind the masks: nothing has to be counted, so a GPU need not be waited
        // for.
        let nowhere = rows.f_lt(i64::from(NONE) + 1)?;
        let positions = rows.f_add(&offsets)?.f_masked_fill_(&nowhere, all)?.f_flatten(0, -1)?;
        let mut masks = Tensor::f_ones([all + 1], (Kind::Bool, genes.device()))?;
        let _ = masks.f_index_fill_(0, &positions, 0i64)?;
        Ok(masks.f_narrow(0, 0, all)?)
    }

    pub(super) fn resident_bytes(&self) -> u64 {
        4 * self.table.numel() as u64
    }
}
