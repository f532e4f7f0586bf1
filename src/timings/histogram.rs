/// Bins of an octave: values of one bin differ by less than 0.1 %.
const BINS: usize = 1024;
/// Bits of a double below those that choose the bin.
const SHIFT: u32 = 52 - BINS.trailing_zeros();

/// Counts and exact sums of times in bins less than 0.1 % wide, for series too long to be sorted.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    /// One for each power of two that occurs.
    octaves: std::collections::BTreeMap<u64, Box<[Bin; BINS]>>,
    pub count: u64,
    pub smallest: Option<f64>,
    pub largest: f64,
}

/// Values of one bin.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bin {
    pub count: u64,
    pub sum: f64,
}

impl Histogram {
    /// Count some values, none of them negative.
    pub fn add(&mut self, values: &[f64]) {
        for value in values {
            let bin = (value.to_bits() >> SHIFT) as usize;
            let octave = self.octaves.entry((bin / BINS) as u64).or_insert_with(|| Box::new([Bin::default(); BINS]));
            let bin = &mut octave[bin % BINS];
            bin.count += 1;
            bin.sum += value;
            self.smallest = Some(self.smallest.map_or(*value, |s| s.min(*value)));
            self.largest = self.largest.max(*value);
        }
        self.count += values.len() as u64;
    }

    /// Bins that hold something, from the fastest.
    pub fn bins(&self) -> impl Iterator<Item = Bin> + '_ {
        self.octaves.values().flat_map(|octave| octave.iter().copied()).filter(|bin| bin.count > 0)
    }
}
