use expctl_dist::{DistError, ProcessGroup};
use tch::{TchError, Tensor};

/// Predictions and labels of all ranks, by rank, in the order in which each has them. Ranks can have different numbers of
/// them, or none. All ranks call it together.
///
/// # Errors
/// A peer is gone, or libtorch refuses.
pub fn gather(group: &ProcessGroup, predictions: &[f32], labels: &[f32]) -> Result<(Vec<f32>, Vec<f32>), DistError> {
    debug_assert_eq!(predictions.len(), labels.len());
    if group.world() == 1 {
        return Ok((predictions.to_vec(), labels.to_vec()));
    }
    let fail = |e: TchError| DistError::from_tch("gather predictions", &e);
    let counts = group.all_gather(&Tensor::f_from_slice(&[labels.len() as i64]).map_err(fail)?)?;
    let counts: Vec<usize> =
        counts.iter().map(|c| c.f_int64_value(&[0]).map(|c| c as usize)).collect::<Result<_, _>>().map_err(fail)?;
    // A collective takes one shape from all: predictions, zeros, labels, zeros.
    let longest = counts.iter().copied().max().unwrap_or(0);
    let mut own = vec![0f32; 2 * longest];
    own[..labels.len()].copy_from_slice(predictions);
    own[longest..longest + labels.len()].copy_from_slice(labels);
    let parts = group.all_gather(&Tensor::f_from_slice(&own).map_err(fail)?)?;
    let (mut all_predictions, mut all_labels) = (Vec::new(), Vec::new());
    for (part, count) in parts.iter().zip(counts) {
        let part = Vec::<f32>::try_from(part).map_err(fail)?;
        all_predictions.extend_from_slice(&part[..count]);
        all_labels.extend_from_slice(&part[longest..longest + count]);
    }
    Ok((all_predictions, all_labels))
}
