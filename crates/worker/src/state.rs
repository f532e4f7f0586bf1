//! A state: all that later steps depend on, as tensors by name; written to and read from a file.

use std::collections::BTreeMap;
use std::path::Path;

use expctl_ledger::LedgerError;
use tch::{Device, Kind, TchError, Tensor};

/// Why a state cannot be restored, or must not be written.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A parameter of the model is not in the state.
    #[error("parameter {name} is missing")]
    MissingParameter {
        /// Name of the parameter.
        name: String,
    },
    /// A parameter has another shape, or another dtype, than in the model.
    #[error("parameter {name} has another shape: {found:?}, and the model has {expected:?}")]
    ParameterShape {
        /// Name of the parameter.
        name: String,
        /// Its shape in the state.
        found: Vec<i64>,
        /// Its shape in the model.
        expected: Vec<i64>,
    },
    /// The moments of a parameter have another shape than the parameter.
    #[error("the optimizer's state of {name} has another shape")]
    MomentShape {
        /// Name of the parameter.
        name: String,
    },
    /// The moments of a parameter cannot be converted or copied.
    #[error("the optimizer's state of {name}: {source}")]
    Moments {
        /// Name of the parameter.
        name: String,
        /// The error of libtorch.
        source: TchError,
    },
    /// A tensor has another number of entries than expected.
    #[error("{name} has another shape")]
    TensorShape {
        /// Name of the tensor.
        name: String,
    },
    /// A tensor cannot be read.
    #[error("{name}: {source}")]
    Tensor {
        /// Name of the tensor.
        name: String,
        /// The error of libtorch.
        source: TchError,
    },
    /// A replay buffer has more entries than the one of this trial.
    #[error("{name} is of another size: {found} predictions, and train.sinkhorn_buffer is {capacity}")]
    BufferSize {
        /// Name of the buffer.
        name: String,
        /// Its predictions.
        found: usize,
        /// Most predictions that this trial's buffer holds.
        capacity: usize,
    },
    /// The position or the number of draws of a replay buffer is negative.
    #[error("{name}/place is negative: {next}, {draws}")]
    NegativePosition {
        /// Name of the buffer.
        name: String,
        /// Position of the next entry.
        next: i64,
        /// Draws so far.
        draws: i64,
    },
    /// The position of a replay buffer lies behind its entries.
    #[error("{name}/place is {next}, and there are {found} predictions")]
    PositionOutside {
        /// Name of the buffer.
        name: String,
        /// Position of the next entry.
        next: usize,
        /// Predictions in the buffer.
        found: usize,
    },
    /// The file lacks a parameter of this model.
    #[error("it is of another model: parameter {name} {shape:?} is not in it, but {others} others are")]
    NotInFile {
        /// Name of the parameter.
        name: String,
        /// Its shape in the model.
        shape: Vec<i64>,
        /// Number of tensors in the file.
        others: usize,
    },
    /// A parameter in the file has another dtype or shape.
    #[error("it is of another model: parameter {name} is {found} in it, here {expected}")]
    OtherModel {
        /// Name of the parameter.
        name: String,
        /// dtype and shape in the file.
        found: String,
        /// dtype and shape in the model.
        expected: String,
    },
    /// The file has a parameter that this model lacks.
    #[error("it is of another model: parameter {name} {shape:?} is in it, and not in this one")]
    NotInModel {
        /// Name of the parameter.
        name: String,
        /// Its shape in the file.
        shape: Vec<i64>,
    },
    /// The file is a checkpoint from within an epoch.
    #[error("it is a state in the middle of an epoch: give a last.safetensors or a best.safetensors")]
    MidEpoch,
    /// A tensor that is about to be written has infinite or NaN entries.
    #[error(
        "{name} has values that are not finite, and is not kept: try a smaller train.learning_rate, or clip gradients \
         with train.clip_norm"
    )]
    NotFinite {
        /// Name of the tensor.
        name: String,
    },
    /// An operation of libtorch failed.
    #[error("{0}")]
    Torch(#[from] TchError),
}

