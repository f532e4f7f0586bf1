use expctl_dist::{Entry, SparseMatrix};
use tch::{Device, Tensor};

use crate::models::{EdgeList, ModelError};

/// One edge type as the model uses it. All of it is fixed; nothing here is trained.
#[derive(Debug)]
pub(super) struct Graph {
    /// `[N, N]`: row t averages the rows of t's sources, an edge that is listed twice counting twice. A gene without
    /// incoming edges has an empty row, so its mean is 0.
    pub mean_of_sources: SparseMatrix,
    /// A, `[N, N]`: 1 at (source, target) of each edge.
    pub adjacency: SparseMatrix,
    /// Number of different edges into each gene, float32 `[N]`.
    pub in_degree: Tensor,
    /// Different edges, as int64 `[E]` sources and targets; kept only where the loss weighs absent edges apart.
    pub edges: Option<(Tensor, Tensor)>,
}

impl Graph {
    pub fn new(list: &EdgeList, num_genes: i64, keep_edges: bool, device: Device) -> Result<Self, ModelError> {
        let fail = |reason| ModelError::Edges { name: list.name.to_owned(), reason };
        if list.sources.len() != list.targets.len() {
            return Err(fail(format!("{} sources and {} targets", list.sources.len(), list.targets.len())));
        }
        let genes = u32::try_from(num_genes).map_err(|_| fail(format!("{num_genes} genes")))?;
        let gene = |index: i64| {
            u32::try_from(index)
                .ok()
                .filter(|i| *i < genes)
                .ok_or_else(|| fail(format!("gene {index} is not among {num_genes} genes")))
        };
        let mut edges = Vec::with_capacity(list.sources.len());
        let mut listed = vec![0u32; genes as usize];
        for (&source, &target) in list.sources.iter().zip(list.targets) {
            let edge = (gene(source)?, gene(target)?);
            listed[edge.1 as usize] += 1;
            edges.push(edge);
        }
        let means = edges
            .iter()
            .map(|&(source, target)| Entry { row: target, column: source, value: 1.0 / listed[target as usize] as f32 })
            .collect();
        edges.sort_unstable();
        edges.dedup();
        let mut in_degree = vec![0f32; genes as usize];
        for &(_, target) in &edges {
            in_degree[target as usize] += 1.0;
        }
        let ones = edges.iter().map(|&(row, column)| Entry { row, column, value: 1.0 }).collect();
        let side = |pick: fn(&(u32, u32)) -> u32| -> Result<Tensor, ModelError> {
            let genes: Vec<i64> = edges.iter().map(|e| i64::from(pick(e))).collect();
            Ok(Tensor::f_from_slice(&genes)?.f_to_device(device)?)
        };
        Ok(Self {
            mean_of_sources: SparseMatrix::new(genes, genes, means, device)?,
            adjacency: SparseMatrix::new(genes, genes, ones, device)?,
            in_degree: Tensor::f_from_slice(&in_degree)?.f_to_device(device)?,
            edges: if keep_edges { Some((side(|e| e.0)?, side(|e| e.1)?)) } else { None },
        })
    }
}
