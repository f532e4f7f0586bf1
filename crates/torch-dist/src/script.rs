//! `ScriptModule` loads, runs, moves and saves a model that was exported from Python as TorchScript.

use std::path::Path;

use cxx::UniquePtr;
use tch::{Device, Tensor};

use crate::DistError;
use crate::ffi::bridge;
use crate::group::address;

/// A TorchScript module, with what tch does not show: its buffers, and the arguments of its `forward`.
pub struct ScriptModule {
    handle: UniquePtr<bridge::ScriptHandle>,
}

impl std::fmt::Debug for ScriptModule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptModule").finish_non_exhaustive()
    }
}

/// An argument of a module's `forward`.
#[derive(Clone, Copy, Debug)]
pub enum ScriptInput<'a> {
    /// A tensor.
    Tensor(&'a Tensor),
    /// A number.
    Int(i64),
}

impl ScriptModule {
    /// Read the module in the file `path`.
    ///
    /// # Errors
    /// The file is missing, or is no module.
    pub fn load(path: &Path) -> Result<Self, DistError> {
        bridge::quiet();
        let handle = bridge::load_script(&path.to_string_lossy()).map_err(DistError::torch("load a module"))?;
        Ok(Self { handle })
    }

    /// A module with these parameters (their values are copied) whose methods are `source`, in the language of TorchScript.
    ///
    /// # Errors
    /// The source does not compile.
    pub fn define(parameters: &[(String, Tensor)], source: &str) -> Result<Self, DistError> {
        bridge::quiet();
        let names: Vec<String> = parameters.iter().map(|(name, _)| name.clone()).collect();
        let addresses: Vec<usize> = parameters.iter().map(|(_, tensor)| address(tensor)).collect();
        let handle = bridge::define_script(&names, &addresses, source).map_err(DistError::torch("compile a module"))?;
        Ok(Self { handle })
    }

    /// Write the module to a file, as `torch.jit.save` does.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), DistError> {
        self.handle.save(&path.to_string_lossy()).map_err(DistError::torch("save a module"))
    }

    /// Parameters by name, those of submodules as `submodule.name`. They share their memory with the module.
    ///
    /// # Errors
    /// libtorch fails.
    pub fn parameters(&self) -> Result<Vec<(String, Tensor)>, DistError> {
        Ok(self.all_tensors()?.0)
    }

    /// Buffers, such as the statistics of a batch normalisation, by name. They share their memory with the module.
    ///
    /// # Errors
    /// libtorch fails.
    pub fn buffers(&self) -> Result<Vec<(String, Tensor)>, DistError> {
        Ok(self.all_tensors()?.1)
    }

    #[expect(clippy::type_complexity, reason = "two lists of the same type")]
    fn all_tensors(&self) -> Result<(Vec<(String, Tensor)>, Vec<(String, Tensor)>), DistError> {
        let fail = || DistError::torch("look into a module");
        let parameters = self.handle.parameter_names().map_err(fail())?;
        let buffers = self.handle.buffer_names().map_err(fail())?;
        let addresses = self.handle.tensors().map_err(fail())?;
        let (count, names) = (parameters.len(), parameters.into_iter().chain(buffers));
        // SAFETY: the bridge returns new `at::Tensor`s that nothing else refers to; tch deletes them.
        let tensors = addresses.into_iter().map(|at| unsafe { Tensor::from_ptr(at as *mut _) });
        let mut all: Vec<(String, Tensor)> = names.zip(tensors).collect();
        let rest = all.split_off(count.min(all.len()));
        Ok((all, rest))
    }

    /// Names and types of the arguments of `forward`, and the number of required ones.
    ///
    /// # Errors
    /// The module has no `forward`.
    pub fn arguments(&self) -> Result<(Vec<(String, String)>, usize), DistError> {
        let fail = || DistError::torch("look at forward");
        let names = self.handle.argument_names().map_err(fail())?;
        let types = self.handle.argument_types().map_err(fail())?;
        Ok((names.into_iter().zip(types).collect(), self.handle.required_arguments().map_err(fail())?))
    }

    /// Move parameters and buffers to `device`: a GPU, or the host, where they are after loading. Tensors that were returned before stay where
    /// they were.
    ///
    /// # Errors
    /// The GPU does not exist, or has no memory.
    pub fn to_device(&mut self, device: Device) -> Result<(), DistError> {
        let Device::Cuda(index) = device else { return Ok(()) };
        self.handle.pin_mut().to_gpu(index as i32).map_err(DistError::torch("bring a module to a GPU"))
    }

    /// Set `self.training`, in all submodules.
    ///
    /// # Errors
    /// libtorch fails.
    pub fn set_training(&mut self, training: bool) -> Result<(), DistError> {
        self.handle.pin_mut().set_training(training).map_err(DistError::torch("set the mode of a module"))
    }

    /// Call `forward`.
    ///
    /// # Errors
    /// The module refuses these inputs, fails, or does not return a tensor.
    pub fn forward(&mut self, inputs: &[ScriptInput<'_>]) -> Result<Tensor, DistError> {
        let arguments: Vec<bridge::ScriptArgument> = inputs
            .iter()
            .map(|input| match input {
                ScriptInput::Tensor(tensor) => bridge::ScriptArgument { tensor: address(tensor), number: 0 },
                ScriptInput::Int(number) => bridge::ScriptArgument { tensor: 0, number: *number },
            })
            .collect();
        let output = self.handle.pin_mut().forward(&arguments).map_err(DistError::torch("forward"))?;
        // SAFETY: the bridge returns a new `at::Tensor` that nothing else refers to; tch deletes it.
        Ok(unsafe { Tensor::from_ptr(output as *mut _) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind};

    #[test]
    fn a_module_is_written_read_and_trained() {
        let weight = Tensor::from_slice(&[2.0f32, 3.0]);
        let source = "def forward(self, x, n: int):\n    return x * self.weight + n\n";
        let defined = ScriptModule::define(&[("weight".to_owned(), weight)], source).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("module.pt");
        defined.save(&path).unwrap();
        let mut module = ScriptModule::load(&path).unwrap();
        let parameters = module.parameters().unwrap();
        assert_eq!(parameters.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["weight"]);
        assert!(module.buffers().unwrap().is_empty());
        let (arguments, required) = module.arguments().unwrap();
        assert_eq!((arguments[0].1.as_str(), arguments[1].1.as_str(), required), ("Tensor", "int", 2));
        let x = Tensor::ones([2], (Kind::Float, Device::Cpu));
        let inputs = [ScriptInput::Tensor(&x), ScriptInput::Int(1)];
        module.forward(&inputs).unwrap().sum(Kind::Float).backward();
        assert_eq!(Vec::<f32>::try_from(parameters[0].1.grad()).unwrap(), [1.0, 1.0]);
        // The module computes with the tensors that a step changes.
        tch::no_grad(|| _ = parameters[0].1.shallow_clone().fill_(5.0));
        assert_eq!(Vec::<f32>::try_from(module.forward(&inputs).unwrap()).unwrap(), [6.0, 6.0]);
        assert!(module.forward(&inputs[..1]).unwrap_err().to_string().contains('n'));
    }

    #[test]
    fn what_is_no_module_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text.pt");
        std::fs::write(&path, "no module").unwrap();
        assert!(ScriptModule::load(&path).is_err());
        assert!(ScriptModule::load(&dir.path().join("absent.pt")).is_err());
        assert!(ScriptModule::define(&[], "def forward(self):\n    return self.absent\n").is_err());
    }
}
