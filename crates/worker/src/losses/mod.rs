//! Training losses. Invariants: a loss is a scalar, the mean over the samples of a batch, in the units of training; its memory of
//! earlier batches is a state that checkpoints contain.

use std::f64::consts::LN_2;

use expctl_settings::{Loss, ModelKind, Reconstruction, Settings};
use tch::{Kind, Reduction, TchError, Tensor};
use torch_dist::DistError;

use crate::models::{ModelOutput, StepContext};

mod replay_buffer;
mod sinkhorn;

pub use replay_buffer::{DistributionLoss, ReplayBuffer};
pub use sinkhorn::sinkhorn;

/// Why a loss cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum LossError {
    /// A collective failed.
    #[error("{0}")]
    Dist(#[from] DistError),
    /// An operation of libtorch failed.
    #[error("loss: {0}")]
    Torch(#[from] TchError),
}

/// The loss that a trial minimises, in the units of training.
#[derive(Debug)]
pub struct Objective {
    loss: Loss,
    reconstruction: ReconstructionWeight,
    /// Only with DANGO.
    reconstructs: bool,
    sinkhorn_weight: f64,
    /// Only with `mse_sinkhorn`.
    distribution: Option<DistributionLoss>,
}

impl Objective {
    /// The objective of the settings, on `rank`: each rank draws other samples from its replay buffer.
    pub fn new(settings: &Settings, rank: u32) -> Self {
        let train = &settings.train;
        let reconstruction = ReconstructionWeight::new(train.reconstruction);
        let reconstructs = settings.model.kind == ModelKind::Dango && reconstruction.reconstructs();
        let buffer = || ReplayBuffer::new(train.sinkhorn_buffer, settings.model.seed, rank);
        let distribution =
            (train.loss == Loss::MseSinkhorn).then(|| DistributionLoss::new(train.sinkhorn_gather, buffer()));
        let (loss, sinkhorn_weight) = (train.loss, train.sinkhorn_weight);
        Self { loss, reconstruction, reconstructs, sinkhorn_weight, distribution }
    }

    /// Whether the forward pass has to yield the reconstruction loss.
    pub fn reconstructs(&self) -> bool {
        self.reconstructs
    }

    /// The loss of a training batch, scalar; `labels` float32 `[B]`. All ranks of the context's group call it together.
    ///
    /// # Errors
    /// A peer is gone, or libtorch fails.
    pub fn loss(
        &mut self,
        output: &ModelOutput,
        labels: &Tensor,
        context: &StepContext<'_>,
    ) -> Result<Tensor, LossError> {
        let mut loss = self.prediction_loss(&output.prediction, labels);
        if let Some(distribution) = &mut self.distribution
            && let Some(term) = distribution.term(&output.prediction, labels, context)?
        {
            loss = loss.f_add(&term.f_mul_scalar(self.sinkhorn_weight)?)?;
        }
        Ok(self.reconstruction.combine(output.reconstruction.as_ref(), loss, context.epoch))
    }

    /// The loss of predictions alone, without terms that remember earlier batches: what validation reports. Both float32 or both float64,
    /// `[B]`; with the cross entropy `[B, classes]` and int64 `[B]`.
    pub fn prediction_loss(&self, prediction: &Tensor, labels: &Tensor) -> Tensor {
        match self.loss {
            Loss::LogCosh => log_cosh(prediction, labels),
            Loss::Mse | Loss::MseSinkhorn => (prediction - labels).square().mean(labels.kind()),
            Loss::CrossEntropy => cross_entropy(prediction, labels),
        }
    }

    /// The replay buffer, where the loss has one.
    pub fn replay_buffer(&self) -> Option<&ReplayBuffer> {
        self.distribution.as_ref().map(DistributionLoss::buffer)
    }

    /// The replay buffer, to restore it.
    pub fn replay_buffer_mut(&mut self) -> Option<&mut ReplayBuffer> {
        self.distribution.as_mut().map(DistributionLoss::buffer_mut)
    }
}

/// Weight α of DANGO's reconstruction loss: the loss is α · reconstruction + (1 − α) · loss of the predictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconstructionWeight(Reconstruction);

impl ReconstructionWeight {
    /// Epochs of the published transitions.
    const TRANSITION: f64 = 10.0;

    /// The weight by this rule.
    pub const fn new(rule: Reconstruction) -> Self {
        Self(rule)
    }

    /// α in `epoch`, from 0.
    pub fn weight(self, epoch: u64) -> f64 {
        let progress = (epoch as f64 / Self::TRANSITION).min(1.0);
        match self.0 {
            Reconstruction::LinearUntilUniform => 1.0 - 0.5 * progress,
            Reconstruction::PreThenPost => f64::from(progress < 1.0),
            Reconstruction::LinearUntilFlipped => 1.0 - progress,
            Reconstruction::Uniform => 0.5,
            Reconstruction::Off => 0.0,
        }
    }

    /// α · reconstruction + (1 − α) · `predictions`; `predictions` alone where there is no reconstruction.
    pub fn combine(self, reconstruction: Option<&Tensor>, predictions: Tensor, epoch: u64) -> Tensor {
        let Some(reconstruction) = reconstruction else { return predictions };
        let weight = self.weight(epoch);
        reconstruction * weight + predictions * (1.0 - weight)
    }

    /// Whether the forward pass has to yield the reconstruction loss.
    pub fn reconstructs(self) -> bool {
        self.0 != Reconstruction::Off
    }
}

/// Keeps labels that are all equal from being divided by 0, as published.
const MIN_DEVIATION: f64 = 1e-8;

/// Converts between the units of the labels and those of training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LabelScale {
    mean: f64,
    divisor: f64,
}

