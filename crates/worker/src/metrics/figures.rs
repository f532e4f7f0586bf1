use super::{pearson, spearman};

/// How good the predictions of a set of samples are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Samples.
    pub samples: u64,
    /// Mean squared error, in the units of the labels; NaN without samples.
    pub mse: f64,
    /// Pearson's correlation; none where either side is constant.
    pub pearson: Option<f64>,
    /// Spearman's rank correlation; none where either side is constant.
    pub spearman: Option<f64>,
}

impl Figures {
    /// Of `predictions` and `labels`, both in the units of the labels and of one length.
    pub fn of(predictions: &[f32], labels: &[f32]) -> Self {
        Self {
            samples: labels.len() as u64,
            mse: mean_squared_error(predictions, labels),
            pearson: pearson(predictions, labels),
            spearman: spearman(predictions, labels),
        }
    }
}

/// Mean squared difference of two lists of one length; NaN where they are empty.
pub fn mean_squared_error(a: &[f32], b: &[f32]) -> f64 {
    let squares = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2));
    squares.sum::<f64>() / a.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_figures_at_once() {
        let figures = Figures::of(&[1.0, 2.0, 4.0], &[1.0, 3.0, 2.0]);
        assert_eq!(figures.samples, 3);
        assert!((figures.mse - 5.0 / 3.0).abs() < 1e-12);
        assert!((figures.spearman.unwrap() - 0.5).abs() < 1e-12);
        let none = Figures::of(&[], &[]);
        assert!(none.mse.is_nan() && none.pearson.is_none());
    }
}
