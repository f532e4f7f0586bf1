//! The term of the loss that compares distributions, and the earlier predictions that it draws from.

use std::collections::BTreeMap;

use expctl_settings::Gather;
use rand::SeedableRng;
use rand::rand_core::Rng;
use rand_pcg::Pcg64;
use tch::{Kind, TchError, Tensor};
use torch_dist::ProcessGroup;

use crate::activity::{Activity, Phase};
use crate::losses::{LossError, sinkhorn};
use crate::models::StepContext;
use crate::state::StateError;

/// First epoch behind the published linear transition.
const WARM_UP: f64 = 100.0;
/// First epoch behind the published sigmoid transition.
const STABLE: f64 = 500.0;

/// The last predictions and labels, of which some are drawn to join each batch.
///
/// Invariant: a draw is a function of the seed, the rank, the number of draws before it and the content.
///
/// Source: `torchcell/losses/mle_wasserstein.py`. A batch is pushed *before* the draw, so that it can be drawn from; the published code
/// fails where a batch is larger than the buffer, this keeps the end of the batch.
#[derive(Clone, Debug)]
pub struct ReplayBuffer {
    seed: [u8; 32],
    capacity: usize,
    /// Pairs of a prediction and a label, a ring once it is full.
    pairs: Vec<(f32, f32)>,
    /// Position of the next pair, once the ring is full.
    next: usize,
    /// Draws so far.
    draws: u64,
}

