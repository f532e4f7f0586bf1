//! A module that the user brings: TorchScript from a file. Invariants: its parameters and buffers are in the `VarStore` under their own names,
//! in the memory that the module computes with; what does not fit is an error that names the file.

use std::cell::RefCell;
use std::path::Path;

use tch::{Kind, Tensor, nn};
use torch_dist::{DistError, ScriptInput, ScriptModule};

use crate::models::{EdgeInputs, GraphInputs, InputError, ModelError, ModelOutput, SampleInputs};

/// A TorchScript module as a model: its `forward` takes what `model.inputs` lists, and returns the predictions, float32
/// `[B]` or `[B, 1]`.
#[derive(Debug)]
pub struct ScriptModel {
    path: String,
    arguments: Vec<ForwardArgument>,
    /// In a cell, because a forward pass changes the buffers of the module.
    module: RefCell<ScriptModule>,
}

impl ScriptModel {
    /// Load the module in the file `path`, in training mode; its parameters and buffers go into `vs`. `inputs` is `model.inputs`; `edge_types`
    /// are those of the graph, in its order.
    ///
    /// # Errors
    /// The file is no module, its `forward` takes other arguments, or it has no parameter to train.
    pub fn load(path: &str, inputs: &[String], edge_types: &[&str], vs: &nn::Path) -> Result<Self, ModelError> {
        let refuse = |reason: String| ModelError::Module { path: path.to_owned(), reason };
        let torch = |error: DistError| refuse(error.to_string());
        let mut arguments = Vec::with_capacity(inputs.len());
        for input in inputs {
            let known = ForwardArgument::from_name(input, edge_types);
            arguments.push(known.ok_or_else(|| refuse(format!("model.inputs: there is no input `{input}`")))?);
        }
        let mut module = ScriptModule::load(Path::new(path)).map_err(torch)?;
        let (takes, required) = module.arguments().map_err(torch)?;
        let fits = takes.len() >= arguments.len()
            && required <= arguments.len()
            && takes.iter().zip(&arguments).all(|((_, of_type), argument)| of_type == argument.script_type());
        if !fits {
            let wanted = inputs.iter().zip(&arguments).map(|(name, of)| format!("{name}: {}", of.script_type()));
            let found = takes.iter().map(|(name, of_type)| format!("{name}: {of_type}"));
            let (wanted, found) = (wanted.collect::<Vec<_>>().join(", "), found.collect::<Vec<_>>().join(", "));
            return Err(refuse(format!("its forward takes ({found}), model.inputs gives ({wanted})")));
        }
        module.to_device(vs.device()).map_err(torch)?;
        let parameters = module.parameters().map_err(torch)?;
        if !parameters.iter().any(|(_, tensor)| tensor.requires_grad()) {
            return Err(refuse("it has no parameter that could be trained (requires_grad)".to_owned()));
        }
        if let Some((name, tensor)) = parameters.iter().find(|(_, tensor)| tensor.kind() != Kind::Float) {
            return Err(refuse(format!("its parameter {name} is {:?}, not float32", tensor.kind())));
        }
        for (name, tensor) in parameters {
            let trained = tensor.requires_grad();
            add_variable(vs, &name, tensor, trained);
        }
        for (name, tensor) in module.buffers().map_err(torch)? {
            add_variable(vs, &name, tensor, false);
        }
        module.set_training(true).map_err(torch)?;
        Ok(Self { path: path.to_owned(), arguments, module: RefCell::new(module) })
    }

    /// Set the mode: training or validation.
    ///
    /// # Errors
    /// libtorch fails.
    pub fn set_training(&mut self, training: bool) -> Result<(), ModelError> {
        let set = self.module.get_mut().set_training(training);
        set.map_err(|error| ModelError::Module { path: self.path.clone(), reason: error.to_string() })
    }

