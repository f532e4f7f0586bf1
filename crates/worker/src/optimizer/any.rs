use std::collections::BTreeMap;

use expctl_record::Train;
use tch::nn::{self, OptimizerConfig};
use tch::{TchError, Tensor};

use super::{AdamW, Clipped, clip_grad_norm, clip_there};
use crate::device::DeviceError;
use crate::models::named_parameters;

/// The optimizer of a trial.
#[derive(Debug)]
pub struct Optimizer {
    /// libtorch's SGD without momentum, which has no state. With AdamW it only looks after the gradients.
    sgd: nn::Optimizer,
    adamw: Option<AdamW>,
    parameters: Vec<(String, Tensor)>,
}

impl Optimizer {
    /// As `train` says, for the parameters in `vs`.
    pub fn new(train: &Train, vs: &nn::VarStore) -> Result<Self, TchError> {
        let sgd = nn::Sgd { wd: train.weight_decay, ..nn::Sgd::default() }.build(vs, train.learning_rate)?;
        let parameters = named_parameters(vs);
        let own = || parameters.iter().map(|(name, tensor)| (name.clone(), tensor.shallow_clone())).collect();
        let adamw = match train.optimizer {
            expctl_record::Optimizer::Adamw => Some(AdamW::new(own(), train.learning_rate, train.weight_decay)),
            expctl_record::Optimizer::Sgd => None,
        };
        Ok(Self { sgd, adamw, parameters })
    }

    /// Scale the gradients so that their norm is at most `max`; returns what it was. See [`clip_grad_norm`].
    ///
    /// # Errors
    /// libtorch refuses.
    pub fn clip_grad_norm(&self, max: f64) -> Result<f64, DeviceError> {
        clip_grad_norm(&self.parameters, max)
    }

    /// The same without waiting for the device; see [`clip_there()`]. None where the host has to decide about the step, as with SGD,
    /// and without gradients.
    ///
    /// # Errors
    /// libtorch refuses.
    pub fn clip_there(&self, max: f64) -> Result<Option<Clipped>, DeviceError> {
        if self.adamw.is_some() { clip_there(&self.parameters, max) } else { Ok(None) }
    }

    /// The learning rate of the steps from here on.
    pub fn set_learning_rate(&mut self, rate: f64) {
        self.sgd.set_lr(rate);
        if let Some(adamw) = &mut self.adamw {
            adamw.set_learning_rate(rate);
        }
    }

    /// Step the parameters; none where `overflow`, a float32 scalar on their device, is not 0.
    ///
    /// # Errors
    /// libtorch refuses.
    pub fn step(&mut self, overflow: Option<&Tensor>) -> Result<(), DeviceError> {
        match &mut self.adamw {
            Some(adamw) => adamw.step(overflow),
            None => {
                self.sgd.step();
                Ok(())
            }
        }
    }

    /// Drop the gradients.
    pub fn zero_grad(&mut self) {
        self.sgd.zero_grad();
    }

    /// The state by name.
    pub fn state(&self) -> Vec<(String, Tensor)> {
        self.adamw.as_ref().map(AdamW::state).unwrap_or_default()
    }

    /// Take over a state.
    ///
    /// # Errors
    /// A tensor has another shape; the message names it.
    pub fn restore(&mut self, state: &BTreeMap<String, Tensor>) -> Result<(), String> {
        self.adamw.as_mut().map_or(Ok(()), |adamw| adamw.restore(state))
    }
}
