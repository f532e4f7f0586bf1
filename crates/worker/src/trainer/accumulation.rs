use expctl_record::Train;

/// Which batches make one step of the optimizer together.
///
/// Groups start at the first batch of an epoch, and an epoch's end closes the last one, which may then be smaller: its
/// gradients are averaged over the batches that it has. Invariant: all of it is a function of the settings and the step, so
/// that every rank knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accumulation {
    /// Epoch and batches a group from it on, by epoch.
    pairs: Vec<(u64, u64)>,
    /// Batches of an epoch on each rank; the largest number where that is not known.
    epoch_batches: u64,
    /// Epoch of step 0.
    first_epoch: u64,
}

/// Where a batch is in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Batches of the group.
    pub batches: u64,
    /// It is the last one.
    pub closes: bool,
}

impl Accumulation {
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

    /// Where the batch of `step` is.
    pub fn part(&self, step: u64) -> Part {
        let (epoch, place) = (self.first_epoch + step / self.epoch_batches, step % self.epoch_batches);
        let wanted = self.batches_in(epoch);
        let start = place - place % wanted;
        let batches = wanted.min(self.epoch_batches - start);
        Part { batches, closes: place + 1 == start + batches }
    }

    /// The first step from `step` on that starts a group: in front of it there are no gradients to keep.
    pub fn boundary(&self, step: u64) -> u64 {
        if step == 0 {
            return 0;
        }
        let mut boundary = step;
        while !self.part(boundary - 1).closes {
            boundary += 1;
        }
        boundary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accumulation(pairs: &[(u64, u64)], first_epoch: u64, epoch_batches: u64) -> Accumulation {
        Accumulation { pairs: pairs.to_vec(), epoch_batches, first_epoch }
    }

    #[test]
    fn without_it_every_batch_is_a_step() {
        let none = accumulation(&[], 0, u64::MAX);
        assert!(
            (0..10).all(|step| none.part(step) == Part { batches: 1, closes: true } && none.boundary(step) == step)
        );
    }

    #[test]
    fn an_epoch_closes_its_last_group() {
        // Five batches an epoch; one each in epoch 0, three from epoch 1 on.
        let groups = accumulation(&[(0, 1), (1, 3)], 0, 5);
        let parts: Vec<(u64, bool)> = (0..10).map(|s| groups.part(s)).map(|p| (p.batches, p.closes)).collect();
        let expected = [(1, true); 5].into_iter();
        let expected = expected.chain([(3, false), (3, false), (3, true), (2, false), (2, true)]);
        assert_eq!(parts, expected.collect::<Vec<_>>());
        let boundaries: Vec<u64> = (0..=10).map(|step| groups.boundary(step)).collect();
        assert_eq!(boundaries, [0, 1, 2, 3, 4, 5, 8, 8, 8, 10, 10]);
        // A run that goes on in epoch 1.
        assert_eq!(accumulation(&[(0, 1), (1, 3)], 1, 5).part(0), Part { batches: 3, closes: false });
    }
}