    /// Predictions for a batch.
    ///
    /// # Errors
    /// The batch lacks an input, the module fails, or its result is not one prediction for each sample.
    pub fn forward(&self, inputs: &SampleInputs<'_>) -> Result<ModelOutput, ModelError> {
        let refuse = |reason: String| ModelError::Module { path: self.path.clone(), reason };
        let values = self.arguments.iter().map(|argument| argument.value(inputs));
        let values = values.collect::<Result<Vec<ScriptInput<'_>>, _>>()?;
        let output = self.module.borrow_mut().forward(&values).map_err(|error| refuse(error.to_string()))?;
        let (size, samples) = (output.size(), inputs.batch_size);
        // Under mixed precision it is bfloat16.
        if !output.is_floating_point() || (size != [samples] && size != [samples, 1]) {
            let (kind, wanted) = (output.kind(), format!("Float [{samples}] or [{samples}, 1]"));
            return Err(refuse(format!("its forward returns {kind:?} {size:?} for {samples} samples, not {wanted}")));
        }
        Ok(ModelOutput { prediction: output.f_view([samples])?.f_to_kind(Kind::Float)?, reconstruction: None })
    }
}

/// Add a tensor to `vs` under `name`, as a path: a `VarStore` allows no dots within a name.
fn add_variable(vs: &nn::Path, name: &str, tensor: Tensor, trained: bool) {
    let mut folders: Vec<&str> = name.split('.').collect();
    let last = folders.pop().unwrap_or_default();
    let mut folder = None;
    for name in folders {
        folder = Some(folder.as_ref().unwrap_or(vs).sub(name));
    }
    let _ = folder.as_ref().unwrap_or(vs).add(last, tensor, trained);
}

/// An argument of the module's `forward`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ForwardArgument {
    Genes,
    GeneSample,
    GenePtr,
    BatchSize,
    GeneMask,
    /// By the index of the edge type in the graph.
    EdgeIndex(usize),
    /// By the index of the edge type in the graph.
    EdgeMask(usize),
}

impl ForwardArgument {
    /// The argument that `name` means in a graph of these edge types; `None` for an unknown name.
    fn from_name(name: &str, edge_types: &[&str]) -> Option<Self> {
        let index = |edge_type: &str| edge_types.iter().position(|known| *known == edge_type);
        if let Some(edge_type) = name.strip_prefix("edge_index.") {
            return index(edge_type).map(Self::EdgeIndex);
        }
        if let Some(edge_type) = name.strip_prefix("edge_mask.") {
            return index(edge_type).map(Self::EdgeMask);
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

    /// Name of its type in TorchScript.
    const fn script_type(&self) -> &'static str {
        match self {
            Self::BatchSize => "int",
            _ => "Tensor",
        }
    }

    /// Its value for a batch.
    ///
    /// # Errors
    /// The batch has no graphs, or not the edges of each sample.
    fn value<'a>(&self, inputs: &'a SampleInputs<'_>) -> Result<ScriptInput<'a>, ModelError> {
        let tensor = match self {
            Self::Genes => &inputs.genes,
            Self::GeneSample => &inputs.gene_sample,
            Self::GenePtr => &inputs.gene_ptr,
            Self::BatchSize => return Ok(ScriptInput::Int(inputs.batch_size)),
            Self::GeneMask => &graphs(inputs)?.kept,
            Self::EdgeIndex(index) => &edges(inputs, *index)?.edge_index,
            Self::EdgeMask(index) => &edges(inputs, *index)?.mask,
        };
        Ok(ScriptInput::Tensor(tensor))
    }
}

fn graphs<'a>(inputs: &'a SampleInputs<'_>) -> Result<&'a GraphInputs, ModelError> {
    inputs.graphs.as_ref().ok_or_else(|| InputError::NoGraphs.into())
}

fn edges<'a>(inputs: &'a SampleInputs<'_>, edge_type: usize) -> Result<&'a EdgeInputs, ModelError> {
    let edges = &graphs(inputs)?.edges;
    let absent = || InputError::EdgeTypes { expected: edge_type + 1, found: edges.len() };
    let found = edges.get(edge_type).ok_or_else(absent)?;
    let (index, mask) = (&found.edge_index, &found.mask);
    // Some processors leave out one of the two.
    if index.size() != [2, mask.numel() as i64] {
        return Err(
            InputError::EdgeMasks { of: "each sample".to_owned(), edges: index.size(), masks: mask.size() }.into()
        );
    }
    Ok(found)
}
