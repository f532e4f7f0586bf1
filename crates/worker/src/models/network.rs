use expctl_record::{ModelKind, Settings};
use graph_loader::CellGraph;
use tch::{Tensor, nn};

use super::array::{Mlp, MlpConfig, Transformer, TransformerConfig};
use super::dango::{Dango, DangoConfig};
use super::lazy::{Lazy, LazyConfig};
use super::torchscript::Script;
use crate::losses::Objective;

use super::{EdgeList, ModelError, ModelInputs};

/// What a forward pass yields.
#[derive(Debug)]
pub struct Output {
    /// Prediction for each sample, float32 `[B]`; of models over arrays a value for each class, `[B, classes]`.
    pub prediction: Tensor,
    /// DANGO's reconstruction loss, scalar; absent where it was not asked for, and with any other model.
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
    Script(Script),
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
        let (places, read): (Vec<usize>, Vec<_>) = read.unzip();
        let edges: Vec<EdgeList<'_>> =
            read.iter().map(|e| EdgeList { name: &e.name, sources: e.sources(), targets: e.targets() }).collect();
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
                let config = LazyConfig::of(model, genes);
                Ok(Self::Lazy(Box::new(Lazy::new(vs, &config, model.implementation, &edges, &places)?)))
            }
            ModelKind::Torchscript => {
                let edge_types: Vec<&str> = graph.edge_types.iter().map(|e| e.name.as_str()).collect();
                Ok(Self::Script(Script::load(&model.path, &model.inputs, &edge_types, vs)?))
            }
            ModelKind::Mlp | ModelKind::Transformer => Err(misfit(model.kind, "samples of a graph")),
        }
    }

    /// Build the model of `settings` over rows of `genes` values, to `classes` classes; its parameters go into `vs`, drawn from
    /// libtorch's generator.
    ///
    /// # Errors
    /// A size is not possible, or the model does not read arrays.
    pub fn of_array(settings: &Settings, genes: u64, classes: u64, vs: &nn::Path) -> Result<Self, ModelError> {
        let model = &settings.model;
        let (genes, classes) = (genes as i64, classes as i64);
        match model.kind {
            ModelKind::Mlp => Ok(Self::Mlp(Mlp::new(vs, &MlpConfig::of(model, genes, classes))?)),
            ModelKind::Transformer => {
                let config = TransformerConfig::of(model, genes, classes);
                Ok(Self::Transformer(Box::new(Transformer::new(vs, &config)?)))
            }
            ModelKind::Dango | ModelKind::Lazy | ModelKind::Torchscript => Err(misfit(model.kind, "rows of an array")),
        }
    }

    /// Whether some parameters get no gradient from what `objective` makes small.
    pub fn leaves_out(&self, objective: &Objective) -> bool {
        match self {
            // Without reconstruction its heads get none.
            Self::Dango(_) => !objective.reconstructs(),
            Self::Lazy(model) => model.leaves_out(),
            // Nobody knows what it does.
            Self::Script(_) => true,
            Self::Mlp(_) | Self::Transformer(_) => false,
        }
    }

    /// Whether the model reads the graph of each sample, or the edges that it lacks, from the device.
    pub fn reads_graphs(settings: &Settings) -> bool {
        let model = &settings.model;
        match model.kind {
            ModelKind::Dango | ModelKind::Mlp | ModelKind::Transformer => false,
            // On the host nothing is copied for it.
            ModelKind::Lazy => true,
            ModelKind::Torchscript => model.inputs.iter().any(|i| i == "gene_mask" || i.starts_with("edge_")),
        }
    }

    /// The most tokens of a row that the model reads; none of a model that reads something else.
    pub fn token_limit(settings: &Settings) -> Option<usize> {
        (settings.model.kind == ModelKind::Transformer).then_some(settings.model.tokens as usize)
    }

    /// Whether the next forward passes are of training, or of validation. Only modules from files tell one from the other.
    ///
    /// # Errors
    /// libtorch refuses.
    pub fn set_training(&mut self, training: bool) -> Result<(), ModelError> {
        match self {
            Self::Dango(_) | Self::Lazy(_) | Self::Mlp(_) | Self::Transformer(_) => Ok(()),
            Self::Script(model) => model.set_training(training),
        }
    }

    /// Predictions for a batch. `reconstruct` asks for DANGO's reconstruction loss.
    ///
    /// # Errors
    /// The batch does not have what the model reads, or libtorch refuses.
    pub fn forward(&self, inputs: &ModelInputs<'_>, reconstruct: bool) -> Result<Output, ModelError> {
        match (self, inputs) {
            (Self::Dango(model), ModelInputs::Samples(inputs)) => {
                model.forward(&inputs.genes, &inputs.gene_sample, inputs.batch_size, reconstruct)
            }
            (Self::Lazy(model), ModelInputs::Samples(inputs)) => model.forward(inputs),
            (Self::Script(model), ModelInputs::Samples(inputs)) => model.forward(inputs),
            (Self::Mlp(model), ModelInputs::Rows(inputs)) => model.forward(inputs),
            (Self::Transformer(model), ModelInputs::Rows(inputs)) => model.forward(inputs),
            (Self::Dango(_) | Self::Lazy(_) | Self::Script(_), ModelInputs::Rows(_)) => {
                Err(ModelError::Inputs("samples of a graph, not rows of an array".to_owned()))
            }
            (Self::Mlp(_) | Self::Transformer(_), ModelInputs::Samples(_)) => {
                Err(ModelError::Inputs("rows of an array, not samples of a graph".to_owned()))
            }
        }
    }
}

fn misfit(kind: ModelKind, found: &str) -> ModelError {
    ModelError::Inputs(format!("model `{}` does not read {found}", kind.name()))
}
