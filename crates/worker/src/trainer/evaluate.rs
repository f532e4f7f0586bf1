use graph_loader::Batch;
use tch::{Tensor, no_grad};

use super::{TrainError, Trainer};
use crate::models::ModelBatch;

impl Trainer {
    /// Predictions and labels of a batch, in its order and in the units of the labels; without gradients, and without a
    /// trace in what the loss remembers. `masks` are those that were made for it, if any.
    ///
    /// # Errors
    /// The batch does not have what the model reads, or libtorch refuses.
    pub fn evaluate(&self, batch: &Batch, masks: &[Tensor]) -> Result<(Vec<f32>, Vec<f32>), TrainError> {
        no_grad(|| {
            let inputs = batch.inputs(masks, self.reads_graphs, self.device)?;
            let output = self.forward(&inputs, false)?;
            Ok((self.labels.unscaled(&output.prediction)?, batch.common.labels.clone()))
        })
    }

    /// Loss of predictions alone, mean over all of them, in the units of training; `predictions` and `labels` are of one
    /// length and in the units of the labels. NaN without any.
    ///
    /// # Errors
    /// libtorch refuses.
    pub fn loss_of(&self, predictions: &[f32], labels: &[f32]) -> Result<f64, TrainError> {
        // In float64: over a whole set, sums in float32 would lose digits.
        let scaled = |values: &[f32]| -> Result<Tensor, TrainError> {
            let wide: Vec<f64> = values.iter().map(|v| f64::from(*v)).collect();
            Ok(self.labels.scaled(&Tensor::f_from_slice(&wide)?)?)
        };
        let loss = self.objective.of_predictions(&scaled(predictions)?, &scaled(labels)?);
        Ok(loss.f_double_value(&[])?)
    }
}