impl ReplayBuffer {
    /// An empty buffer of `rank` for `capacity` pairs, with random numbers from the model's `seed`.
    pub fn new(capacity: u64, seed: u64, rank: u32) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"sinkhorn buffer").update(&seed.to_le_bytes()).update(&rank.to_le_bytes());
        let capacity = usize::try_from(capacity).unwrap_or(usize::MAX).max(1);
        Self { seed: *hasher.finalize().as_bytes(), capacity, pairs: Vec::new(), next: 0, draws: 0 }
    }

    /// Add pairs; they replace the oldest ones.
    pub fn push(&mut self, pairs: impl IntoIterator<Item = (f32, f32)>) {
        for pair in pairs {
            if self.pairs.len() < self.capacity {
                self.pairs.push(pair);
            } else {
                self.pairs[self.next] = pair;
                self.next = (self.next + 1) % self.capacity;
            }
        }
    }

    /// Whether the buffer has no pairs.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Remove all pairs and forget the draws.
    pub fn clear(&mut self) {
        self.pairs.clear();
        (self.next, self.draws) = (0, 0);
    }

    /// Whether the buffer has been filled once.
    pub fn is_full(&self) -> bool {
        self.pairs.len() == self.capacity
    }

    /// Draw predictions and labels to join a batch of `current` pairs in `epoch`: n = ⌊current · w / (1 − w)⌋ different pairs, or all there
    /// are.
    pub fn draw(&mut self, current: usize, epoch: u64) -> (Vec<f32>, Vec<f32>) {
        let weight = Self::weight(epoch);
        let wanted = (current as f64 * weight / (1.0 - weight)).floor() as usize;
        let mut random = Pcg64::from_seed(self.seed);
        // Each draw has its own stretch of the generator: as many words as a draw can take.
        random.advance(u128::from(self.draws) * self.capacity as u128);
        self.draws += 1;
        let mut order: Vec<usize> = (0..self.pairs.len()).collect();
        let count = wanted.min(order.len());
        for i in 0..count {
            let remaining = (order.len() - i) as u128;
            order.swap(i, i + ((u128::from(random.next_u64()) * remaining) >> 64) as usize);
        }
        order[..count].iter().map(|i| self.pairs[*i]).unzip()
    }

    /// Share w of the drawn pairs in the joined batch, in `epoch`, from 0.
    pub fn weight(epoch: u64) -> f64 {
        let epoch = epoch as f64;
        if epoch < WARM_UP {
            0.1 + 0.2 * (epoch / WARM_UP)
        } else if epoch < STABLE {
            let progress = (epoch - WARM_UP) / (STABLE - WARM_UP);
            0.3 + 0.6 / (1.0 + (-10.0 * (progress - 0.5)).exp())
        } else {
            0.9
        }
    }

    /// The state by name: `<name>/predictions` and `<name>/labels` float32, `<name>/place` int64 `[2]`: position and draws.
    pub fn state(&self, name: &str) -> Vec<(String, Tensor)> {
        let (predictions, labels): (Vec<f32>, Vec<f32>) = self.pairs.iter().copied().unzip();
        vec![
            (format!("{name}/predictions"), Tensor::from_slice(&predictions)),
            (format!("{name}/labels"), Tensor::from_slice(&labels)),
            (format!("{name}/place"), Tensor::from_slice(&[self.next as i64, self.draws as i64])),
        ]
    }

    /// The state in shapes that depend on the capacity alone, for a collective: float32 `[2, capacity]` with zeros behind the pairs, and
    /// int64 `[3]`: position, draws and number of pairs.
    pub fn packed(&self) -> [Tensor; 2] {
        let (mut predictions, mut labels): (Vec<f32>, Vec<f32>) = self.pairs.iter().copied().unzip();
        predictions.resize(self.capacity, 0.0);
        labels.resize(self.capacity, 0.0);
        let position = [self.next as i64, self.draws as i64, self.pairs.len() as i64];
        [Tensor::from_slice(&[predictions, labels].concat()).view([2, -1]), Tensor::from_slice(&position)]
    }

    /// The state by name of a packed buffer; nothing for an empty one.
    ///
    /// # Errors
    /// The shapes are not those of [`Self::packed`].
    pub fn unpacked(name: &str, pairs: &Tensor, position: &Tensor) -> Result<Vec<(String, Tensor)>, TchError> {
        let count = position.f_int64_value(&[2])?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let row = |i: i64| pairs.f_get(i)?.f_narrow(0, 0, count);
        Ok(vec![
            (format!("{name}/predictions"), row(0)?),
            (format!("{name}/labels"), row(1)?),
            (format!("{name}/place"), position.f_narrow(0, 0, 2)?),
        ])
    }

    /// Whether `state` has a buffer of this name.
    pub fn is_in(name: &str, state: &BTreeMap<String, Tensor>) -> bool {
        state.contains_key(&format!("{name}/place"))
    }

    /// Restore a state; returns false where `state` has no buffer of this name.
    ///
    /// # Errors
    /// The buffer in `state` is larger than this one, or damaged.
    pub fn restore(&mut self, name: &str, state: &BTreeMap<String, Tensor>) -> Result<bool, StateError> {
        let tensor = |key: &str| state.get(&format!("{name}/{key}"));
        let (Some(predictions), Some(labels), Some(position)) =
            (tensor("predictions"), tensor("labels"), tensor("place"))
        else {
            return Ok(false);
        };
        let name = || name.to_owned();
        let read = || -> Result<_, TchError> {
            let floats = |t: &Tensor| Vec::<f32>::try_from(t);
            Ok((floats(predictions)?, floats(labels)?, Vec::<i64>::try_from(position)?))
        };
        let (predictions, labels, position) = read().map_err(|source| StateError::Tensor { name: name(), source })?;
        let &[next, draws] = position.as_slice() else {
            return Err(StateError::TensorShape { name: format!("{}/place", name()) });
        };
        let (found, capacity) = (predictions.len(), self.capacity);
        if found > capacity || labels.len() != found {
            return Err(StateError::BufferSize { name: name(), found, capacity });
        }
        let Some((next, draws)) = usize::try_from(next).ok().zip(u64::try_from(draws).ok()) else {
            return Err(StateError::NegativePosition { name: name(), next, draws });
        };
        if next >= found.max(1) {
            return Err(StateError::PositionOutside { name: name(), next, found });
        }
        self.pairs = predictions.into_iter().zip(labels).collect();
        (self.next, self.draws) = (next, draws);
        if found < capacity {
            // It was a ring of a smaller capacity: the oldest pairs come first where new ones are appended.
            self.pairs.rotate_left(next);
            self.next = 0;
        }
        Ok(true)
    }
}

/// The term that compares the distribution of predictions with that of labels: the Sinkhorn divergence between those of a batch together
/// with some of earlier batches.
#[derive(Clone, Debug)]
pub struct DistributionLoss {
    gather: Gather,
    buffer: ReplayBuffer,
}

impl DistributionLoss {
    /// The term, which draws from `buffer`.
    pub fn new(gather: Gather, buffer: ReplayBuffer) -> Self {
        Self { gather, buffer }
    }

