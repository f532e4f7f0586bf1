use tch::Tensor;

use super::run::Outcome;

/// How far an outcome is from another, relative to the latter.
#[derive(Clone, Copy, Debug)]
pub struct Apart {
    /// Largest difference of an encoding, of its largest entry.
    pub encodings: f64,
    /// Largest difference of a prediction, of the largest.
    pub predictions: f64,
    /// Euclidean norm of the difference of all gradients together.
    pub gradients: f64,
}

pub fn largest(t: &Tensor) -> f64 {
    t.abs().max().double_value(&[])
}

/// Euclidean norm.
pub fn norm(t: &Tensor) -> f64 {
    t.norm().double_value(&[])
}

impl Outcome {
    pub fn from(&self, other: &Self) -> Apart {
        let encodings = self.encodings.iter().zip(&other.encodings).map(|(a, b)| largest(&(a - b)) / largest(b));
        let pairs = self.gradients.iter().zip(&other.gradients);
        let gradients = pairs.map(|((_, a), (_, b))| norm(&(a - b)).powi(2)).sum::<f64>().sqrt() / other.size();
        Apart {
            encodings: encodings.fold(0.0, f64::max),
            predictions: largest(&(&self.prediction - &other.prediction)) / largest(&other.prediction),
            gradients,
        }
    }

    /// Euclidean norm of all gradients together.
    pub fn size(&self) -> f64 {
        self.gradients.iter().map(|(_, g)| norm(g).powi(2)).sum::<f64>().sqrt()
    }
}