/// Write tensors by name to `path`, in the safetensors format.
///
/// # Errors
/// The file cannot be written.
pub fn write_state(path: &Path, tensors: &[(String, Tensor)]) -> Result<(), LedgerError> {
    let on_host: Vec<(&str, Tensor)> =
        tensors.iter().map(|(n, t)| (n.as_str(), t.detach().to_device(Device::Cpu).contiguous())).collect();
    Tensor::write_safetensors(&on_host, path).map_err(|e| {
        let source = std::io::Error::other(e.to_string());
        LedgerError::Io { action: "write", path: path.to_owned(), source }
    })
}

/// Read the tensors in `path`, by name.
///
/// # Errors
/// The file cannot be read, or is not in the safetensors format.
pub fn read_state(path: &Path) -> Result<BTreeMap<String, Tensor>, LedgerError> {
    let tensors = Tensor::read_safetensors(path)
        .map_err(|e| LedgerError::Checkpoint { path: path.to_owned(), reason: e.to_string() })?;
    Ok(tensors.into_iter().collect())
}

/// Check that all floating-point tensors are finite, before they are written to a file. Tensors of a schedule are left out: its best
/// figure so far may be infinite. Waits for a device once, however many tensors it has.
///
/// # Errors
/// [`StateError::NotFinite`] names the first tensor that is not finite; or libtorch fails.
pub fn all_finite(tensors: &[(String, Tensor)]) -> Result<(), StateError> {
    let mut of_devices: Vec<DeviceExtremes> = Vec::new();
    for (index, (name, tensor)) in tensors.iter().enumerate() {
        if name.starts_with("schedule/") || !tensor.is_floating_point() || tensor.numel() == 0 {
            continue;
        }
        // Minimum and maximum are NaN where any entry is.
        let (values, device) = (tensor.f_detach()?, tensor.device());
        let extremes = Tensor::f_stack(&[values.f_min()?, values.f_max()?], 0)?.f_to_kind(Kind::Double)?;
        match of_devices.iter_mut().find(|checks| checks.device == device) {
            Some(checks) => checks.push(index, extremes),
            None => of_devices.push(DeviceExtremes { device, indices: vec![index], extremes: vec![extremes] }),
        }
    }
    let mut first: Option<usize> = None;
    for checks in &of_devices {
        first = first.into_iter().chain(checks.first_not_finite()?).min();
    }
    match first.and_then(|index| tensors.get(index)) {
        None => Ok(()),
        Some((name, _)) => Err(StateError::NotFinite { name: name.clone() }),
    }
}

/// The smallest and the largest entry of each tensor on one device.
struct DeviceExtremes {
    device: Device,
    /// Indices of the tensors.
    indices: Vec<usize>,
    /// float64 `[2]` each.
    extremes: Vec<Tensor>,
}

impl DeviceExtremes {
    fn push(&mut self, index: usize, extremes: Tensor) {
        self.indices.push(index);
        self.extremes.push(extremes);
    }

    /// The first tensor with an entry that is not finite.
    fn first_not_finite(&self) -> Result<Option<usize>, StateError> {
        let values = Vec::<f64>::try_from(Tensor::f_cat(&self.extremes, 0)?.f_to_device(Device::Cpu)?)?;
        let wrong = values.chunks(2).position(|extremes| !extremes.iter().all(|value| value.is_finite()));
        Ok(wrong.and_then(|position| self.indices.get(position).copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tensor_is_named() {
        let named = |name: &str, values: &[f32]| (name.to_owned(), Tensor::from_slice(values));
        let steps = ("adamw/steps/a".to_owned(), Tensor::from_slice(&[3i64]));
        let best = named("schedule/plateau/loss", &[f32::INFINITY]);
        let empty = named("sinkhorn/0/labels", &[]);
        let fine = [named("model/a", &[1.0, -3e38]), steps, best, empty];
        all_finite(&fine).unwrap();
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = all_finite(&[named("model/a", &[0.0]), named("model/b", &[1.0, wrong, 2.0])]).unwrap_err();
            assert!(error.to_string().starts_with("model/b has values that are not finite"), "{error}");
            let both = all_finite(&[named("model/b", &[wrong]), named("model/a", &[0.0]), named("model/c", &[wrong])]);
            assert!(both.unwrap_err().to_string().starts_with("model/b has values"), "the first is named");
        }
    }
}
