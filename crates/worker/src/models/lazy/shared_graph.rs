use expctl_pipeline::collate::{Common, RemovedLists};
use expctl_pipeline::graph::{EdgeType, Incidence};
use tch::{Device, Kind, TchError, Tensor};

use crate::models::{EdgeList, Inputs, ModelError};

/// One edge type, to find the ends of removed edges: 8 B per edge, and 8 B more for the edges of each gene.
#[derive(Debug)]
pub(super) struct Edges {
    name: String,
    /// Place among the edge types of a batch.
    place: usize,
    /// Source and target.
    ends: Vec<[u32; 2]>,
    incidence: Incidence,
}

/// A removed edge of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone {
    pub source: u32,
    pub target: u32,
    pub sample: u32,
}

/// The removed edges of a batch and its perturbed genes.
#[derive(Debug)]
pub(super) struct BatchRemoved {
    /// By edge type.
    pub edges: Vec<Vec<Gone>>,
    /// bool `[N, B]`: whether the gene is kept.
    pub kept: Tensor,
    pub genes: usize,
    pub batch: usize,
}

impl Edges {
    /// The list is a checked one.
    pub fn new(list: &EdgeList, place: usize, genes: usize) -> Self {
        let ends = list.sources.iter().zip(list.targets).map(|(s, t)| [*s as u32, *t as u32]).collect();
        let edge_type = EdgeType { name: list.name.to_owned(), edge_index: [list.sources, list.targets].concat() };
        Self { name: list.name.to_owned(), place, ends, incidence: Incidence::build(&edge_type, genes) }
    }

    /// From the positions that the loader found.
    fn listed(&self, lists: &[RemovedLists], batch: usize) -> Result<Vec<Gone>, ModelError> {
        let list = lists.get(self.place).filter(|list| list.ptr.len() == batch + 1);
        let list = list.ok_or_else(|| ModelError::Inputs(format!("removed edges of {}", self.name)))?;
        let mut gone = Vec::with_capacity(list.positions.len());
        for sample in 0..batch {
            for &position in list.of(sample) {
                let ends = usize::try_from(position).ok().and_then(|p| self.ends.get(p));
                let [source, target] = *ends.ok_or_else(|| {
                    let edges = self.ends.len();
                    ModelError::Inputs(format!("{}: edge {position} is not among {edges}", self.name))
                })?;
                gone.push(Gone { source, target, sample: sample as u32 });
            }
        }
        Ok(gone)
    }

    /// From the perturbed genes of each sample: all edges at them, an edge between two of them once.
    fn incident(&self, genes_of: &[Vec<u32>]) -> Vec<Gone> {
        let mut gone = Vec::new();
        for (sample, genes) in genes_of.iter().enumerate() {
            for (i, &gene) in genes.iter().enumerate() {
                for &position in self.incidence.of(i64::from(gene)) {
                    let [source, target] = self.ends[position as usize];
                    let other = if source == gene { target } else { source };
                    if !genes[..i].contains(&other) {
                        gone.push(Gone { source, target, sample: sample as u32 });
                    }
                }
            }
        }
        gone
    }
}

impl BatchRemoved {
    /// What the batch lacks: as its lists say or, where it has none, by its genes.
    ///
    /// # Errors
    /// A gene, a sample or a position is out of range.
    pub fn of(inputs: &Inputs<'_>, edges: &[Edges], genes: usize, device: Device) -> Result<Self, ModelError> {
        let batch = inputs.batch_size as usize;
        let mut genes_of = vec![Vec::<u32>::new(); batch];
        let mut kept = vec![true; genes * batch];
        for (gene, sample) in perturbed(inputs.common, genes)? {
            let of_sample = &mut genes_of[sample];
            if !of_sample.contains(&(gene as u32)) {
                of_sample.push(gene as u32);
                kept[gene * batch + sample] = false;
            }
        }
        let edges = match inputs.removed {
            Some(lists) => edges.iter().map(|e| e.listed(lists, batch)).collect::<Result<_, _>>()?,
            None => edges.iter().map(|e| e.incident(&genes_of)).collect(),
        };
        let kept = Tensor::f_from_slice(&kept)?.f_to_device(device)?.f_to_kind(Kind::Bool)?;
        Ok(Self { edges, kept: kept.f_view([genes as i64, batch as i64])?, genes, batch })
    }

    /// Where rows `[T · N · B]` of sums lose rows `[N · B]`.
    pub fn of_all_rows(&self, device: Device) -> Result<expctl_dist::Removed, TchError> {
        let (genes, batch) = (self.genes as i64, self.batch as i64);
        let row = |gene: u32, sample: u32| i64::from(gene) * batch + i64::from(sample);
        removed(&self.edges, device, |t, gone| {
            (t as i64 * genes * batch + row(gone.target, gone.sample), row(gone.source, gone.sample))
        })
    }
}

/// The perturbed genes of a batch, each with its sample: all of them exist. They are looked at on the host, because on a GPU an index that
/// is out of range ends the process.
///
/// # Errors
/// One is not among the `genes` genes of the graph, or its sample is not among those of the batch.
pub(super) fn perturbed(common: &Common, genes: usize) -> Result<Vec<(usize, usize)>, ModelError> {
    let batch = common.len();
    let one = |(gene, sample): (&i64, &i64)| -> Result<(usize, usize), ModelError> {
        let gene = usize::try_from(*gene).ok().filter(|gene| *gene < genes);
        let gene = gene.ok_or_else(|| ModelError::Inputs(format!("a gene that is not among {genes}")))?;
        let known = usize::try_from(*sample).ok().filter(|sample| *sample < batch);
        let known = known.ok_or_else(|| ModelError::Inputs(format!("sample {sample} is not among {batch}")))?;
        Ok((gene, known))
    };
    common.genes.iter().zip(&common.gene_sample).map(one).collect()
}

/// Rows that lose and rows that they lose, for each removed edge of type t.
pub(super) fn removed(
    edges: &[Vec<Gone>],
    device: Device,
    mut rows: impl FnMut(usize, &Gone) -> (i64, i64),
) -> Result<expctl_dist::Removed, TchError> {
    let (into, from): (Vec<i64>, Vec<i64>) = edges
        .iter()
        .enumerate()
        .flat_map(|(t, gone)| gone.iter().map(move |g| (t, g)))
        .map(|(t, g)| rows(t, g))
        .unzip();
    let tensor = |values: &[i64]| Tensor::f_from_slice(values)?.f_to_device(device);
    Ok(expctl_dist::Removed { into: tensor(&into)?, from: tensor(&from)? })
}
