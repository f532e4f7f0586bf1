use std::collections::BTreeMap;

use tch::{Tensor, no_grad};

use super::{TrainError, Trainer};
use crate::models::{ModelBatch, Network, named_variables};

impl Trainer {
    /// All that the model computes with, by name: what weights are.
    pub fn weights(&self) -> Vec<(String, Tensor)> {
        named_variables(&self.vs)
    }

    /// Whether the next forward passes are of training, or of validation.
    ///
    /// # Errors
    /// libtorch refuses.
    pub fn set_training(&mut self, training: bool) -> Result<(), TrainError> {
        Ok(self.network.set_training(training)?)
    }

    /// A forward pass that changes nothing, in front of the first step: a module from a file may not do what a model has to.
    ///
    /// # Errors
    /// It does not.
    pub fn try_forward(&mut self, batch: &impl ModelBatch, masks: &[Tensor]) -> Result<(), TrainError> {
        if !matches!(self.network, Network::Script(_)) {
            return Ok(());
        }
        self.network.set_training(false)?;
        let inputs = batch.inputs(masks, self.reads_graphs, self.device)?;
        no_grad(|| self.forward(&inputs, false))?;
        Ok(self.network.set_training(true)?)
    }

    /// Take over weights; optimizer and schedule stay as they are.
    ///
    /// # Errors
    /// Why they are those of another model.
    pub fn load_weights(&mut self, weights: &BTreeMap<String, Tensor>) -> Result<(), String> {
        for (name, mut tensor) in named_variables(&self.vs) {
            let Some(kept) = weights.get(&name) else { return Err(format!("parameter {name} is missing")) };
            no_grad(|| tensor.f_copy_(kept)).map_err(|e| e.to_string())?;
        }
        Ok(())
    }
}
