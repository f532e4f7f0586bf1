use tch::{Kind, Reduction, Tensor};

/// Class of rows that have none.
const UNKNOWN: i64 = -1;

/// Mean cross entropy of `scores`, float32 `[B, classes]`, against `classes`, int64 `[B]`, over the rows that have a class; 0
/// where none has.
pub fn cross_entropy(scores: &Tensor, classes: &Tensor) -> Tensor {
    let known = classes.ne(UNKNOWN).sum(Kind::Int64).clamp_min(1);
    scores.cross_entropy_loss::<Tensor>(classes, None, Reduction::Sum, UNKNOWN, 0.0) / known
}

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_rounding::gamma;

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