impl LabelScale {
    /// Leaves labels as they are.
    pub const RAW: Self = Self { mean: 0.0, divisor: 1.0 };

    /// (y − mean) / (sd + 1e-8), with the statistics of all labels of the data set, those of other splits included.
    pub fn standard(mean: f64, sd: f64) -> Self {
        Self { mean, divisor: sd + MIN_DEVIATION }
    }

    /// Labels, float32 or float64 `[B]`, in the units of training.
    pub fn scaled(&self, labels: &Tensor) -> Result<Tensor, TchError> {
        if *self == Self::RAW {
            return Ok(labels.shallow_clone());
        }
        labels.f_sub_scalar(self.mean)?.f_div_scalar(self.divisor)
    }

    /// Predictions, `[B]`, float32 in the units of the labels.
    pub fn unscaled(&self, predictions: &Tensor) -> Result<Vec<f32>, TchError> {
        let predictions = predictions.f_detach()?.f_to_kind(Kind::Float)?;
        if *self == Self::RAW {
            return Vec::try_from(predictions);
        }
        Vec::try_from(predictions.f_mul_scalar(self.divisor)?.f_add_scalar(self.mean)?)
    }
}

/// Mean of ln cosh (prediction − label), scalar; both `[B]`, float32 or float64.
///
/// Computed as |x| + softplus(−2 |x|) − ln 2, which neither overflows for large differences nor is 0/0 anywhere.
pub fn log_cosh(prediction: &Tensor, label: &Tensor) -> Tensor {
    let distance = (prediction - label).abs();
    (&distance + (&distance * -2.0).softplus() - LN_2).mean(distance.kind())
}

/// Class of rows that have none.
const UNKNOWN_CLASS: i64 = -1;

/// Mean cross entropy of `scores`, float32 `[B, classes]`, against `classes`, int64 `[B]`, over the rows that have a class; 0 where none
/// has.
pub fn cross_entropy(scores: &Tensor, classes: &Tensor) -> Tensor {
    let known = classes.ne(UNKNOWN_CLASS).sum(Kind::Int64).clamp_min(1);
    scores.cross_entropy_loss::<Tensor>(classes, None, Reduction::Sum, UNKNOWN_CLASS, 0.0) / known
}

#[cfg(test)]
mod tests {
    use expctl_rounding::gamma;

    use super::*;

    #[test]
    fn terms_are_weighed() {
        let combined = |rule, epoch| {
            let (reconstruction, predictions) = (Tensor::from(8.0f32), Tensor::from(3.0f32));
            ReconstructionWeight::new(rule).combine(Some(&reconstruction), predictions, epoch).double_value(&[])
        };
        // All of these are float32 numbers, and so are the products that they are sums of.
        assert_eq!(combined(Reconstruction::LinearUntilUniform, 0), 8.0);
        assert_eq!(combined(Reconstruction::LinearUntilUniform, 5), 6.75);
        assert_eq!(combined(Reconstruction::Uniform, 0), 5.5);
        assert_eq!(combined(Reconstruction::Off, 0), 3.0);
        let alone = ReconstructionWeight::new(Reconstruction::Uniform).combine(None, Tensor::from(3.0f32), 0);
        assert_eq!(alone.double_value(&[]), 3.0);
    }

