//! `Block`: the rows of a load request in memory, or being read. Sparse rows lie together with those that batches get at about the same time, and
//! their memory is free as soon as these batches are built.
//! Invariant: batches look rows up only after all parts of the block were read.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use anndata_io::{
    CsrView, DenseRows, Form, PagePool, PagedRows, Prefetch, ReadRows, RequestError, RowView, Rows, nontemporal,
};

use crate::CellError;
use crate::chunks::LoadRequest;

/// Groups of a block, at most. Memory is freed a group at a time, so with more of them it is free earlier; but each has a page that is not full.
const MAX_GROUPS: u64 = 32;

/// A load request whose rows are in memory, or being read.
///
/// Every range of the request is cut into the same number of parts, each of which is one read. There are about as many parts
/// in all as the block has batches, so that each batch reads as much as the others.
#[derive(Debug)]
pub struct Block {
    /// The ranges, and the order in which batches get their rows.
    pub request: Arc<LoadRequest>,
    /// Parts of a range; not 0.
    parts: usize,
    rows: BlockRows,
    /// Remote reads in flight; dropped with the block.
    ahead: OnceLock<Prefetch>,
    /// A thread has started the remote reads.
    requested: AtomicBool,
}

#[derive(Debug)]
enum BlockRows {
    /// Dense rows of each part that was read, in the buffer that they were read into: parts of the first range, then those of the second.
    Parts(Vec<OnceLock<DenseRows>>),
    /// Sparse rows.
    Groups(Groups),
}

impl Block {
    /// A block whose ranges are cut into `parts` parts each. Its rows have the form `form` and go to `batches` batches; the first `skipped` rows of
    /// the order go to none.
    pub fn new(request: Arc<LoadRequest>, form: Form, parts: usize, batches: u64, skipped: usize) -> Self {
        let rows = match form {
            Form::Dense => BlockRows::Parts((0..request.ranges.len() * parts).map(|_| OnceLock::new()).collect()),
            Form::Sparse => BlockRows::Groups(Groups::new(&request, batches.clamp(1, MAX_GROUPS) as usize, skipped)),
        };
        Self { request, parts, rows, ahead: OnceLock::new(), requested: AtomicBool::new(false) }
    }

    /// Number of parts of all ranges.
    pub fn parts(&self) -> usize {
        self.request.ranges.len() * self.parts
    }

    /// Start remote reads of all rows, unless another thread did.
    pub fn request_ahead(&self, reader: &mut dyn ReadRows) -> Result<(), CellError> {
        if !self.requested.swap(true, Ordering::Relaxed) {
            let parts: Vec<Range<u64>> = (0..self.parts()).map(|part| self.range(part)).collect();
            // Requested once, so it is empty.
            let _ = self.ahead.set(reader.will_need(&parts)?);
        }
        Ok(())
    }

    /// Rows of each part of a range but the last ones; not 0.
    fn part_rows(&self, range: usize) -> u64 {
        let range = &self.request.ranges[range];
        (range.end - range.start).div_ceil(self.parts as u64).max(1)
    }

    /// Rows of a part; empty if a range is shorter than it has parts.
    pub fn range(&self, part: usize) -> Range<u64> {
        let (number, part) = (part / self.parts, (part % self.parts) as u64);
        let (range, rows) = (&self.request.ranges[number], self.part_rows(number));
        let start = |part: u64| (range.start + part * rows).min(range.end);
        start(part)..start(part + 1)
    }

