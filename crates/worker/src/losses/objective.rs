use expctl_dist::ProcessGroup;
use expctl_record::{Loss, ModelKind, Settings};
use tch::{Kind, Tensor};

use super::{ReconstructionWeight, log_cosh};
use crate::models::{ModelError, Output};

/// What a trial makes small.
#[derive(Debug)]
pub struct Objective {
    loss: Loss,
    reconstruction: ReconstructionWeight,
    /// Only DANGO has one.
    reconstructs: bool,
}

impl Objective {
    /// As the settings say.
    pub fn new(settings: &Settings) -> Self {
        let weight = ReconstructionWeight::new(settings.train.reconstruction);
        let dango = settings.model.kind == ModelKind::Dango;
        let reconstructs = dango && weight.reconstructs();
        Self { loss: settings.train.loss, reconstruction: weight, reconstructs }
    }

    /// Whether the forward pass has to yield the reconstruction loss.
    pub fn reconstructs(&self) -> bool {
        self.reconstructs
    }

    /// The loss of a training batch in `epoch`, scalar; `labels` float32 `[B]`. All ranks of `group` call it together.
    ///
    /// # Errors
    /// A peer is gone, or libtorch refuses.
    pub fn of(
        &mut self,
        output: &Output,
        labels: &Tensor,
        epoch: u64,
        _group: &ProcessGroup,
    ) -> Result<Tensor, ModelError> {
        let predictions = self.of_predictions(&output.prediction, labels);
        Ok(self.reconstruction.join(output.reconstruction.as_ref(), predictions, epoch))
    }

    /// The loss of predictions alone, without terms that remember earlier batches: what validation reports.
    pub fn of_predictions(&self, prediction: &Tensor, labels: &Tensor) -> Tensor {
        match self.loss {
            Loss::LogCosh => log_cosh(prediction, labels),
            Loss::Mse | Loss::MseSinkhorn => (prediction - labels).square().mean(Kind::Float),
        }
    }
}
