use std::collections::BTreeMap;

use rand::SeedableRng;
use rand::rand_core::Rng;
use rand_pcg::Pcg64;
use tch::{TchError, Tensor};

/// Epochs of the published transitions.
const WARM_UP: f64 = 100.0;
const STABLE: f64 = 500.0;

/// The last predictions and labels, and which of them a batch is joined by.
///
/// Invariant: what is drawn is a function of the seed, the rank, the number of draws before it and the content.
///
/// Source: `torchcell/losses/mle_wasserstein.py`. A batch is put in *before* numbers are drawn, so that it can be drawn
/// from; the published code fails where a batch is larger than the buffer, this keeps its end.
#[derive(Clone, Debug)]
pub struct Buffer {
    seed: [u8; 32],
    size: usize,
    /// Pairs of a prediction and a label, a ring once it is full.
    pairs: Vec<(f32, f32)>,
    /// Where the next pair goes, once it is full.
    next: usize,
    /// Draws so far.
    draws: u64,
}

impl Buffer {
    /// An empty one for `size` pairs of `rank`, with the numbers of the model's `seed`.
    pub fn new(size: u64, seed: u64, rank: u32) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"sinkhorn buffer").update(&seed.to_le_bytes()).update(&rank.to_le_bytes());
        let size = usize::try_from(size).unwrap_or(usize::MAX).max(1);
        Self { seed: *hasher.finalize().as_bytes(), size, pairs: Vec::new(), next: 0, draws: 0 }
    }

    /// Put in pairs; the oldest make room.
    pub fn push(&mut self, pairs: impl IntoIterator<Item = (f32, f32)>) {
        for pair in pairs {
            if self.pairs.len() < self.size {
                self.pairs.push(pair);
            } else {
                self.pairs[self.next] = pair;
                self.next = (self.next + 1) % self.size;
            }
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Forget all, draws included.
    pub fn clear(&mut self) {
        self.pairs.clear();
        (self.next, self.draws) = (0, 0);
    }

    /// Whether it has been filled once.
    pub fn is_full(&self) -> bool {
        self.pairs.len() == self.size
    }

    /// Predictions and labels to join a batch of `current` pairs in `epoch`: n = ⌊current · w / (1 − w)⌋ different
    /// ones, or all there are.
    pub fn draw(&mut self, current: usize, epoch: u64) -> (Vec<f32>, Vec<f32>) {
        let weight = Self::weight(epoch);
        let wanted = (current as f64 * weight / (1.0 - weight)).floor() as usize;
        let mut random = Pcg64::from_seed(self.seed);
        // A stretch of the generator for each draw: as many words as a draw can take.
        random.advance(u128::from(self.draws) * self.size as u128);
        self.draws += 1;
        let mut order: Vec<usize> = (0..self.pairs.len()).collect();
        let count = wanted.min(order.len());
        for i in 0..count {
            let left = (order.len() - i) as u128;
            order.swap(i, i + ((u128::from(random.next_u64()) * left) >> 64) as usize);
        }
        order[..count].iter().map(|i| self.pairs[*i]).unzip()
    }

    /// Share w of what was drawn in the whole, in `epoch`, from 0.
    pub fn weight(epoch: u64) -> f64 {
        let epoch = epoch as f64;
        if epoch < WARM_UP {
            0.1 + 0.2 * (epoch / WARM_UP)
        } else if epoch < STABLE {
            let gone = (epoch - WARM_UP) / (STABLE - WARM_UP);
            0.3 + 0.6 / (1.0 + (-10.0 * (gone - 0.5)).exp())
        } else {
            0.9
        }
    }

    /// The state by name: `<name>/predictions` and `<name>/labels` float32, `<name>/place` int64 `[2]`.
    pub fn state(&self, name: &str) -> Vec<(String, Tensor)> {
        let (predictions, labels): (Vec<f32>, Vec<f32>) = self.pairs.iter().copied().unzip();
        vec![
            (format!("{name}/predictions"), Tensor::from_slice(&predictions)),
            (format!("{name}/labels"), Tensor::from_slice(&labels)),
            (format!("{name}/place"), Tensor::from_slice(&[self.next as i64, self.draws as i64])),
        ]
    }

    /// The same in shapes that the size alone decides, for other ranks: float32 `[2, size]` with zeros behind the pairs, and
    /// int64 `[3]`, the place and the number of pairs.
    pub fn packed(&self) -> [Tensor; 2] {
        let (mut predictions, mut labels): (Vec<f32>, Vec<f32>) = self.pairs.iter().copied().unzip();
        predictions.resize(self.size, 0.0);
        labels.resize(self.size, 0.0);
        let place = [self.next as i64, self.draws as i64, self.pairs.len() as i64];
        [Tensor::from_slice(&[predictions, labels].concat()).view([2, -1]), Tensor::from_slice(&place)]
    }

    /// The state by name of a buffer that was packed; nothing for an empty one.
    ///
    /// # Errors
    /// The shapes are not those of [`Self::packed`].
    pub fn unpacked(name: &str, pairs: &Tensor, place: &Tensor) -> Result<Vec<(String, Tensor)>, TchError> {
        let count = place.f_int64_value(&[2])?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let row = |i: i64| pairs.f_get(i)?.f_narrow(0, 0, count);
        Ok(vec![
            (format!("{name}/predictions"), row(0)?),
            (format!("{name}/labels"), row(1)?),
            (format!("{name}/place"), place.f_narrow(0, 0, 2)?),
        ])
    }

    /// Whether `state` has one of this name.
    pub fn is_in(name: &str, state: &BTreeMap<String, Tensor>) -> bool {
        state.contains_key(&format!("{name}/place"))
    }

    /// Take over a state; false where `state` has none of this name.
    ///
    /// # Errors
    /// It is of another size, the message says which, or it is damaged.
    pub fn restore(&mut self, name: &str, state: &BTreeMap<String, Tensor>) -> Result<bool, String> {
        let part = |part: &str| state.get(&format!("{name}/{part}"));
        let (Some(predictions), Some(labels), Some(place)) = (part("predictions"), part("labels"), part("place"))
        else {
            return Ok(false);
        };
        let read = || -> Result<_, TchError> {
            let floats = |t: &Tensor| Vec::<f32>::try_from(t);
            Ok((floats(predictions)?, floats(labels)?, Vec::<i64>::try_from(place)?))
        };
        let (predictions, labels, place) = read().map_err(|e| format!("{name}: {e}"))?;
        let &[next, draws] = place.as_slice() else { return Err(format!("{name}/place has another shape")) };
        let (count, size) = (predictions.len(), self.size);
        if count > size || labels.len() != count {
            return Err(format!("{name} is of another size: {count} predictions, and train.sinkhorn_buffer is {size}"));
        }
        let Some((next, draws)) = usize::try_from(next).ok().zip(u64::try_from(draws).ok()) else {
            return Err(format!("{name}/place is negative: {next}, {draws}"));
        };
        if next >= count.max(1) {
            return Err(format!("{name}/place is {next}, and there are {count} predictions"));
        }
        self.pairs = predictions.into_iter().zip(labels).collect();
        (self.next, self.draws) = (next, draws);
        if count < size {
            // It was a ring of a smaller size: the oldest come first where new ones are put behind.
            self.pairs.rotate_left(next);
            self.next = 0;
        }
        Ok(true)
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
        let mut buffer = Buffer::new(5, 1, 0);
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
        let near = |epoch, expected: f64| assert!((Buffer::weight(epoch) - expected).abs() < 1e-12, "{epoch}");
        near(0, 0.1);
        near(50, 0.2);
        near(100, 0.3 + 0.6 / (1.0 + 5f64.exp()));
        near(300, 0.6);
        near(500, 0.9);
        near(1000, 0.9);
        let mut buffer = Buffer::new(224, 1, 0);
        buffer.push(pairs(0..224));
        let count = |buffer: &mut Buffer, epoch| buffer.draw(28, epoch).0.len();
        // ⌊28 · 0.1/0.9⌋, ⌊28 · 0.2/0.8⌋, ⌊28 · 0.6/0.4⌋, and 252 of 224.
        assert_eq!([0, 50, 300, 600].map(|epoch| count(&mut buffer, epoch)), [3, 7, 42, 224]);
    }

    #[test]
    fn draws_are_without_replacement_and_repeat_with_their_seed() {
        let run = |seed, rank| {
            let mut buffer = Buffer::new(40, seed, rank);
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
        let mut buffer = Buffer::new(20, 3, 0);
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
        let mut whole = Buffer::new(30, 5, 1);
        whole.push(pairs(0..47));
        whole.draw(10, 300);
        let state: BTreeMap<String, Tensor> = whole.state("sinkhorn/1").into_iter().collect();
        let mut other = Buffer::new(30, 5, 1);
        assert!(other.restore("sinkhorn/1", &state).unwrap());
        for buffer in [&mut whole, &mut other] {
            buffer.push(pairs(100..110));
        }
        assert_eq!(whole.draw(15, 300), other.draw(15, 300));
        assert!(!other.restore("sinkhorn/0", &state).unwrap());
        let error = Buffer::new(20, 5, 1).restore("sinkhorn/1", &state).unwrap_err();
        assert_eq!(error, "sinkhorn/1 is of another size: 30 predictions, and train.sinkhorn_buffer is 20");
    }

    #[test]
    fn one_that_grew_goes_on_behind_the_newest_and_a_wrong_place_is_refused() {
        let mut small = Buffer::new(30, 5, 1);
        small.push(pairs(0..47));
        let mut state: BTreeMap<String, Tensor> = small.state("a").into_iter().collect();
        let mut larger = Buffer::new(40, 5, 1);
        assert!(larger.restore("a", &state).unwrap());
        larger.push(pairs(47..70));
        let mut kept: Vec<f32> = larger.pairs.iter().map(|(p, _)| *p).collect();
        kept.sort_by(f32::total_cmp);
        assert_eq!(kept, (30..70).map(|i| i as f32).collect::<Vec<_>>(), "the oldest made room");
        for (place, expected) in [([-1i64, 0], "a/place is negative"), ([30, 0], "a/place is 30, and there are 30")] {
            state.insert("a/place".to_owned(), Tensor::from_slice(&place));
            let error = Buffer::new(30, 5, 1).restore("a", &state).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn what_is_packed_has_one_shape_and_all_of_the_state() {
        for count in [0, 3, 7] {
            let mut buffer = Buffer::new(5, 1, 0);
            buffer.push(pairs(0..count));
            let [pairs, place] = buffer.packed();
            assert_eq!((pairs.size(), place.size()), (vec![2, 5], vec![3]));
            let state: BTreeMap<String, Tensor> = Buffer::unpacked("a", &pairs, &place).unwrap().into_iter().collect();
            let mut other = Buffer::new(5, 1, 0);
            assert_eq!(other.restore("a", &state).unwrap(), count > 0);
            assert_eq!((other.pairs, other.next), (buffer.pairs, buffer.next));
        }
    }
}
