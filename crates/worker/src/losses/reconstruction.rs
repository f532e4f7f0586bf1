use expctl_record::Reconstruction;
use tch::Tensor;

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
    pub fn at(self, epoch: u64) -> f64 {
        let gone = (epoch as f64 / Self::TRANSITION).min(1.0);
        match self.0 {
            Reconstruction::LinearUntilUniform => 1.0 - 0.5 * gone,
            Reconstruction::PreThenPost => f64::from(gone < 1.0),
            Reconstruction::LinearUntilFlipped => 1.0 - gone,
            Reconstruction::Uniform => 0.5,
            Reconstruction::Off => 0.0,
        }
    }

    /// α · reconstruction + (1 − α) · `predictions`; `predictions` alone where there is no reconstruction.
    pub fn join(self, reconstruction: Option<&Tensor>, predictions: Tensor, epoch: u64) -> Tensor {
        let Some(reconstruction) = reconstruction else { return predictions };
        let weight = self.at(epoch);
        reconstruction * weight + predictions * (1.0 - weight)
    }

    /// Whether the forward pass has to yield the reconstruction loss.
    pub fn reconstructs(self) -> bool {
        self.0 != Reconstruction::Off
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_weighed() {
        let join = |rule, epoch| {
            let (reconstruction, predictions) = (Tensor::from(8.0f32), Tensor::from(3.0f32));
            ReconstructionWeight::new(rule).join(Some(&reconstruction), predictions, epoch).double_value(&[])
        };
        // All of these are float32 numbers, and so are the products that they are sums of.
        assert_eq!(join(Reconstruction::LinearUntilUniform, 0), 8.0);
        assert_eq!(join(Reconstruction::LinearUntilUniform, 5), 6.75);
        assert_eq!(join(Reconstruction::Uniform, 0), 5.5);
        assert_eq!(join(Reconstruction::Off, 0), 3.0);
        let alone = ReconstructionWeight::new(Reconstruction::Uniform).join(None, Tensor::from(3.0f32), 0);
        assert_eq!(alone.double_value(&[]), 3.0);
    }

    #[test]
    fn the_published_schedules() {
        let weights = |rule| [0, 5, 9, 10, 100].map(|e| ReconstructionWeight::new(rule).at(e));
        assert_eq!(weights(Reconstruction::LinearUntilUniform), [1.0, 0.75, 0.55, 0.5, 0.5]);
        assert_eq!(weights(Reconstruction::PreThenPost), [1.0, 1.0, 1.0, 0.0, 0.0]);
        let flipped = weights(Reconstruction::LinearUntilFlipped);
        assert!((flipped[2] - 0.1).abs() < 1e-12 && flipped[3] == 0.0 && flipped[4] == 0.0);
    }
}
