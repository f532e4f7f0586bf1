use super::log1p;
use crate::PipelineError;

/// What is done to the values of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transform {
    /// Scale the row to this sum, over all genes of the store; 0 leaves it.
    target: f64,
    log1p: bool,
}

impl Transform {
    /// Scaling to a sum of `target`, 0 being none, then ln(1 + x).
    ///
    /// # Errors
    /// The sum is negative, infinite or NaN.
    pub fn new(target: f64, log1p: bool) -> Result<Self, PipelineError> {
        if !(target.is_finite() && target >= 0.0) {
            let reason =
                format!("array.normalize = {target} is no sum that rows can have; take one above 0, or 0 for none");
            return Err(PipelineError::Invalid(reason));
        }
        Ok(Self { target, log1p })
    }

    /// Values stay what they are.
    pub fn is_none(&self) -> bool {
        self.target == 0.0 && !self.log1p
    }

    /// What the values of a row with these values are multiplied by, as `scanpy.pp.normalize_total`: of *all* genes, before
    /// any are left out, and 1 where the sum is 0. The sum is taken in float64.
    pub fn scale(&self, row: &[f32]) -> f32 {
        if self.target == 0.0 {
            return 1.0;
        }
        let sum = sum(row);
        if sum == 0.0 { 1.0 } else { (self.target / sum) as f32 }
    }

    /// Do it to values, which may be some of the row.
    pub fn apply(&self, scale: f32, values: &mut [f32]) {
        if self.target != 0.0 {
            values.iter_mut().for_each(|value| *value *= scale);
        }
        if self.log1p {
            log1p(values);
        }
    }
}

/// Sum in float64. Several sums side by side, so that additions do not wait for each other.
fn sum(values: &[f32]) -> f64 {
    let (chunks, rest) = values.as_chunks::<16>();
    let mut sums = [0.0f64; 16];
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += f64::from(*value);
        }
    }
    sums.iter().sum::<f64>() + rest.iter().map(|value| f64::from(*value)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_get_the_sum_and_empty_ones_stay() {
        let transform = Transform::new(1e4, false).unwrap();
        let mut row: Vec<f32> = (0..37).map(|value| value as f32).collect();
        let scale = transform.scale(&row);
        transform.apply(scale, &mut row);
        assert!((sum(&row) - 1e4).abs() < 1e-2);
        assert_eq!((transform.scale(&[0.0; 20]), transform.scale(&[])), (1.0, 1.0));
        assert!(Transform::new(0.0, false).unwrap().is_none());
    }

    #[test]
    fn a_sum_that_rows_cannot_have_is_an_error() {
        for target in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(Transform::new(target, true).unwrap_err().to_string().starts_with("array.normalize = "));
        }
    }
}
