use tch::Tensor;

/// Mean of ln cosh (prediction − label), scalar; both `[B]`, float32 or float64.
///
/// As |x| + softplus(−2 |x|) − ln 2, which neither overflows for large differences nor is 0/0 anywhere.
pub fn log_cosh(prediction: &Tensor, label: &Tensor) -> Tensor {
    let distance = (prediction - label).abs();
    (&distance + (&distance * -2.0).softplus() - std::f64::consts::LN_2).mean(distance.kind())
}

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_rounding::gamma;

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
}