    /// The term of a batch, scalar; `prediction` and `labels` float32 `[B]`, in the units of training. `None` until the buffer has been
    /// filled, and with fewer than two samples. All ranks of the context's group call it together, with as many samples each: the sampler
    /// deals all ranks as many ([`DistributedSampler::samples_per_rank`]), and so every batch of an epoch is as long on all.
    ///
    /// # Errors
    /// A peer is gone, or libtorch fails.
    ///
    /// [`DistributedSampler::samples_per_rank`]: graph_loader::DistributedSampler::samples_per_rank
    pub fn term(
        &mut self,
        prediction: &Tensor,
        labels: &Tensor,
        context: &StepContext<'_>,
    ) -> Result<Option<Tensor>, LossError> {
        let StepContext { epoch, group, activity, .. } = *context;
        let (predictions, labels) = self.gathered(prediction, labels, group, activity)?;
        let known = Vec::<f32>::try_from(predictions.f_detach()?)?;
        // On a device the gathering is only waited for here.
        activity.set_phase(Phase::Forward);
        self.buffer.push(known.into_iter().zip(Vec::<f32>::try_from(&labels)?));
        if !self.buffer.is_full() {
            return Ok(None);
        }
        let (earlier, earlier_labels) = self.buffer.draw(labels.numel(), epoch);
        if labels.numel() + earlier.len() < 2 {
            return Ok(None);
        }
        let joined = |now: &Tensor, earlier: &[f32]| -> Result<Tensor, LossError> {
            Ok(Tensor::f_cat(&[now, &Tensor::f_from_slice(earlier)?.f_to_device(now.device())?], 0)?)
        };
        let term = sinkhorn(&joined(&predictions, &earlier)?, &joined(&labels, &earlier_labels)?)?;
        if self.gather != Gather::Joined || group.world() == 1 {
            return Ok(Some(term));
        }
        // Each rank has the gradient of its own predictions only, and the mean over the ranks would make it a fraction of the gradient that
        // one rank with the whole batch has. The value stays: what is added is 0.
        let extra = term.f_sub(&term.f_detach()?)?.f_mul_scalar(f64::from(group.world() - 1))?;
        Ok(Some(term.f_add(&extra)?))
    }

    /// Predictions and labels of the ranks that the term sees.
    fn gathered(
        &self,
        prediction: &Tensor,
        labels: &Tensor,
        group: &ProcessGroup,
        activity: &Activity,
    ) -> Result<(Tensor, Tensor), LossError> {
        let prediction = prediction.f_to_kind(Kind::Float)?;
        if self.gather == Gather::Off || group.world() == 1 {
            return Ok((prediction, labels.shallow_clone()));
        }
        let own = Tensor::f_stack(&[&prediction.f_detach()?, labels], 0)?;
        activity.set_phase(Phase::Gather);
        let all = group.all_gather(&own)?;
        let own = group.rank() as usize;
        let mut predictions: Vec<Tensor> = all.iter().map(|pair| pair.f_get(0)).collect::<Result<_, _>>()?;
        let labels: Vec<Tensor> = all.iter().map(|pair| pair.f_get(1)).collect::<Result<_, _>>()?;
        if self.gather == Gather::Joined {
            predictions[own] = prediction;
        }
        Ok((Tensor::f_cat(&predictions, 0)?, Tensor::f_cat(&labels, 0)?))
    }

    /// The replay buffer.
    pub fn buffer(&self) -> &ReplayBuffer {
        &self.buffer
    }

