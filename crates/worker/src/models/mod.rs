//! The models that a trial can train, and what they read of a batch.

use expctl_settings::{ModelKind, Settings};
use graph_loader::{CellGraph, EdgeType};
use tch::{Device, TchError, Tensor, nn};

use crate::models::array::{Mlp, MlpConfig, Transformer, TransformerConfig};
use crate::models::dango::{Dango, DangoConfig};
use crate::models::lazy::{Lazy, LazyConfig};
use crate::models::torchscript::ScriptModel;

pub mod array;
pub mod dango;
mod error;
mod inputs;
pub(crate) mod layers;
pub mod lazy;
pub mod torchscript;

pub use error::{EdgeListError, InputError, ModelError, PinnedCopyError, SizeError};
pub use inputs::{
    DirectBuilder, EdgeInputs, GraphInputs, ModelBatch, ModelInputs, NodeGenes, RemovedInputs, SampleInputs,
    StepContext, TensorBuilder,
};
pub(crate) use inputs::{build_tensor, copy_to_device};

/// Output of a forward pass.
#[derive(Debug)]
pub struct ModelOutput {
    /// Prediction for each sample, float32 `[B]`; for models over arrays a value for each class, `[B, classes]`.
    pub prediction: Tensor,
    /// DANGO's reconstruction loss, scalar; `None` where it was not asked for, and with any other model.
    pub reconstruction: Option<Tensor>,
}

/// The model of a trial.
#[derive(Debug)]
pub enum Network {
    /// DANGO.
    Dango(Dango),
    /// The lazy model.
    Lazy(Box<Lazy>),
    /// A TorchScript module from a file.
    Script(ScriptModel),
    /// Multi-layer perceptron over rows of an array.
    Mlp(Mlp),
    /// Transformer over rows of an array.
    Transformer(Box<Transformer>),
}

impl Network {
    /// Build the model of `settings` over `graph`; its parameters go into `vs`, drawn from libtorch's generator.
    ///
    /// # Errors
    /// A size is not possible, a file cannot be read, or the model does not read graphs.
    pub fn new(settings: &Settings, graph: &CellGraph, vs: &nn::Path) -> Result<Self, ModelError> {
        let model = &settings.model;
        let read = graph.edge_types.iter().enumerate().filter(|(_, e)| model.edge_types.contains(&e.name));
        let (indices, read): (Vec<usize>, Vec<_>) = read.unzip();
        let edges: Vec<EdgeList<'_>> = read.into_iter().map(EdgeList::from).collect();
        let genes = graph.num_genes() as i64;
        match model.kind {
            ModelKind::Dango => {
                let config = DangoConfig {
                    hidden: i64::from(model.hidden),
                    heads: i64::from(model.heads),
                    layers: i64::from(model.layers),
                    ..DangoConfig::published(genes)
                };
                Ok(Self::Dango(Dango::new(vs, &config, &edges)?))
            }
            ModelKind::Lazy => {
                let config = LazyConfig::from_model(model, genes);
                Ok(Self::Lazy(Box::new(Lazy::new(vs, &config, model.implementation, &edges, &indices)?)))
            }
            ModelKind::Torchscript => {
                let edge_types: Vec<&str> = graph.edge_types.iter().map(|e| e.name.as_str()).collect();
                Ok(Self::Script(ScriptModel::load(&model.path, &model.inputs, &edge_types, vs)?))
            }
            ModelKind::Mlp | ModelKind::Transformer => Err(wrong_data(model.kind, "samples of a graph")),
        }
    }

    /// Build the model of `settings` over rows of `genes` values, to `classes` classes; its parameters go into `vs`, drawn from
    /// libtorch's generator.
    ///
    /// # Errors
    /// A size is not possible, or the model does not read arrays.
    pub fn new_array(settings: &Settings, genes: u64, classes: u64, vs: &nn::Path) -> Result<Self, ModelError> {
        let model = &settings.model;
        let (genes, classes) = (genes as i64, classes as i64);
        match model.kind {
            ModelKind::Mlp => Ok(Self::Mlp(Mlp::new(vs, &MlpConfig::from_model(model, genes, classes))?)),
            ModelKind::Transformer => {
                let config = TransformerConfig::from_model(model, genes, classes);
                Ok(Self::Transformer(Box::new(Transformer::new(vs, &config)?)))
            }
            ModelKind::Dango | ModelKind::Lazy | ModelKind::Torchscript => {
                Err(wrong_data(model.kind, "rows of an array"))
            }
        }
    }

    /// Whether some parameters get no gradient, where the loss has a reconstruction term or not.
    pub fn has_unused_parameters(&self, reconstructs: bool) -> bool {
        match self {
            // Without the term the reconstruction heads get none.
            Self::Dango(_) => !reconstructs,
            Self::Lazy(model) => model.has_unused_parameters(),
            // A module from a file may leave out any.
            Self::Script(_) => true,
            Self::Mlp(_) | Self::Transformer(_) => false,
        }
    }

    /// Whether the model reads the graph of each sample, or the edges that it lacks, from the device.
    pub fn reads_graphs(settings: &Settings) -> bool {
        let model = &settings.model;
        match model.kind {
            ModelKind::Dango | ModelKind::Mlp | ModelKind::Transformer => false,
            // On the host this copies nothing.
            ModelKind::Lazy => true,
            ModelKind::Torchscript => model.inputs.iter().any(|i| i == "gene_mask" || i.starts_with("edge_")),
        }
    }

