use expctl_record::{AttemptDir, RecordError, WeightsDir};
use tch::{Kind, Tensor};

use crate::checkpoint::write_state;
use crate::stop::Stop;

/// Which file of the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Best,
    Last,
}

/// Write tensors by name to a file of the trial's weights.
///
/// # Errors
/// The file cannot be written, or another attempt may be running.
pub(super) fn write_weights(attempt: &AttemptDir, which: Which, tensors: &[(String, Tensor)]) -> Result<(), Stop> {
    if attempt.is_closed() {
        return Err(Stop::Closed);
    }
    let weights = WeightsDir::of(attempt);
    let path = match which {
        Which::Best => weights.best_path(),
        Which::Last => weights.last_path(),
    };
    let written: Result<(), RecordError> = weights.replace(&path, |to| write_state(to, tensors));
    Ok(written?)
}

/// The first of these tensors with a value that is not finite.
pub(super) fn not_finite(tensors: &[(String, Tensor)]) -> Result<Option<&str>, tch::TchError> {
    for (name, tensor) in tensors {
        if tensor.is_floating_point()
            && tensor.detach().f_isfinite()?.f_all()?.f_to_kind(Kind::Int64)?.f_int64_value(&[])? == 0
        {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tensor_that_is_not_finite_is_named() {
        let named =
            |values: &[f32]| vec![("a".to_owned(), Tensor::from(1i64)), ("b".to_owned(), Tensor::from_slice(values))];
        assert_eq!(not_finite(&named(&[1.0, 2.0])).unwrap(), None);
        for value in [f32::NAN, f32::INFINITY] {
            assert_eq!(not_finite(&named(&[1.0, value])).unwrap(), Some("b"));
        }
    }
}
