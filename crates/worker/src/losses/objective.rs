use expctl_dist::ProcessGroup;
use expctl_record::{Loss, ModelKind, Settings};
use tch::Tensor;

use super::{Buffer, Distribution, LossError, ReconstructionWeight, cross_entropy, log_cosh};
use crate::activity::Activity;
use crate::models::Output;

/// What a trial makes small. All of it is in the units of training.
#[derive(Debug)]
pub struct Objective {
    loss: Loss,
    reconstruction: ReconstructionWeight,
    /// Only DANGO has one.
    reconstructs: bool,
    sinkhorn_weight: f64,
    /// Only with `mse_sinkhorn`.
    distribution: Option<Distribution>,
}

impl Objective {
    /// As the settings say, on rank 0.
    pub fn new(settings: &Settings) -> Self {
        Self::of_rank(settings, 0)
    }

    /// As the settings say, on `rank`: each draws other samples from its buffer.
    pub fn of_rank(settings: &Settings, rank: u32) -> Self {
        let train = &settings.train;
        let reconstruction = ReconstructionWeight::new(train.reconstruction);
        let reconstructs = settings.model.kind == ModelKind::Dango && reconstruction.reconstructs();
        let buffer = || Buffer::new(train.sinkhorn_buffer, settings.model.seed, rank);
        let distribution =
            (train.loss == Loss::MseSinkhorn).then(|| Distribution::new(train.sinkhorn_gather, buffer()));
        let (loss, sinkhorn_weight) = (train.loss, train.sinkhorn_weight);
        Self { loss, reconstruction, reconstructs, sinkhorn_weight, distribution }
    }

    /// Whether the forward pass has to yield the reconstruction loss.
    pub fn reconstructs(&self) -> bool {
        self.reconstructs
    }

    /// The loss of a training batch in `epoch`, scalar; `labels` float32 `[B]`. All ranks of `group` call it together;
    /// `activity` is told where it waits for them.
    ///
    /// # Errors
    /// A peer is gone, or libtorch refuses.
    pub fn of(
        &mut self,
        output: &Output,
        labels: &Tensor,
        epoch: u64,
        group: &ProcessGroup,
        activity: &Activity,
    ) -> Result<Tensor, LossError> {
        let mut loss = self.of_predictions(&output.prediction, labels);
        if let Some(distribution) = &mut self.distribution
            && let Some(term) = distribution.of(&output.prediction, labels, epoch, group, activity)?
        {
            loss = loss.f_add(&term.f_mul_scalar(self.sinkhorn_weight)?)?;
        }
        Ok(self.reconstruction.join(output.reconstruction.as_ref(), loss, epoch))
    }

    /// The loss of predictions alone, without terms that remember earlier batches: what validation reports. Both float32
    /// or both float64, `[B]`; with the cross entropy `[B, classes]` and int64 `[B]`.
    pub fn of_predictions(&self, prediction: &Tensor, labels: &Tensor) -> Tensor {
        match self.loss {
            Loss::LogCosh => log_cosh(prediction, labels),
            Loss::Mse | Loss::MseSinkhorn => (prediction - labels).square().mean(labels.kind()),
            Loss::CrossEntropy => cross_entropy(prediction, labels),
        }
    }

    /// What it remembers of earlier batches, if it does.
    pub fn memory(&self) -> Option<&Buffer> {
        self.distribution.as_ref().map(Distribution::buffer)
    }

    /// The same, to put it back.
    pub fn memory_mut(&mut self) -> Option<&mut Buffer> {
        self.distribution.as_mut().map(Distribution::buffer_mut)
    }
}
