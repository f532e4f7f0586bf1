//! Edge masks made where the batch is used, as in the published variants 081 (looped) and 082 (vectorised). Invariants: incidence and
//! everything else that does not change lies on the device once, for the whole run; of a batch only gene ids are needed; both methods
//! give the same masks, true = kept.
//!
//! The masks cover the edge types between genes. Masks of reactions and of the edges gpr and rmr stay with the loader.
//!
//! On a GPU the published loops waited for the device more often. 081 read every gene of every sample for each edge type (its notes count
//! 864 reads a batch: 32 samples, 9 types, 3 genes), and so does `LoopedMasks`; 082 has 64 reads left by its notes, two a sample. Not counted
//! there: both first split the batch into a list of genes per sample, and 082 waits twice per type to see whether a gene is out of range and
//! once to count what is no padding. Here the loader has left the starts of the samples on the host, genes are checked there, and
//! `VectorisedMasks` waits for nothing.

use expctl_settings::DeviceMasks;
use graph_loader::{CellGraph, Common, EdgeType, Incidence};
use tch::{Device, Kind, TchError, Tensor};

use crate::models::copy_to_device;

/// Why masks cannot be made on the device.
#[derive(Debug, thiserror::Error)]
pub enum DeviceMaskError {
    /// A sample perturbs a gene that is not in the graph.
    #[error("sample {sample} of the batch perturbs gene {gene}, but the graph has {genes} genes")]
    Gene {
        /// Index of the sample in the batch.
        sample: usize,
        /// The gene.
        gene: i64,
        /// Number of genes in the graph.
        genes: usize,
    },
    /// An edge type has more edges than 32-bit positions can address.
    #[error("edge type {name} has {edges} edges, too many for device masks")]
    Edges {
        /// The edge type.
        name: String,
        /// Its number of edges.
        edges: usize,
    },
    /// An operation of libtorch failed.
    #[error("device masks: {0}")]
    Torch(#[from] TchError),
}

/// Makes the edge masks of batches on one device.
#[derive(Debug)]
pub struct DeviceMaskMaker {
    num_genes: usize,
    device: Device,
    method: Method,
}

#[derive(Debug)]
enum Method {
    Looped(Vec<LoopedMasks>),
    Vectorised(Vec<VectorisedMasks>),
}

impl DeviceMaskMaker {
    /// Copy the incidence of all edge types of `graph` to `device`; `None` where the loader makes all masks.
    ///
    /// # Errors
    /// The device has no memory, or an edge type is too large.
    pub fn new(method: DeviceMasks, graph: &CellGraph, device: Device) -> Result<Option<Self>, DeviceMaskError> {
        let num_genes = graph.num_genes();
        let types = || graph.edge_types.iter();
        let method = match method {
            DeviceMasks::None => return Ok(None),
            DeviceMasks::Looped => Method::Looped(
                types().map(|edges| LoopedMasks::new(edges, num_genes, device)).collect::<Result<_, _>>()?,
            ),
            DeviceMasks::Vectorised => Method::Vectorised(
                types().map(|edges| VectorisedMasks::new(edges, num_genes, device)).collect::<Result<_, _>>()?,
            ),
        };
        Ok(Some(Self { num_genes, device, method }))
    }

    /// The masks of one batch of B samples: for each edge type of the graph, in its order, bool `[B·E]` on the device, sample by sample. A GPU
    /// may still compute them when this returns.
    ///
    /// # Errors
    /// A gene is not in the graph, or libtorch fails.
    pub fn make(&self, common: &Common) -> Result<Vec<Tensor>, DeviceMaskError> {
        // Checked on the host: on a GPU an index that is out of range ends the process.
        let known = |gene: &i64| usize::try_from(*gene).is_ok_and(|gene| gene < self.num_genes);
        if let Some((&gene, &sample)) = common.genes.iter().zip(&common.gene_sample).find(|(gene, _)| !known(gene)) {
            return Err(DeviceMaskError::Gene { sample: sample as usize, gene, genes: self.num_genes });
        }
        // Nothing else is copied for a batch: 8 bytes a gene.
        let genes = copy_to_device(&common.genes, self.device)?;
        let masks = match &self.method {
            Method::Looped(types) => {
                types.iter().map(|edges| edges.make(&genes, &common.gene_ptr)).collect::<Result<_, _>>()?
            }
            Method::Vectorised(types) => {
                let samples = copy_to_device(&common.gene_sample, self.device)?;
                let size = common.len() as i64;
                types.iter().map(|edges| edges.make(&genes, &samples, size)).collect::<Result<_, _>>()?
            }
        };
        Ok(masks)
    }

