/// Single batches of a series, for pictures: the slowest, and an even choice of the others.
#[derive(Clone, Debug, Default)]
pub struct Dots {
    /// Batch number and time in s, of the whole series.
    pub whole: Vec<(u64, f64)>,
    /// The same of a range of batches.
    pub detail: Vec<(u64, f64)>,
    /// How many of `whole` are there for being the slowest.
    pub slowest: usize,
}

/// Dots of a series that are among its slowest, at most.
const SLOWEST: usize = 2000;
/// Dots of a series that are not, about.
const OTHERS: u64 = 700;
/// Most dots of a range.
const DETAIL: usize = 5000;

/// Chooses dots as the batches of a series go by.
#[derive(Debug)]
pub(super) struct Chooser {
    rows: u64,
    range: std::ops::Range<u64>,
    seen: u64,
    /// Bits of the time and the batch: for times above 0 the bits are in the order of the times.
    slowest: std::collections::BinaryHeap<std::cmp::Reverse<(u64, u64)>>,
    others: Vec<(u64, f64)>,
    detail: Vec<(u64, f64)>,
}

impl Chooser {
    pub fn new(rows: u64, range: std::ops::Range<u64>) -> Self {
        Self {
            rows,
            range,
            seen: 0,
            slowest: std::collections::BinaryHeap::new(),
            others: Vec::new(),
            detail: Vec::new(),
        }
    }

    pub fn add(&mut self, times: &[f64]) {
        // Of short series, all; else a fifth of the batches are kept as slow at most.
        let most = SLOWEST.min((self.rows as usize).div_ceil(5));
        let strata = OTHERS.min(self.rows);
        for (batch, time) in (self.seen..).zip(times) {
            if self.range.contains(&batch) && self.detail.len() < DETAIL {
                self.detail.push((batch, *time));
            }
            let key = std::cmp::Reverse((time.to_bits(), batch));
            if self.slowest.len() < most {
                self.slowest.push(key);
            } else if self.slowest.peek().is_some_and(|least| key < *least) {
                self.slowest.pop();
                self.slowest.push(key);
            }
            // One of each stratum, at a place in it that is not the same modulo anything (multiples of the golden ratio).
            let stratum = batch * strata / self.rows.max(1);
            let (from, to) = ((stratum * self.rows).div_ceil(strata), ((stratum + 1) * self.rows).div_ceil(strata));
            let place = from + ((to - from) as f64 * (stratum as f64 * 0.618_033_988_749_895).fract()) as u64;
            if batch == place {
                self.others.push((batch, *time));
            }
        }
        self.seen += times.len() as u64;
    }

    pub fn result(self) -> Dots {
        let mut whole: Vec<(u64, f64)> =
            self.slowest.into_iter().map(|std::cmp::Reverse((bits, batch))| (batch, f64::from_bits(bits))).collect();
        let slowest = whole.len();
        whole.extend(self.others);
        whole.sort_by_key(|(batch, _)| *batch);
        whole.dedup_by_key(|(batch, _)| *batch);
        Dots { whole, detail: self.detail, slowest }
    }
}
