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

    #[test]
    fn it_equals_its_definition_and_does_not_overflow() {
        let label = Tensor::from_slice(&[0.0f32]);
        for x in [-3.0f32, -0.5, -1e-3, 0.0, 1e-3, 0.2, 2.0] {
            let got = log_cosh(&Tensor::from_slice(&[x]), &label).double_value(&[]);
            let expected = f64::from(x).cosh().ln();
            assert!((got - expected).abs() < 2e-7, "{x}: {got}, expected {expected}");
        }
        let far = log_cosh(&Tensor::from_slice(&[1000.0f32]), &label).double_value(&[]);
        assert!((far - (1000.0 - std::f64::consts::LN_2)).abs() < 1e-3, "{far}");
    }
}
