use tch::Tensor;

use super::TrainError;

/// Whether all values of all floating-point tensors are finite; to ask before they are written to a file. What a schedule
/// has not seen yet may be infinite (its best figure): it is left out.
///
/// # Errors
/// [`TrainError::NotFinite`] names the first tensor that is not, or libtorch refuses.
pub fn all_finite(tensors: &[(String, Tensor)]) -> Result<(), TrainError> {
    for (name, tensor) in tensors {
        if name.starts_with("schedule/") || !tensor.is_floating_point() || tensor.numel() == 0 {
            continue;
        }
        let extremes = [tensor.f_min()?.f_double_value(&[])?, tensor.f_max()?.f_double_value(&[])?];
        if !extremes.iter().all(|v| v.is_finite()) {
            return Err(TrainError::NotFinite { name: name.clone() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tensor_is_named() {
        let named = |name: &str, values: &[f32]| (name.to_owned(), Tensor::from_slice(values));
        let steps = ("adamw/steps/a".to_owned(), Tensor::from_slice(&[3i64]));
        let best = named("schedule/plateau/loss", &[f32::INFINITY]);
        let empty = named("sinkhorn/0/labels", &[]);
        let fine = [named("model/a", &[1.0, -3e38]), steps, best, empty];
        all_finite(&fine).unwrap();
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = all_finite(&[named("model/a", &[0.0]), named("model/b", &[1.0, wrong, 2.0])]).unwrap_err();
            assert!(error.to_string().starts_with("model/b has values that are not finite"), "{error}");
        }
    }
}
