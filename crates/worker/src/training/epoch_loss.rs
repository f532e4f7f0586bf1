use expctl_dist::{DistError, ProcessGroup};
use expctl_record::StepRecord;
use tch::Tensor;

/// The losses of an epoch, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct EpochLoss {
    sum: f64,
    samples: u64,
}

impl EpochLoss {
    /// Those of these steps.
    pub(crate) fn of(steps: &[StepRecord]) -> Self {
        let mut all = Self::default();
        for step in steps {
            all.add(step.loss.unwrap_or(f64::NAN), step.samples);
        }
        all
    }

    /// Another batch.
    pub(crate) fn add(&mut self, loss: f64, samples: u64) {
        self.sum += loss * samples as f64;
        self.samples += samples;
    }

    /// Mean over the samples of all ranks; the next epoch begins.
    ///
    /// # Errors
    /// A peer is gone.
    pub(crate) fn take(&mut self, group: &ProcessGroup) -> Result<f64, DistError> {
        let Self { sum, samples } = std::mem::take(self);
        let mut both = Tensor::from_slice(&[sum, samples as f64]);
        group.all_reduce_sum(&mut both)?;
        Ok(both.double_value(&[0]) / both.double_value(&[1]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_are_read_back_sum_up_to_the_same_bits() {
        let steps: Vec<StepRecord> = (0..50)
            .map(|i| StepRecord {
                loss: Some(1.0 / f64::from(i + 3)),
                samples: 7 + i as u64 % 2,
                ..StepRecord::default()
            })
            .collect();
        let mut whole = EpochLoss::default();
        steps.iter().for_each(|s| whole.add(s.loss.unwrap(), s.samples));
        let mut resumed = EpochLoss::of(&steps[..20]);
        steps[20..].iter().for_each(|s| resumed.add(s.loss.unwrap(), s.samples));
        assert_eq!(whole, resumed);
        assert_eq!(whole.samples, 50 * 7 + 25);
    }
}