    /// Maximum number of tokens of a row that the model reads; `None` for a model that reads no tokens.
    pub fn max_tokens(settings: &Settings) -> Option<usize> {
        (settings.model.kind == ModelKind::Transformer).then_some(settings.model.tokens as usize)
    }

    /// Set the mode of the next forward passes: training or validation. Only modules from files distinguish them.
    ///
    /// # Errors
    /// libtorch fails.
    pub fn set_training(&mut self, training: bool) -> Result<(), ModelError> {
        match self {
            Self::Dango(_) | Self::Lazy(_) | Self::Mlp(_) | Self::Transformer(_) => Ok(()),
            Self::Script(model) => model.set_training(training),
        }
    }

    /// Predictions for a batch. `reconstruct` asks for DANGO's reconstruction loss.
    ///
    /// # Errors
    /// The batch does not have what the model reads, or libtorch fails.
    pub fn forward(&self, inputs: &ModelInputs<'_>, reconstruct: bool) -> Result<ModelOutput, ModelError> {
        match (self, inputs) {
            (Self::Dango(model), ModelInputs::Samples(inputs)) => {
                model.forward(&inputs.genes, &inputs.gene_sample, inputs.batch_size, reconstruct)
            }
            (Self::Lazy(model), ModelInputs::Samples(inputs)) => model.forward(inputs),
            (Self::Script(model), ModelInputs::Samples(inputs)) => model.forward(inputs),
            (Self::Mlp(model), ModelInputs::Rows(inputs)) => model.forward(inputs),
            (Self::Transformer(model), ModelInputs::Rows(inputs)) => model.forward(inputs),
            (Self::Dango(_) | Self::Lazy(_) | Self::Script(_), ModelInputs::Rows(_)) => {
                Err(InputError::NoSamples.into())
            }
            (Self::Mlp(_) | Self::Transformer(_), ModelInputs::Samples(_)) => Err(InputError::NoRows.into()),
        }
    }
}

fn wrong_data(kind: ModelKind, found: &'static str) -> ModelError {
    InputError::Data { model: kind.name(), found }.into()
}

/// One edge type: edge i leads from `sources[i]` to `targets[i]`, genes counted from 0.
#[derive(Clone, Copy, Debug)]
pub struct EdgeList<'a> {
    /// Name, for example `string12_0_fusion`.
    pub name: &'a str,
    /// Source genes.
    pub sources: &'a [i64],
    /// Target genes.
    pub targets: &'a [i64],
}

impl<'a> From<&'a EdgeType> for EdgeList<'a> {
    fn from(edges: &'a EdgeType) -> Self {
        Self { name: &edges.name, sources: edges.sources(), targets: edges.targets() }
    }
}

impl EdgeList<'_> {
    /// Check that every edge has two ends among `genes` genes.
    fn check_ends(&self, genes: i64) -> Result<(), ModelError> {
        let (sources, targets) = (self.sources.len(), self.targets.len());
        if sources != targets {
            return Err(self.defect(EdgeListError::Ends { sources, targets }));
        }
        match self.sources.iter().chain(self.targets).find(|gene| !(0..genes).contains(*gene)) {
            Some(&gene) => Err(self.defect(EdgeListError::Gene { gene, genes })),
            None => Ok(()),
        }
    }

    fn defect(&self, reason: EdgeListError) -> ModelError {
        ModelError::Edges { name: self.name.to_owned(), reason }
    }
}

/// All trained parameters with their names, in the order of the names: the same order on every rank.
pub fn named_parameters(vs: &nn::VarStore) -> Vec<(String, Tensor)> {
    let mut named: Vec<_> = vs.variables().into_iter().filter(|(_, tensor)| tensor.requires_grad()).collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    named
}

/// All tensors that the model computes with, by name, in the order of the names: trained parameters, other parameters, and buffers such as
/// the statistics of a normalisation.
pub fn named_variables(vs: &nn::VarStore) -> Vec<(String, Tensor)> {
    let mut named: Vec<_> = vs.variables().into_iter().collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    named
}

/// blake3, in hexadecimal, over names, shapes and bytes of parameters: equal if and only if every bit is equal.
///
/// # Errors
/// A parameter cannot be copied to the host.
pub fn parameters_digest(parameters: &[(String, Tensor)]) -> Result<String, TchError> {
    let mut hasher = blake3::Hasher::new();
    let mut bytes = Vec::new();
    for (name, tensor) in parameters {
        let count = tensor.numel();
        bytes.resize(count * tensor.kind().elt_size_in_bytes(), 0);
        tensor.detach().f_to_device(Device::Cpu)?.f_contiguous()?.f_copy_data_u8(&mut bytes, count)?;
        hasher.update(format!("{name} {:?} {:?}\n", tensor.kind(), tensor.size()).as_bytes()).update(&bytes);
    }
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_changes_the_digest() {
        let tensor = Tensor::from_slice(&[1.0f32, 0.0]);
        let digest = |t: &Tensor| parameters_digest(&[("p".to_owned(), t.shallow_clone())]).unwrap();
        let before = digest(&tensor);
        assert_eq!(before, digest(&tensor.copy()));
        assert_ne!(before, digest(&Tensor::from_slice(&[1.0f32, -0.0])));
        assert_ne!(before, digest(&tensor.view([2, 1])));
    }
}