    /// Takes all rows of a part. Sparse rows are copied to their groups; dense rows are moved out of `rows`, for [`Self::set_part`].
    ///
    /// # Errors
    /// There is not enough memory; the rows have another form than the store said.
    pub fn take(&self, part: usize, rows: &mut Rows, pages: &PagePool) -> Result<Option<DenseRows>, CellError> {
        let other = |form: Form| CellError::AnnData(RequestError::OtherForm { form }.into());
        match (&self.rows, rows) {
            (BlockRows::Groups(groups), Rows::Sparse(rows)) => {
                let number = part / self.parts;
                let first = self.range(part).start - self.request.ranges[number].start;
                groups.copy(number, first as usize, rows.view(), pages)?;
                Ok(None)
            }
            (BlockRows::Parts(_), Rows::Dense(rows)) => {
                let columns = rows.columns;
                Ok(Some(std::mem::replace(rows, DenseRows { columns, data: Vec::new() })))
            }
            (BlockRows::Groups(_), Rows::Dense(_)) => Err(other(Form::Dense)),
            (BlockRows::Parts(_), Rows::Sparse(_)) => Err(other(Form::Sparse)),
        }
    }

    /// Puts dense rows of a part into the block.
    pub fn set_part(&self, part: usize, rows: DenseRows) {
        if let BlockRows::Parts(parts) = &self.rows {
            // A part is claimed by one thread, so it is empty.
            let _ = parts[part].set(rows);
        }
    }

    /// The rows at these indices of the order, for as long as a batch looks them up.
    pub fn rows(&self, own: &Range<usize>) -> BatchRows<'_> {
        match &self.rows {
            BlockRows::Parts(parts) => BatchRows::Parts { block: self, parts },
            BlockRows::Groups(groups) => {
                let of_batch = groups.of(own);
                let first = of_batch.start;
                BatchRows::Groups {
                    rows: groups.rows,
                    first,
                    groups: of_batch.map(|group| groups.read(group)).collect(),
                }
            }
        }
    }

    /// Positions of each group's rows among the rank's rows of the epoch; nothing for dense rows, whose memory is not freed by groups.
    pub fn group_positions(&self) -> impl Iterator<Item = Range<u64>> {
        let (rows, len) = match &self.rows {
            BlockRows::Parts(_) => (1, 0),
            BlockRows::Groups(groups) => (groups.rows, self.request.order.len()),
        };
        let start = self.request.start;
        let at = move |row: usize| start + row as u64;
        (0..len).step_by(rows).map(move |first| at(first)..at((first + rows).min(len)))
    }

    /// Groups with rows of the batch at these positions of the epoch.
    pub fn groups_of(&self, positions: &Range<u64>) -> Range<usize> {
        match &self.rows {
            BlockRows::Parts(_) => 0..0,
            BlockRows::Groups(groups) => groups.of(&self.request.within(positions)),
        }
    }

    /// Gives the memory of a group back, whose rows no batch will look up.
    pub fn give_back(&self, group: usize, pages: &PagePool) {
        if let BlockRows::Groups(groups) = &self.rows {
            groups.write(group).give_back(pages);
        }
    }

    /// Ends the block: gives the memory of all groups back, or returns the buffers of all parts.
    pub fn end(self, pages: &PagePool) -> Vec<DenseRows> {
        match self.rows {
            BlockRows::Parts(parts) => parts.into_iter().filter_map(OnceLock::into_inner).collect(),
            BlockRows::Groups(groups) => {
                (0..groups.groups.len()).for_each(|group| groups.write(group).give_back(pages));
                Vec::new()
            }
        }
    }
}

/// Sparse rows by the batches that get them: rows that follow each other in the order make a group.
#[derive(Debug)]
struct Groups {
    /// Rows of a group but the last; not 0.
    rows: usize,
    groups: Vec<RwLock<PagedRows>>,
    /// Index in `order` of the first row of each range.
    starts: Vec<usize>,
    /// Index in the order of batches of each row of the ranges; [`NO_BATCH`] for a row that none gets.
    order: Vec<u32>,
}

/// In place of an index: the row lies between listed ones. A block has fewer rows than this.
const NO_BATCH: u32 = u32::MAX;

