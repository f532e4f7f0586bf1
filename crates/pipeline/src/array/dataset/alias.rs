/// Draws numbers `0..n` in proportion to weights, in constant time (Walker 1977; built as Vose 1991).
pub(super) struct Alias {
    slots: Vec<Slot>,
}

#[derive(Clone, Copy)]
struct Slot {
    /// Below this part of the slot (of 2^32) it is the slot's own number.
    own: u32,
    other: u32,
}

/// A whole slot, in units of its 2^32nd parts.
const WHOLE: f64 = 4_294_967_296.0;

impl Alias {
    /// Weights are finite and not negative, and not all 0; there are fewer than 2^32.
    pub(super) fn new(weights: &[f64]) -> Self {
        let n = weights.len();
        let total: f64 = weights.iter().sum();
        let mut share: Vec<f64> = weights.iter().map(|weight| weight / total * n as f64).collect();
        let mut slots: Vec<Slot> = (0..n as u32).map(|own| Slot { own: u32::MAX, other: own }).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..n).partition(|&i| share[i] < 1.0);
        while let (Some(low), Some(&high)) = (small.pop(), large.last()) {
            slots[low] = Slot { own: (share[low] * WHOLE) as u32, other: high as u32 };
            share[high] -= 1.0 - share[low];
            if share[high] < 1.0 {
                large.pop();
                small.push(high);
            }
        }
        Self { slots }
    }

    /// The number that a uniform 32-bit word stands for.
    pub(super) fn at(&self, word: u32) -> u32 {
        let place = u64::from(word) * self.slots.len() as u64;
        let (index, part) = ((place >> 32) as u32, place as u32);
        let slot = self.slots[index as usize];
        if part < slot.own { index } else { slot.other }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Over all words, every number comes as often as its weight says.
        #[test]
        fn numbers_come_in_proportion(weights in prop::collection::vec(0.0f64..1.0, 1..200)) {
            let total: f64 = weights.iter().sum();
            prop_assume!(total > 0.01);
            let alias = Alias::new(&weights);
            let n = weights.len() as f64;
            let mut share = vec![0.0; weights.len()];
            for (index, slot) in alias.slots.iter().enumerate() {
                let own = (f64::from(slot.own) / WHOLE).clamp(0.0, 1.0);
                share[index] += own / n;
                share[slot.other as usize] += (1.0 - own) / n;
            }
            for (weight, share) in weights.iter().zip(share) {
                prop_assert!((weight / total - share).abs() < 1e-8, "{} {share}", weight / total);
            }
        }
    }
}
