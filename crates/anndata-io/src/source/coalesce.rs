//! Arithmetic of byte ranges: `Coalescer` joins close ranges into one read; the functions extend ranges to blocks and split them into requests.
//! Invariant: every byte that is asked for is in exactly one request or block.

use std::ops::Range;

use crate::source::byte_source::ReadRange;

/// Joins byte ranges into reads: a range that begins no more than `max_gap` bytes behind the last read makes that read longer.
/// Up to some gap, reading the bytes in between costs less than another read.
///
/// Ranges come in ascending order of offsets; they may overlap. The reads follow one another in the buffer.
pub(crate) struct Coalescer<'r> {
    reads: &'r mut Vec<ReadRange>,
    max_gap: u64,
}

impl<'r> Coalescer<'r> {
    /// Adds to `reads`, whose last one can become longer.
    pub fn new(reads: &'r mut Vec<ReadRange>, max_gap: u64) -> Self {
        Self { reads, max_gap }
    }

    /// Adds a range to the reads; returns its offset in the buffer.
    #[inline]
    pub fn add(&mut self, offset: u64, len: u64) -> usize {
        let at = self.reads.last().map_or(0, ReadRange::buffer_end);
        match self.reads.last_mut() {
            Some(last) if offset >= last.offset && offset <= last.offset + last.len as u64 + self.max_gap => {
                let end = (offset + len).max(last.offset + last.len as u64);
                last.len = (end - last.offset) as usize;
                last.at + (offset - last.offset) as usize
            }
            _ => {
                self.reads.push(ReadRange { offset, at, len: len as usize });
                at
            }
        }
    }
}

/// Maximum size of a request to a server in bytes: the transfer takes much longer than the latency, and a large read is still
/// spread over many requests.
pub(crate) const MAX_REQUEST_BYTES: u64 = 1 << 20;

/// Gap between ranges of a remote object up to which they are requested together.
const MAX_GAP: u64 = 16 << 10;

/// Ranges to request so that all `wanted` bytes come: joined where they touch or are close, extended to whole blocks of `block`
/// bytes unless that is 0, none beyond `end`. The result ascends, and no range overlaps another.
pub(crate) fn covering_ranges(mut wanted: Vec<Range<u64>>, block: u64, end: u64) -> Vec<Range<u64>> {
    wanted.retain(|range| !range.is_empty());
    for range in &mut wanted {
        if let Some(first) = range.start.checked_div(block) {
            *range = first * block..range.end.next_multiple_of(block).min(end);
        }
    }
    wanted.sort_unstable_by_key(|range| range.start);
    let mut reads = Vec::with_capacity(wanted.len());
    let mut coalescer = Coalescer::new(&mut reads, if block > 0 { 0 } else { MAX_GAP });
    for range in &wanted {
        coalescer.add(range.start, range.end - range.start);
    }
    reads.into_iter().map(|read| read.offset..read.offset + read.len as u64).collect()
}

/// The parts of `range` that are in none of `there`, which ascend and do not overlap.
pub(crate) fn subtract(range: Range<u64>, there: impl IntoIterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    let mut at = range.start;
    for other in there {
        if other.start > at {
            left.push(at..other.start.min(range.end));
        }
        at = at.max(other.end);
    }
    left.push(at..range.end);
    left.retain(|range| range.start < range.end);
    left
}

/// Splits a range into requests of about the same size and of at most [`MAX_REQUEST_BYTES`] bytes. Unless `block` is 0, they begin
/// at multiples of `block`, which divides [`MAX_REQUEST_BYTES`].
pub(crate) fn split_into_requests(range: Range<u64>, block: u64) -> impl Iterator<Item = Range<u64>> {
    let len = range.end - range.start;
    let each = len.div_ceil(len.div_ceil(MAX_REQUEST_BYTES).max(1)).max(1);
    let each = if block > 0 { each.next_multiple_of(block) } else { each };
    (0..len.div_ceil(each)).map(move |n| range.start + n * each..(range.start + (n + 1) * each).min(range.end))
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "one range is what is asked for")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_that_are_close_are_read_together() {
        let mut reads = vec![ReadRange { offset: 500, at: 0, len: 10 }];
        let mut coalescer = Coalescer::new(&mut reads, 4);
        // Before the last read; within it, at its end, across the widest gap, beyond it.
        let offsets = [(3, 5), (3, 2), (8, 2), (14, 1), (20, 3)].map(|(offset, len)| coalescer.add(offset, len));
        assert_eq!(offsets, [10, 10, 15, 21, 22]);
        let read = |offset, at, len| ReadRange { offset, at, len };
        assert_eq!(reads, [read(500, 0, 10), read(3, 10, 12), read(20, 22, 3)]);
    }

    #[test]
    fn what_is_close_is_asked_for_at_once() {
        assert_eq!(covering_ranges(vec![50..60, 0..10, 5..20, 9..9], 0, 100), [0..60]);
        assert_eq!(covering_ranges(vec![0..10, 10 + MAX_GAP..20 + MAX_GAP], 0, 1 << 20), [0..20 + MAX_GAP]);
        assert_eq!(
            covering_ranges(vec![0..10, 11 + MAX_GAP..20 + MAX_GAP], 0, 1 << 20),
            [0..10, 11 + MAX_GAP..20 + MAX_GAP]
        );
        assert_eq!(covering_ranges(vec![5..6, 17..18, 95..96], 16, 99), [0..32, 80..96]);
        assert_eq!(covering_ranges(vec![97..98], 16, 99), [96..99]);
    }

    proptest! {
        #[test]
        fn all_that_is_wanted_is_asked_for_once(
            wanted in proptest::collection::vec((0u64..5_000_000, 0u64..3_000_000), 0..20),
            there in proptest::collection::btree_set(0u64..9, 0..5),
            block in prop_oneof![Just(0u64), Just(1u64 << 18)],
        ) {
            let end = 8_000_000;
            let wanted: Vec<Range<u64>> = wanted.into_iter().map(|(start, len)| start..start + len).collect();
            let there: Vec<Range<u64>> = there.into_iter().map(|n| n << 20..(n << 20) + (1 << 19)).collect();
            let mut asked: Vec<Range<u64>> = Vec::new();
            for range in covering_ranges(wanted.clone(), block, end) {
                let of_it = there.iter().filter(|t| t.start < range.end && t.end > range.start).cloned();
                for left in subtract(range.clone(), of_it) {
                    asked.extend(split_into_requests(left, block));
                }
            }
            for pair in asked.windows(2) {
                prop_assert!(pair[0].end <= pair[1].start);
            }
            for request in &asked {
                prop_assert!(!request.is_empty() && request.end - request.start <= MAX_REQUEST_BYTES && request.end <= end);
                prop_assert!(there.iter().all(|t| t.end <= request.start || t.start >= request.end));
            }
            // Every byte that is wanted is there or asked for: looked at where something begins or ends.
            let has = |at: u64| asked.iter().chain(&there).any(|range| range.contains(&at));
            for range in wanted.iter().filter(|range| !range.is_empty()) {
                let edges = asked.iter().chain(&there).flat_map(|r| [r.start, r.end]).filter(|at| range.contains(at));
                for at in edges.chain([range.start, range.end - 1]) {
                    prop_assert!(has(at), "{at} of {range:?}");
                }
            }
        }
    }
}