    /// Memory on the device for the whole run, bytes.
    pub fn resident_bytes(&self) -> u64 {
        match &self.method {
            Method::Looped(types) => types.iter().map(LoopedMasks::resident_bytes).sum(),
            Method::Vectorised(types) => types.iter().map(VectorisedMasks::resident_bytes).sum(),
        }
    }
}

/// One edge type, mask by mask and gene by gene: the first published method.
#[derive(Debug)]
struct LoopedMasks {
    /// Positions of the edges of each gene, int64: views of one tensor.
    positions: Vec<Tensor>,
    /// bool `[E]`, all True.
    base: Tensor,
    entries: usize,
}

impl LoopedMasks {
    fn new(edges: &EdgeType, num_genes: usize, device: Device) -> Result<Self, DeviceMaskError> {
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

    /// bool `[B·E]` from int64 `genes` `[Σk]` on the device and the start of each sample's genes, `[B + 1]`.
    ///
    /// Every gene is read out of `genes` for each edge type, as in the published loop: on a GPU each of these reads waits for the device.
    fn make(&self, genes: &Tensor, ptr: &[i64]) -> Result<Tensor, DeviceMaskError> {
        let mut masks = Vec::with_capacity(ptr.len());
        for sample in ptr.windows(2) {
            let mut mask = self.base.f_detach_copy()?;
            for at in sample[0]..sample[1] {
                let gene = genes.f_int64_value(&[at])?;
                // `DeviceMaskMaker::make` has checked their range.
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

    fn resident_bytes(&self) -> u64 {
        8 * self.entries as u64 + self.base.numel() as u64
    }
}

/// One edge type, all samples of a batch at once: the second published method.
#[derive(Debug)]
struct VectorisedMasks {
    /// int32 `[G, D]`: positions of the edges of each gene, padded with [`PADDING`] to the maximum number D of a gene.
    table: Tensor,
    num_edges: i64,
}

/// In the table: no edge.
const PADDING: i32 = -1;

impl VectorisedMasks {
    fn new(edges: &EdgeType, num_genes: usize, device: Device) -> Result<Self, DeviceMaskError> {
        let num_edges = edges.num_edges();
        if i32::try_from(num_edges).is_err() {
            return Err(DeviceMaskError::Edges { name: edges.name.clone(), edges: num_edges });
        }
        let incidence = Incidence::build(edges, num_genes);
        let lists = || (0..num_genes as i64).map(|gene| incidence.of(gene));
        let width = lists().map(<[u32]>::len).max().unwrap_or(0);
        let mut table = vec![PADDING; num_genes * width];
        for (row, list) in table.chunks_exact_mut(width.max(1)).zip(lists()) {
            for (to, position) in row.iter_mut().zip(list) {
                *to = *position as i32;
            }
        }
        let table = Tensor::f_from_slice(&table)?.f_view([num_genes as i64, width as i64])?.f_to_device(device)?;
        Ok(Self { table, num_edges: num_edges as i64 })
    }

    /// bool `[B·E]` from int64 `genes` and `samples` `[Σk]` on the device, for `size` samples.
    fn make(&self, genes: &Tensor, samples: &Tensor, size: i64) -> Result<Tensor, DeviceMaskError> {
        let all = size * self.num_edges;
        let rows = self.table.f_index_select(0, genes)?.f_to_kind(Kind::Int64)?;
        let offsets = samples.f_mul_scalar(self.num_edges)?.f_unsqueeze(1)?;
        // Padding is written to one more position behind the masks: nothing has to be counted, so the host need not wait for a GPU.
        let is_padding = rows.f_lt(i64::from(PADDING) + 1)?;
        let positions = rows.f_add(&offsets)?.f_masked_fill_(&is_padding, all)?.f_flatten(0, -1)?;
        let mut masks = Tensor::f_ones([all + 1], (Kind::Bool, genes.device()))?;
        let _ = masks.f_index_fill_(0, &positions, 0i64)?;
        Ok(masks.f_narrow(0, 0, all)?)
    }

    fn resident_bytes(&self) -> u64 {
        4 * self.table.numel() as u64
    }
}
