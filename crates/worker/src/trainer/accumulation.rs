//! Which batches make one step of the optimizer together.

use expctl_settings::Train;

/// Groups of batches whose gradients are accumulated into one step of the optimizer.
///
/// Groups start at the first batch of an epoch, and an epoch's end closes the last group, which may then be smaller: its gradients are
/// averaged over the batches that it has. Invariant: groups are a function of the settings and the step, so that every rank knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GradientAccumulation {
    /// Epoch, and batches of a group from that epoch on; ascending.
    pairs: Vec<(u64, u64)>,
    /// Batches of an epoch on each rank; the maximum where that is unknown.
    epoch_batches: u64,
    /// Epoch of step 0.
    first_epoch: u64,
}

/// Position of a batch in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPosition {
    /// Batches of the group.
    pub batches: u64,
    /// The batch is the last one of the group.
    pub is_last: bool,
}

impl GradientAccumulation {
    /// As `train` says, where an epoch is not known to end.
    pub fn new(train: &Train) -> Self {
        let pairs = Train::accumulation_pairs(&train.accumulation).unwrap_or_default();
        Self { pairs, epoch_batches: u64::MAX, first_epoch: 0 }
    }

    /// Step 0 is the first batch of `first_epoch`, and each epoch has `epoch_batches`.
    pub fn set_epochs(&mut self, first_epoch: u64, epoch_batches: u64) {
        (self.first_epoch, self.epoch_batches) = (first_epoch, epoch_batches.max(1));
    }

    fn batches_in(&self, epoch: u64) -> u64 {
        self.pairs.iter().rev().find(|(from, _)| *from <= epoch).map_or(1, |(_, batches)| *batches)
    }

    /// Position of the batch of `step`.
    pub fn position(&self, step: u64) -> GroupPosition {
        let (epoch, in_epoch) = (self.first_epoch + step / self.epoch_batches, step % self.epoch_batches);
        let group_size = self.batches_in(epoch);
        let start = in_epoch - in_epoch % group_size;
        let batches = group_size.min(self.epoch_batches - start);
        GroupPosition { batches, is_last: in_epoch + 1 == start + batches }
    }

    /// The first step from `step` on that starts a group: in front of it there are no accumulated gradients.
    pub fn next_boundary(&self, step: u64) -> u64 {
        if step == 0 {
            return 0;
        }
        let mut boundary = step;
        while !self.position(boundary - 1).is_last {
            boundary += 1;
        }
        boundary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accumulation(pairs: &[(u64, u64)], first_epoch: u64, epoch_batches: u64) -> GradientAccumulation {
        GradientAccumulation { pairs: pairs.to_vec(), epoch_batches, first_epoch }
    }

    #[test]
    fn without_it_every_batch_is_a_step() {
        let none = accumulation(&[], 0, u64::MAX);
        assert!((0..10).all(|step| none.position(step) == GroupPosition { batches: 1, is_last: true }
            && none.next_boundary(step) == step));
    }

    #[test]
    fn an_epoch_closes_its_last_group() {
        // Five batches an epoch; one each in epoch 0, three from epoch 1 on.
        let groups = accumulation(&[(0, 1), (1, 3)], 0, 5);
        let parts: Vec<(u64, bool)> = (0..10).map(|s| groups.position(s)).map(|p| (p.batches, p.is_last)).collect();
        let expected = [(1, true); 5].into_iter();
        let expected = expected.chain([(3, false), (3, false), (3, true), (2, false), (2, true)]);
        assert_eq!(parts, expected.collect::<Vec<_>>());
        let boundaries: Vec<u64> = (0..=10).map(|step| groups.next_boundary(step)).collect();
        assert_eq!(boundaries, [0, 1, 2, 3, 4, 5, 8, 8, 8, 10, 10]);
        // A run that goes on in epoch 1.
        assert_eq!(accumulation(&[(0, 1), (1, 3)], 1, 5).position(0), GroupPosition { batches: 3, is_last: false });
    }
}
