use std::ops::Range;

use super::Permutation;

/// Rows cut into chunks of one size, anew in each file.
#[derive(Clone, Debug)]
pub(crate) struct Cuts {
    /// First row of each file, and the end.
    files: Vec<u64>,
    /// Chunks before each file, and all.
    before: Vec<u64>,
    chunk_rows: u64,
}

impl Cuts {
    /// Chunks of `chunk_rows` of `rows` rows in files that start at `starts`.
    pub(crate) fn new(rows: u64, starts: &[u64], chunk_rows: u64) -> Self {
        let mut files: Vec<u64> = starts.iter().copied().filter(|start| *start < rows).chain([0, rows]).collect();
        files.sort_unstable();
        files.dedup();
        let chunk_rows = chunk_rows.max(1);
        let counts = files.windows(2).map(|file| (file[1] - file[0]).div_ceil(chunk_rows));
        let before = std::iter::once(0).chain(counts.scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        }));
        Self { before: before.collect(), files, chunk_rows }
    }

    /// Number of chunks.
    pub(crate) fn len(&self) -> u64 {
        self.before.last().copied().unwrap_or(0)
    }

    /// Rows of a chunk.
    fn chunk(&self, chunk: u64) -> Range<u64> {
        let file = self.before.partition_point(|before| *before <= chunk) - 1;
        let first = self.files[file] + (chunk - self.before[file]) * self.chunk_rows;
        first..(first + self.chunk_rows).min(self.files[file + 1])
    }
}

/// What one rank reads in one epoch: chunks in order, so many of them a block.
///
/// The chunks of all files stand in the epoch's order, one behind the other; each rank has a run of that line of rows, all of
/// them equally long, so that the chunk at a border may be parted between two ranks and no row is with both. What fills up
/// the last rank is the start of the line again.
#[derive(Debug)]
pub(crate) struct Plan {
    chunks: Vec<Range<u64>>,
    /// Place of the rank's first row of each block, and the end.
    starts: Vec<u64>,
    per_block: usize,
}

impl Plan {
    /// The `rows` rows of the line from place `first` on. `order` is that of the chunks; none is as they are.
    pub(crate) fn new(cuts: &Cuts, order: Option<&Permutation>, first: u64, rows: u64, per_block: usize) -> Self {
        let mut chunks = Vec::new();
        let (mut skip, mut left) = (first, rows);
        let mut place = 0;
        while left > 0 && cuts.len() > 0 {
            let mut chunk = cuts.chunk(order.map_or(place, |order| order.at(place)));
            place = (place + 1) % cuts.len();
            let len = chunk.end - chunk.start;
            if skip >= len {
                skip -= len;
                continue;
            }
            chunk.start += std::mem::take(&mut skip);
            chunk.end = chunk.end.min(chunk.start + left);
            left -= chunk.end - chunk.start;
            chunks.push(chunk);
        }
        let starts = std::iter::once(0).chain(chunks.chunks(per_block).scan(0, |sum, block| {
            *sum += block.iter().map(|chunk| chunk.end - chunk.start).sum::<u64>();
            Some(*sum)
        }));
        Self { starts: starts.collect(), chunks, per_block }
    }

    /// Number of blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    /// Places of the rows of a block.
    pub(crate) fn places(&self, block: u64) -> Range<u64> {
        self.starts[block as usize]..self.starts[block as usize + 1]
    }

    /// Chunks of a block.
    pub(crate) fn chunks(&self, block: u64) -> &[Range<u64>] {
        let first = block as usize * self.per_block;
        &self.chunks[first..(first + self.per_block).min(self.chunks.len())]
    }

    /// The blocks that these places, of which there is at least one, lie in.
    pub(crate) fn blocks_of(&self, places: &Range<u64>) -> Range<u64> {
        let block = |place: u64| self.starts.partition_point(|start| *start <= place) as u64 - 1;
        block(places.start)..block(places.end - 1) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_do_not_reach_over_files() {
        let cuts = Cuts::new(23, &[0, 10, 20, 20, 99], 4);
        let chunks: Vec<Range<u64>> = (0..cuts.len()).map(|chunk| cuts.chunk(chunk)).collect();
        assert_eq!(chunks, [0..4, 4..8, 8..10, 10..14, 14..18, 18..20, 20..23]);
        assert_eq!(Cuts::new(0, &[0], 4).len(), 0);
    }

    #[test]
    fn ranks_have_runs_of_the_line_and_the_last_goes_on_at_its_start() {
        let cuts = Cuts::new(10, &[0], 4);
        let plan = |first| Plan::new(&cuts, None, first, 4, 2);
        let pairs = |chunks: &[Range<u64>]| chunks.iter().map(|chunk| (chunk.start, chunk.end)).collect::<Vec<_>>();
        assert_eq!(pairs(&plan(0).chunks), [(0, 4)]);
        assert_eq!(pairs(&plan(4).chunks), [(4, 8)]);
        assert_eq!(pairs(&plan(8).chunks), [(8, 10), (0, 2)]);
        let parted = Plan::new(&cuts, None, 3, 7, 2);
        assert_eq!((pairs(parted.chunks(0)), pairs(parted.chunks(1))), (vec![(3, 4), (4, 8)], vec![(8, 10)]));
        assert_eq!((parted.blocks(), parted.places(1)), (2, 5..7));
        assert_eq!((parted.blocks_of(&(4..5)), parted.blocks_of(&(4..6))), (0..1, 0..2));
        // A rank's share may be more than there is.
        let twice = Plan::new(&cuts, None, 9, 12, 9);
        assert_eq!(pairs(&twice.chunks), [(9, 10), (0, 4), (4, 8), (8, 10), (0, 1)]);
    }
}