    /// The replay buffer, to restore it.
    pub fn buffer_mut(&mut self) -> &mut ReplayBuffer {
        &mut self.buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(range: std::ops::Range<i32>) -> impl Iterator<Item = (f32, f32)> {
        range.map(|i| (i as f32, -i as f32))
    }

    #[test]
    fn the_oldest_make_room() {
        let mut buffer = ReplayBuffer::new(5, 1, 0);
        buffer.push(pairs(0..3));
        assert!(!buffer.is_full());
        buffer.push(pairs(3..7));
        assert!(buffer.is_full());
        let mut kept: Vec<f32> = buffer.pairs.iter().map(|(p, _)| *p).collect();
        kept.sort_by(f32::total_cmp);
        assert_eq!(kept, [2.0, 3.0, 4.0, 5.0, 6.0]);
        buffer.push(pairs(10..27));
        assert!(buffer.pairs.iter().all(|(p, _)| *p >= 22.0), "a batch larger than the buffer leaves its end");
    }

    #[test]
    fn the_published_weights_and_counts() {
        let near = |epoch, expected: f64| assert!((ReplayBuffer::weight(epoch) - expected).abs() < 1e-12, "{epoch}");
        near(0, 0.1);
        near(50, 0.2);
        near(100, 0.3 + 0.6 / (1.0 + 5f64.exp()));
        near(300, 0.6);
        near(500, 0.9);
        near(1000, 0.9);
        let mut buffer = ReplayBuffer::new(224, 1, 0);
        buffer.push(pairs(0..224));
        let count = |buffer: &mut ReplayBuffer, epoch| buffer.draw(28, epoch).0.len();
        // ⌊28 · 0.1/0.9⌋, ⌊28 · 0.2/0.8⌋, ⌊28 · 0.6/0.4⌋, and 252 of 224.
        assert_eq!([0, 50, 300, 600].map(|epoch| count(&mut buffer, epoch)), [3, 7, 42, 224]);
    }

    #[test]
    fn draws_are_without_replacement_and_repeat_with_their_seed() {
        let run = |seed, rank| {
            let mut buffer = ReplayBuffer::new(40, seed, rank);
            buffer.push(pairs(0..40));
            [buffer.draw(30, 300).0, buffer.draw(30, 300).0]
        };
        let draws = run(7, 0);
        for draw in &draws {
            let mut sorted: Vec<i64> = draw.iter().map(|p| *p as i64).collect();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), 40);
        }
        assert_ne!(draws[0], draws[1]);
        assert_eq!(draws, run(7, 0));
        assert_ne!(draws, run(7, 1));
        assert_ne!(draws, run(8, 0));
    }

    #[test]
    fn every_pair_is_drawn_as_often() {
        let mut buffer = ReplayBuffer::new(20, 3, 0);
        buffer.push(pairs(0..20));
        let mut hits = [0u32; 20];
        for _ in 0..4000 {
            buffer.draw(20, 50).0.iter().for_each(|p| hits[*p as usize] += 1);
        }
        // 5 of 20 in 4000 draws: 1000 each, standard deviation 27.
        assert!(hits.iter().all(|n| n.abs_diff(1000) < 140), "{hits:?}");
    }

    #[test]
    fn a_state_that_was_put_back_goes_on_alike() {
        let mut whole = ReplayBuffer::new(30, 5, 1);
        whole.push(pairs(0..47));
        whole.draw(10, 300);
        let state: BTreeMap<String, Tensor> = whole.state("sinkhorn/1").into_iter().collect();
        let mut other = ReplayBuffer::new(30, 5, 1);
        assert!(other.restore("sinkhorn/1", &state).unwrap());
        for buffer in [&mut whole, &mut other] {
            buffer.push(pairs(100..110));
        }
        assert_eq!(whole.draw(15, 300), other.draw(15, 300));
        assert!(!other.restore("sinkhorn/0", &state).unwrap());
        let error = ReplayBuffer::new(20, 5, 1).restore("sinkhorn/1", &state).unwrap_err().to_string();
        assert_eq!(error, "sinkhorn/1 is of another size: 30 predictions, and train.sinkhorn_buffer is 20");
    }

    #[test]
    fn one_that_grew_goes_on_behind_the_newest_and_a_wrong_place_is_refused() {
        let mut small = ReplayBuffer::new(30, 5, 1);
        small.push(pairs(0..47));
        let mut state: BTreeMap<String, Tensor> = small.state("a").into_iter().collect();
        let mut larger = ReplayBuffer::new(40, 5, 1);
        assert!(larger.restore("a", &state).unwrap());
        larger.push(pairs(47..70));
        let mut kept: Vec<f32> = larger.pairs.iter().map(|(p, _)| *p).collect();
        kept.sort_by(f32::total_cmp);
        assert_eq!(kept, (30..70).map(|i| i as f32).collect::<Vec<_>>(), "the oldest made room");
        for (place, expected) in [([-1i64, 0], "a/place is negative"), ([30, 0], "a/place is 30, and there are 30")] {
            state.insert("a/place".to_owned(), Tensor::from_slice(&place));
            let error = ReplayBuffer::new(30, 5, 1).restore("a", &state).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn what_is_packed_has_one_shape_and_all_of_the_state() {
        for count in [0, 3, 7] {
            let mut buffer = ReplayBuffer::new(5, 1, 0);
            buffer.push(pairs(0..count));
            let [pairs, place] = buffer.packed();
            assert_eq!((pairs.size(), place.size()), (vec![2, 5], vec![3]));
            let state: BTreeMap<String, Tensor> =
                ReplayBuffer::unpacked("a", &pairs, &place).unwrap().into_iter().collect();
            let mut other = ReplayBuffer::new(5, 1, 0);
            assert_eq!(other.restore("a", &state).unwrap(), count > 0);
            assert_eq!((other.pairs, other.next), (buffer.pairs, buffer.next));
        }
    }
}
