use expctl_record::{AttemptDir, RecordError, WeightsDir};
use tch::Tensor;

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
    let weights = WeightsDir::new(attempt);
    let path = match which {
        Which::Best => weights.best_path(),
        Which::Last => weights.last_path(),
    };
    let written: Result<(), RecordError> = weights.replace(&path, |to| write_state(to, tensors));
    Ok(written?)
}
