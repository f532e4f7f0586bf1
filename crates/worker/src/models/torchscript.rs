use std::cell::RefCell;
use std::path::Path;

use expctl_dist::{DistError, ScriptInput, ScriptModule};
use tch::{Kind, Tensor, nn};

use super::arguments::Argument;
use crate::models::{Inputs, ModelError, Output};

/// A TorchScript module as a model: its `forward` takes what `model.inputs` lists, and returns the predictions, float32
/// `[B]` or `[B, 1]`.
#[derive(Debug)]
pub struct Script {
    path: String,
    arguments: Vec<Argument>,
    /// Its forward pass changes its own buffers.
    module: RefCell<ScriptModule>,
}

impl Script {
    /// The module in the file `path`, in the mode for training; its parameters and buffers go into `vs`. `inputs` is
    /// `model.inputs`; `edge_types` are those of the graph, in its order.
    ///
    /// # Errors
    /// The file holds no module, its `forward` takes something else, or it has no parameter to train.
    pub fn load(path: &str, inputs: &[String], edge_types: &[&str], vs: &nn::Path) -> Result<Self, ModelError> {
        let refuse = |reason: String| ModelError::Module { path: path.to_owned(), reason };
        let torch = |error: DistError| refuse(error.to_string());
        let mut arguments = Vec::with_capacity(inputs.len());
        for input in inputs {
            let known = Argument::named(input, edge_types);
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
            keep(vs, &name, tensor, trained);
        }
        for (name, tensor) in module.buffers().map_err(torch)? {
            keep(vs, &name, tensor, false);
        }
        module.set_training(true).map_err(torch)?;
        Ok(Self { path: path.to_owned(), arguments, module: RefCell::new(module) })
    }

    /// For training, or for validation.
    ///
    /// # Errors
    /// libtorch refuses.
    pub fn set_training(&mut self, training: bool) -> Result<(), ModelError> {
        let set = self.module.get_mut().set_training(training);
        set.map_err(|error| ModelError::Module { path: self.path.clone(), reason: error.to_string() })
    }

    /// Predictions for a batch.
    ///
    /// # Errors
    /// The batch lacks an input, the module fails, or it returns something else than a prediction for each sample.
    pub fn forward(&self, inputs: &Inputs<'_>) -> Result<Output, ModelError> {
        let refuse = |reason: String| ModelError::Module { path: self.path.clone(), reason };
        let values = self.arguments.iter().map(|argument| argument.of(inputs));
        let values = values.collect::<Result<Vec<ScriptInput<'_>>, _>>()?;
        let output = self.module.borrow_mut().forward(&values).map_err(|error| refuse(error.to_string()))?;
        let (size, samples) = (output.size(), inputs.batch_size);
        // Under mixed precision it is bfloat16.
        if !output.is_floating_point() || (size != [samples] && size != [samples, 1]) {
            let (kind, wanted) = (output.kind(), format!("Float [{samples}] or [{samples}, 1]"));
            return Err(refuse(format!("its forward returns {kind:?} {size:?} for {samples} samples, not {wanted}")));
        }
        Ok(Output { prediction: output.f_view([samples])?.f_to_kind(Kind::Float)?, reconstruction: None })
    }
}

/// Put a tensor into `vs` under `name`, part by part: a `VarStore` allows no points within a name.
fn keep(vs: &nn::Path, name: &str, tensor: Tensor, trained: bool) {
    let mut parts: Vec<&str> = name.split('.').collect();
    let last = parts.pop().unwrap_or_default();
    let mut folder = None;
    for part in parts {
        folder = Some(folder.as_ref().unwrap_or(vs).sub(part));
    }
    let _ = folder.as_ref().unwrap_or(vs).add(last, tensor, trained);
}
