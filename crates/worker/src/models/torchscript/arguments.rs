use expctl_dist::ScriptInput;

use crate::models::{GraphInputs, Inputs, ModelError};

/// One thing that `forward` takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Argument {
    Genes,
    GeneSample,
    GenePtr,
    BatchSize,
    GeneMask,
    /// Of the edge type at this place of the graph.
    EdgeIndex(usize),
    EdgeMask(usize),
}

impl Argument {
    /// What `name` means in a graph of these edge types; none if nothing.
    pub(super) fn named(name: &str, edge_types: &[&str]) -> Option<Self> {
        let place = |edge_type: &str| edge_types.iter().position(|known| *known == edge_type);
        if let Some(edge_type) = name.strip_prefix("edge_index.") {
            return place(edge_type).map(Self::EdgeIndex);
        }
        if let Some(edge_type) = name.strip_prefix("edge_mask.") {
            return place(edge_type).map(Self::EdgeMask);
        }
        Some(match name {
            "genes" => Self::Genes,
            "gene_sample" => Self::GeneSample,
            "gene_ptr" => Self::GenePtr,
            "batch_size" => Self::BatchSize,
            "gene_mask" => Self::GeneMask,
            _ => return None,
        })
    }

    /// Its type in TorchScript's words.
    pub(super) const fn script_type(&self) -> &'static str {
        match self {
            Self::BatchSize => "int",
            _ => "Tensor",
        }
    }

    /// Its value in a batch.
    ///
    /// # Errors
    /// The batch has no graphs, or not the edges of each sample.
    pub(super) fn of<'a>(&self, inputs: &'a Inputs<'_>) -> Result<ScriptInput<'a>, ModelError> {
        let tensor = match self {
            Self::Genes => &inputs.genes,
            Self::GeneSample => &inputs.gene_sample,
            Self::GenePtr => &inputs.gene_ptr,
            Self::BatchSize => return Ok(ScriptInput::Int(inputs.batch_size)),
            Self::GeneMask => &graphs(inputs)?.kept,
            Self::EdgeIndex(place) => &edges(inputs, *place)?.edge_index,
            Self::EdgeMask(place) => &edges(inputs, *place)?.mask,
        };
        Ok(ScriptInput::Tensor(tensor))
    }
}

fn graphs<'a>(inputs: &'a Inputs<'_>) -> Result<&'a GraphInputs, ModelError> {
    inputs.graphs.as_ref().ok_or_else(|| ModelError::Inputs("the graph of each sample".to_owned()))
}

fn edges<'a>(inputs: &'a Inputs<'_>, place: usize) -> Result<&'a crate::models::EdgeInputs, ModelError> {
    let edges = &graphs(inputs)?.edges;
    let absent = || ModelError::Inputs(format!("{} edge types, not {}", place + 1, edges.len()));
    let found = edges.get(place).ok_or_else(absent)?;
    let (index, mask) = (&found.edge_index, &found.mask);
    // Some processors leave out the one or the other.
    if index.size() != [2, mask.numel() as i64] {
        let reason = format!("edges and masks of each sample: {:?} and {:?}", index.size(), mask.size());
        return Err(ModelError::Inputs(reason));
    }
    Ok(found)
}
