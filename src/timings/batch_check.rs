//! Whether the batches of a series are numbered 0, 1, 2 …

use std::collections::BTreeMap;

use serde::Serialize;

/// Batch numbers per page of the bitmap.
const PAGE: u64 = 1 << 16;
/// Maximum number of pages of all series together: 2³¹ batches, 256 MiB.
pub const MAX_PAGES: usize = 1 << 15;

/// Whether the batches of a series are numbered 0, 1, 2… without gap or repetition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BatchCheck {
    /// Numbers between 0 and the largest that do not occur.
    pub missing: u64,
    /// The smallest of them.
    pub first_missing: Option<u64>,
    /// Rows whose number occurred before.
    pub doubled: u64,
    /// Number of the first such row in the file.
    pub first_doubled: Option<u64>,
    /// False where a row has a smaller number than one before.
    pub in_order: bool,
    /// Rows that could not be checked, because their numbers are too far apart.
    pub unchecked: u64,
}

impl BatchCheck {
    /// Whether all numbers occur once.
    pub fn passed(&self) -> bool {
        self.missing == 0 && self.doubled == 0 && self.unchecked == 0
    }
}

/// Checks the batch numbers of a series, row by row. Needs no memory while they count up from 0, and a bit per batch from then on.
#[derive(Debug, Default)]
pub struct BatchChecker {
    /// The series begins with 0..leading in order.
    leading: u64,
    pages: BTreeMap<u64, Box<[u64]>>,
    rows: u64,
    largest: u64,
    doubled: u64,
    first_doubled: Option<u64>,
    unchecked: u64,
    disordered: bool,
}

impl BatchChecker {
    /// Add the batch number of the next row. True if no number before is larger. A new page of the bitmap is taken from the `free` ones.
    pub fn add(&mut self, batch: u64, free: &mut usize) -> bool {
        let follows = self.rows == 0 || batch >= self.largest;
        self.disordered |= !follows;
        self.rows += 1;
        self.largest = self.largest.max(batch);
        if batch == self.leading && self.pages.is_empty() {
            self.leading += 1;
        } else if batch < self.leading || !self.mark(batch, free) {
            self.doubled += 1;
            self.first_doubled.get_or_insert(batch);
        }
        follows
    }

    /// Largest number so far.
    pub const fn largest(&self) -> u64 {
        self.largest
    }

    /// Whether no row had a smaller number than one before.
    pub const fn in_order(&self) -> bool {
        !self.disordered
    }

    /// Mark a number; false if it was marked.
    fn mark(&mut self, batch: u64, free: &mut usize) -> bool {
        if !self.pages.contains_key(&(batch / PAGE)) {
            let Some(rest) = free.checked_sub(1) else {
                self.unchecked += 1;
                return true;
            };
            *free = rest;
        }
        let page = self.pages.entry(batch / PAGE).or_insert_with(|| vec![0; (PAGE / 64) as usize].into());
        let (word, bit) = ((batch % PAGE / 64) as usize, 1 << (batch % 64));
        let fresh = page[word] & bit == 0;
        page[word] |= bit;
        fresh
    }

    /// The result for all rows so far.
    pub fn result(&self) -> BatchCheck {
        let distinct = self.rows - self.doubled;
        let missing = if self.rows == 0 || self.unchecked > 0 { 0 } else { self.largest + 1 - distinct };
        BatchCheck {
            missing,
            first_missing: (missing > 0).then(|| self.first_missing()),
            doubled: self.doubled,
            first_doubled: self.first_doubled,
            in_order: !self.disordered,
            unchecked: self.unchecked,
        }
    }

    fn first_missing(&self) -> u64 {
        let mut batch = self.leading;
        while let Some(page) = self.pages.get(&(batch / PAGE)) {
            let word = page[(batch % PAGE / 64) as usize] >> (batch % 64);
            let free = u64::from((!word).trailing_zeros());
            if free < 64 - batch % 64 {
                return batch + free;
            }
            batch += 64 - batch % 64;
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(batches: impl IntoIterator<Item = u64>) -> BatchCheck {
        let mut checker = BatchChecker::default();
        batches.into_iter().for_each(|batch| {
            checker.add(batch, &mut MAX_PAGES.clone());
        });
        checker.result()
    }

    #[test]
    fn what_is_missing_or_doubled_is_found_wherever_it_is() {
        assert!(check(0..200_000).passed());
        assert!(check((0..200_000).rev()).passed());
        assert!(!check((0..200_000).rev()).in_order);
        let gap = check((0..100).chain(70_000..70_010));
        assert_eq!((gap.missing, gap.first_missing, gap.doubled), (69_900, Some(100), 0));
        let late = check((0..200_000).filter(|b| *b != 131_071));
        assert_eq!((late.missing, late.first_missing), (1, Some(131_071)));
        let twice = check((0..10).chain([12, 12, 3]));
        assert_eq!(
            (twice.doubled, twice.first_doubled, twice.missing, twice.first_missing),
            (2, Some(12), 2, Some(10))
        );
        let from_five = check(5..10);
        assert_eq!((from_five.missing, from_five.first_missing, from_five.in_order), (5, Some(0), true));
    }

    #[test]
    fn pages_are_shared_by_all_series() {
        let mut free = 3;
        let mut checkers = [BatchChecker::default(), BatchChecker::default()];
        for checker in &mut checkers {
            (0..5).for_each(|page| {
                checker.add(1 + page * PAGE, &mut free);
            });
        }
        assert_eq!((free, checkers.each_ref().map(|c| c.result().unchecked)), (0, [2, 5]));
    }
}
