use expctl_record::Reconstruction;
use tch::{Kind, Tensor};

use super::DangoOutput;

/// Mean of ln cosh (prediction − label), scalar; both float32 `[B]`.
///
/// As |x| + softplus(−2 |x|) − ln 2, which neither overflows for large differences nor is 0/0 anywhere.
pub fn log_cosh(prediction: &Tensor, label: &Tensor) -> Tensor {
    let distance = (prediction - label).abs();
    (&distance + (&distance * -2.0).softplus() - std::f64::consts::LN_2).mean(Kind::Float)
}

/// The loss that is trained: α · reconstruction + (1 − α) · interaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TotalLoss(Reconstruction);

impl TotalLoss {
    /// Epochs over which the published schedule falls from 1 to ½.
    const TRANSITION: f64 = 10.0;

    /// The loss with the given weight of the reconstruction.
    pub const fn new(reconstruction: Reconstruction) -> Self {
        Self(reconstruction)
    }

    /// α in `epoch`, from 0.
    pub fn weight(self, epoch: u64) -> f64 {
        match self.0 {
            Reconstruction::LinearUntilUniform => 1.0 - 0.5 * (epoch as f64 / Self::TRANSITION).min(1.0),
            Reconstruction::Uniform => 0.5,
            Reconstruction::Off => 0.0,
        }
    }

    /// Whether the forward pass has to yield the reconstruction loss.
    pub fn reconstructs(self) -> bool {
        self.0 != Reconstruction::Off
    }

    /// The loss of a batch, scalar; `labels` float32 `[B]`. A term that the output lacks is left out.
    pub fn of(self, output: &DangoOutput, labels: &Tensor, epoch: u64) -> Tensor {
        let interaction = log_cosh(&output.interaction, labels);
        match &output.reconstruction {
            Some(reconstruction) => {
                let weight = self.weight(epoch);
                reconstruction * weight + interaction * (1.0 - weight)
            }
            None => interaction,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_cosh_equals_its_definition_and_does_not_overflow() {
        let label = Tensor::from_slice(&[0.0f32]);
        for x in [-3.0f32, -0.5, -1e-3, 0.0, 1e-3, 0.2, 2.0] {
            let got = log_cosh(&Tensor::from_slice(&[x]), &label).double_value(&[]);
            let expected = f64::from(x).cosh().ln();
            assert!((got - expected).abs() < 2e-7, "{x}: {got}, expected {expected}");
        }
        let far = log_cosh(&Tensor::from_slice(&[1000.0f32]), &label).double_value(&[]);
        assert!((far - (1000.0 - std::f64::consts::LN_2)).abs() < 1e-3, "{far}");
    }

    #[test]
    fn the_published_schedule_falls_to_one_half() {
        let loss = TotalLoss::new(Reconstruction::LinearUntilUniform);
        assert_eq!([0, 5, 10, 100].map(|e| loss.weight(e)), [1.0, 0.75, 0.5, 0.5]);
    }

    #[test]
    fn terms_are_weighed() {
        let output =
            DangoOutput { interaction: Tensor::from_slice(&[2.0f32]), reconstruction: Some(Tensor::from(8.0f32)) };
        let labels = Tensor::from_slice(&[0.0f32]);
        let interaction = 2f64.cosh().ln();
        let of = |kind, epoch| TotalLoss::new(kind).of(&output, &labels, epoch).double_value(&[]);
        assert!((of(Reconstruction::LinearUntilUniform, 0) - 8.0).abs() < 1e-6);
        assert!((of(Reconstruction::LinearUntilUniform, 5) - (6.0 + 0.25 * interaction)).abs() < 1e-6);
        assert!((of(Reconstruction::Uniform, 0) - (4.0 + 0.5 * interaction)).abs() < 1e-6);
        assert!((of(Reconstruction::Off, 0) - interaction).abs() < 1e-6);
    }
}
