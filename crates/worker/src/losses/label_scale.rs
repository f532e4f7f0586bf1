use tch::{Kind, TchError, Tensor};

/// Keeps labels that are all alike from being divided by 0, as published.
const SMALLEST: f64 = 1e-8;

/// From the units of the labels to those of training, and back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LabelScale {
    mean: f64,
    divisor: f64,
}

impl LabelScale {
    /// Labels as they are.
    pub const RAW: Self = Self { mean: 0.0, divisor: 1.0 };

    /// (y − mean) / (sd + 1e-8), with the statistics of all labels of the data set, those of other splits included.
    pub fn standard(mean: f64, sd: f64) -> Self {
        Self { mean, divisor: sd + SMALLEST }
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

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_rounding::gamma;

    #[test]
    fn there_and_back() {
        let labels = [-1.0816f32, -0.0588, 0.0, 1.128_043];
        let scale = LabelScale::standard(-0.008024, 0.063264);
        let scaled = scale.scaled(&Tensor::from_slice(&labels)).unwrap();
        let (mean, divisor) = (0.008024, 0.063264 + SMALLEST);
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
}