impl Groups {
    fn new(request: &LoadRequest, groups: usize, skipped: usize) -> Self {
        let len = request.order.len();
        let rows = len.div_ceil(groups).max(1);
        let group = |start: usize| {
            let end = (start + rows).min(len);
            // Rows that no batch gets are not held.
            RwLock::new(PagedRows::new(if end <= skipped { 0 } else { end - start }))
        };
        let groups = (0..len).step_by(rows).map(group).collect();
        let mut starts = Vec::with_capacity(request.ranges.len());
        let mut total = 0;
        for range in &request.ranges {
            starts.push(total);
            total += (range.end - range.start) as usize;
        }
        let mut order = vec![NO_BATCH; total];
        for (index, (range, row)) in request.order.iter().enumerate() {
            order[starts[*range as usize] + *row as usize] = index as u32;
        }
        Self { rows, groups, starts, order }
    }

    /// Groups of the rows at these indices of the order.
    fn of(&self, own: &Range<usize>) -> Range<usize> {
        own.start / self.rows..own.end.div_ceil(self.rows)
    }

    /// Locks a group, also after a panic: rows that were half copied are read and copied again, or never looked up.
    fn write(&self, group: usize) -> RwLockWriteGuard<'_, PagedRows> {
        self.groups[group].write().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, group: usize) -> RwLockReadGuard<'_, PagedRows> {
        self.groups[group].read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copy rows of a range, from its row `first` on.
    fn copy(&self, range: usize, first: usize, rows: CsrView<'_>, pages: &PagePool) -> Result<(), CellError> {
        let start = self.starts[range] + first;
        let order = &self.order[start..start + rows.indptr.len() - 1];
        // Index in the order, and row.
        let mut by_group: Vec<(u32, u32)> =
            order.iter().copied().zip(0..).filter(|(index, _)| *index != NO_BATCH).collect();
        by_group.sort_unstable();
        let group = |index: u32| index as usize / self.rows;
        for of_group in by_group.chunk_by(|a, b| group(a.0) == group(b.0)) {
            let mut to = self.write(group(of_group[0].0));
            for (index, row) in of_group {
                to.set(*index as usize % self.rows, rows.row(*row as usize), pages)?;
            }
        }
        // Another thread sees the rows once it knows that the part was read.
        nontemporal::fence();
        Ok(())
    }
}

/// The rows of a block, while one batch looks them up.
pub enum BatchRows<'b> {
    /// Dense rows.
    Parts {
        /// The block.
        block: &'b Block,
        /// Its rows.
        parts: &'b [OnceLock<DenseRows>],
    },
    /// Sparse rows.
    Groups {
        /// Rows of a group.
        rows: usize,
        /// Index of the first group.
        first: usize,
        /// The groups that have rows of the batch.
        groups: Vec<RwLockReadGuard<'b, PagedRows>>,
    },
}