    #[test]
    fn the_published_schedules() {
        let weights = |rule| [0, 5, 9, 10, 100].map(|e| ReconstructionWeight::new(rule).weight(e));
        assert_eq!(weights(Reconstruction::LinearUntilUniform), [1.0, 0.75, 0.55, 0.5, 0.5]);
        assert_eq!(weights(Reconstruction::PreThenPost), [1.0, 1.0, 1.0, 0.0, 0.0]);
        let flipped = weights(Reconstruction::LinearUntilFlipped);
        assert!((flipped[2] - 0.1).abs() < 1e-12 && flipped[3] == 0.0 && flipped[4] == 0.0);
    }

    #[test]
    fn there_and_back() {
        let labels = [-1.0816f32, -0.0588, 0.0, 1.128_043];
        let scale = LabelScale::standard(-0.008024, 0.063264);
        let scaled = scale.scaled(&Tensor::from_slice(&labels)).unwrap();
        let (mean, divisor) = (0.008024, 0.063264 + MIN_DEVIATION);
        for (at, label) in labels.map(f64::from).into_iter().enumerate() {
            // Mean and divisor are rounded, and the difference and the quotient.
            let (got, sizes) = (scaled.double_value(&[at as i64]), (label.abs() + mean) / divisor);
            assert!((got - (label + mean) / divisor).abs() <= gamma(4) * sizes, "{label}: {got}");
            // On the way back once more, with a product for the quotient.
            let back = f64::from(scale.unscaled(&scaled).unwrap()[at]);
            assert!((label - back).abs() <= gamma(8) * (label.abs() + 2.0 * mean), "{label} {back}");
        }
        assert_eq!(LabelScale::RAW.unscaled(&Tensor::from_slice(&labels)).unwrap(), labels);
        let constant = LabelScale::standard(0.5, 0.0).scaled(&Tensor::from_slice(&[0.5f32])).unwrap();
        assert_eq!(constant.double_value(&[0]), 0.0);
    }

    #[test]
    fn it_equals_its_definition_and_does_not_overflow() {
        let label = Tensor::from_slice(&[0.0f32]);
        for x in [-3.0f32, -0.5, -1e-3, 0.0, 1e-3, 0.2, 2.0] {
            let got = log_cosh(&Tensor::from_slice(&[x]), &label).double_value(&[]);
            let expected = f64::from(x).cosh().ln();
            // Its three terms, which nearly cancel for small differences. The softplus takes an exponential and a logarithm of a
            // unit or two each; then come two sums and ln 2 itself.
            let x = f64::from(x).abs();
            let sizes = x + (-2.0 * x).exp().ln_1p() + std::f64::consts::LN_2;
            assert!((got - expected).abs() <= gamma(8) * sizes, "{x}: {got}, expected {expected}");
        }
        let far = log_cosh(&Tensor::from_slice(&[1000.0f32]), &label).double_value(&[]);
        assert!((far - (1000.0 - std::f64::consts::LN_2)).abs() <= gamma(8) * 1001.0, "{far}");
    }

    #[test]
    fn rows_without_a_class_are_left_out() {
        let scores = Tensor::from_slice(&[0.0f32, 0.0, 3.0, 1.0, -5.0, 9.0]).view([3, 2]).set_requires_grad(true);
        let of = |classes: &[i64]| cross_entropy(&scores, &Tensor::from_slice(classes));
        let second = (1.0 + (-2f64).exp()).ln();
        // The logarithm of a sum of exponentials, less the score of the class, 3 at most: a difference, for which a unit or two
        // each of exponential and logarithm, the sums and the mean count with the size of what is subtracted.
        let close =
            |got: Tensor, exact: f64| assert!((got.double_value(&[]) - exact).abs() <= gamma(8) * (exact + 3.0));
        close(of(&[0, 0, -1]), (2f64.ln() + second) / 2.0);
        close(of(&[-1, 0, -1]), second);
        let none = of(&[-1, -1, -1]);
        assert_eq!(none.double_value(&[]), 0.0);
        none.backward();
        assert_eq!(scores.grad().abs().sum(Kind::Float).double_value(&[]), 0.0);
    }
}