impl BatchRows<'_> {
    /// The row at an index of the order; `None` if it was not read.
    pub fn row(&self, index: usize) -> Option<RowView<'_>> {
        match self {
            Self::Parts { block, parts } => {
                let (range, row) = block.request.order[index];
                let (range, row) = (range as usize, row as usize);
                let rows = block.part_rows(range) as usize;
                let part = parts[range * block.parts + row / rows].get()?;
                let (row, columns) = (row % rows, part.columns);
                Some(RowView::Dense(&part.data[row * columns..(row + 1) * columns]))
            }
            Self::Groups { rows, first, groups } => {
                let group = groups.get((index / rows).checked_sub(*first)?)?;
                group.row(index % rows).map(RowView::Narrow)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use anndata_io::CsrRows;

    use super::*;

    const ROWS: u64 = 96;
    const PARTS: usize = 3;

    /// Four ranges of 24 rows, each cut into three parts, and their rows in an order in which no two neighbours stay together.
    fn request() -> Arc<LoadRequest> {
        let order = (0..ROWS as u32).map(|index| index * 35 % ROWS as u32).map(|row| (row / 24, row % 24)).collect();
        Arc::new(LoadRequest { start: 1000, ranges: (0..4).map(|range| range * 50..range * 50 + 24).collect(), order })
    }

    /// A row of the store: so many values of one.
    fn row(number: u64) -> Vec<f32> {
        vec![1.0; 1000 + number as usize]
    }

    fn read(block: &Block, part: usize, pages: &PagePool) {
        let mut rows = CsrRows::default();
        block.range(part).for_each(|number| rows.push_dense(&row(number)));
        assert!(block.take(part, &mut Rows::Sparse(rows), pages).unwrap().is_none());
    }

    /// Values of the row at an index of the order.
    fn values(block: &Block, index: usize) -> Option<usize> {
        let rows = block.rows(&(index..index + 1));
        let row = rows.row(index)?;
        let RowView::Narrow(row) = row else { panic!("{row:?}") };
        let (mut columns, mut values) = (Vec::new(), Vec::new());
        row.widen(&mut columns, &mut values);
        Some(values.len())
    }

    #[test]
    fn rows_lie_with_those_of_their_batches_and_their_memory_is_free_with_these() {
        let (request, pages) = (request(), PagePool::default());
        let block = Block::new(Arc::clone(&request), Form::Sparse, PARTS, 8, 0);
        assert_eq!((block.parts(), block.group_positions().count()), (12, 8));
        assert_eq!((block.groups_of(&(990..1013)), block.groups_of(&(1036..1060))), (0..2, 3..5));
        // Parts are read in any order, one of them twice, as after an error.
        [3, 1, 4, 0, 11, 9, 2, 6, 5, 8, 7, 10, 3].into_iter().for_each(|part| read(&block, part, &pages));
        for index in 0..ROWS as usize {
            assert_eq!(values(&block, index), Some(1000 + request.row(index) as usize));
        }
        let full = pages.bytes();
        (0..4).for_each(|group| block.give_back(group, &pages));
        assert_eq!((values(&block, 47), values(&block, 48).is_some()), (None, true));
        // A second block begins with the memory of the first half of this one.
        let next = Block::new(request, Form::Sparse, PARTS, 4, 0);
        (0..6).for_each(|part| read(&next, part, &pages));
        assert_eq!(pages.bytes(), full);
        assert!(block.end(&pages).is_empty() && next.end(&pages).is_empty());
    }

    #[test]
    fn rows_before_the_first_batch_are_not_held() {
        let pages = PagePool::default();
        let block = Block::new(request(), Form::Sparse, PARTS, 8, 60);
        (0..12).for_each(|part| read(&block, part, &pages));
        let held: Vec<bool> = (0..ROWS as usize).map(|index| values(&block, index).is_some()).collect();
        assert_eq!(held, (0..ROWS as usize).map(|index| index >= 60).collect::<Vec<_>>());
    }

    #[test]
    fn rows_between_listed_ones_are_not_held() {
        let pages = PagePool::default();
        let request = LoadRequest { start: 0, ranges: std::iter::once(5..9).collect(), order: vec![(0, 3), (0, 0)] };
        let block = Block::new(Arc::new(request), Form::Sparse, 1, 1, 0);
        read(&block, 0, &pages);
        assert_eq!((values(&block, 0), values(&block, 1)), (Some(1008), Some(1005)));
    }

    #[test]
    fn rows_of_another_form_are_an_error() {
        let (pages, mut dense) = (PagePool::default(), Rows::Dense(DenseRows { columns: 1, data: vec![1.0; 8] }));
        let block = |form| Block::new(request(), form, PARTS, 8, 0);
        assert!(block(Form::Sparse).take(0, &mut dense, &pages).is_err());
        assert!(block(Form::Dense).take(0, &mut Rows::Sparse(CsrRows::default()), &pages).is_err());
        let rows = block(Form::Dense).take(0, &mut dense, &pages).unwrap();
        assert_eq!(rows, Some(DenseRows { columns: 1, data: vec![1.0; 8] }));
    }
}
