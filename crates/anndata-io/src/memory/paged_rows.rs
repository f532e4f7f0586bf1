//! `PagedRows`: sparse rows by number, in pages that a `PagePool` lends. What was read for many rows is freed a few rows at a time, and its memory
//! is used again, whatever the lengths of rows.
//! Invariant: a row lies within one page; a page belongs to one set of rows, or to the pool.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::memory::narrow_rows::{
    ColumnWidth, HugePages, ValueWidth, column_width, value_width, write_columns, write_values,
};
use crate::{AnnDataError, NarrowRow};

/// Size of a page in bytes. A longer row has a page of its own, a multiple of this.
const PAGE_BYTES: usize = 64 << 10;
/// A row starts at a multiple of so many bytes.
const ROW_ALIGN: usize = 16;
/// The values of a row start at a multiple of so many bytes.
const VALUES_ALIGN: usize = size_of::<f32>();

/// Memory for [`PagedRows`] of any threads. It grows to as much as they had at one time, and is freed with the pool.
#[derive(Debug, Default)]
pub struct PagePool {
    spare: Mutex<Vec<HugePages>>,
    /// Bytes of all pages, those that rows have among them.
    bytes: AtomicU64,
}

impl PagePool {
    /// Bytes of all pages, those that rows have among them.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Locks the spare pages. Also after a panic they are whole.
    fn lock(&self) -> MutexGuard<'_, Vec<HugePages>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page with room for a row of `len` bytes, with anything in it.
    fn take(&self, len: usize) -> Result<HugePages, AnnDataError> {
        let mut spare = self.lock();
        // Nearly always the last one: that was in use most recently, so it may be in the caches.
        if let Some(at) = spare.iter().rposition(|page| page.bytes().len() >= len) {
            return Ok(spare.swap_remove(at));
        }
        drop(spare);
        let len = len.max(1).next_multiple_of(PAGE_BYTES);
        let page = HugePages::new(len).map_err(|_| AnnDataError::no_memory(len, "rows"))?;
        self.bytes.fetch_add(page.bytes().len() as u64, Ordering::Relaxed);
        Ok(page)
    }
}

/// Rows that are set by number, in any order. A row has 16-bit column indices if its own fit, and 8-bit or 16-bit values if all of its own are
/// whole numbers that fit: counts take 3 bytes a value instead of 8. Reading returns the original int32 and float32, bit for bit.
#[derive(Debug, Default)]
pub struct PagedRows {
    pages: Vec<HugePages>,
    /// Bytes of the last page that rows lie in.
    used: usize,
    rows: Vec<Option<RowPlace>>,
}

/// Where a row lies.
#[derive(Clone, Copy, Debug)]
struct RowPlace {
    page: u32,
    /// Offset in the page, in units of [`ROW_ALIGN`].
    start: u32,
    nnz: u32,
    columns: ColumnWidth,
    values: ValueWidth,
}

impl PagedRows {
    /// Room for the numbers below `rows`. None of the rows is set.
    pub fn new(rows: usize) -> Self {
        Self { pages: Vec::new(), used: 0, rows: vec![None; rows] }
    }

    /// Copies a row, with memory of `pool`: columns and values, of the same length. A row that was set before is replaced, and its memory stays in
    /// use. A number without room is not set. The caller calls [`crate::nontemporal::fence`] before other threads see the rows.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn set(
        &mut self,
        row: usize,
        (columns, values): (&[i32], &[f32]),
        pool: &PagePool,
    ) -> Result<(), AnnDataError> {
        let Some(place) = self.rows.get_mut(row) else { return Ok(()) };
        let (columns_in, values_in) = (column_width(columns), value_width(values));
        let values_at = (columns.len() * columns_in.bytes()).next_multiple_of(VALUES_ALIGN);
        let len = (values_at + values.len() * values_in.bytes()).next_multiple_of(ROW_ALIGN);
        if self.pages.last().is_none_or(|page| page.bytes().len() - self.used < len) {
            self.pages.push(pool.take(len)?);
            self.used = 0;
        }
        let page = self.pages.len() - 1;
        let (to_columns, to_values) = self.pages[page].bytes_mut()[self.used..self.used + len].split_at_mut(values_at);
        write_columns(columns, columns_in, &mut to_columns[..columns.len() * columns_in.bytes()]);
        write_values(values, values_in, &mut to_values[..values.len() * values_in.bytes()]);
        *place = Some(RowPlace {
            page: page as u32,
            start: (self.used / ROW_ALIGN) as u32,
            nnz: values.len() as u32,
            columns: columns_in,
            values: values_in,
        });
        self.used += len;
        Ok(())
    }

    /// Borrows a row; `None` if it was not set.
    #[inline]
    pub fn row(&self, row: usize) -> Option<NarrowRow<'_>> {
        let RowPlace { page, start, nnz, columns, values } = (*self.rows.get(row)?)?;
        let bytes = self.pages[page as usize].bytes();
        let (start, nnz) = (start as usize * ROW_ALIGN, nnz as usize);
        let columns_len = nnz * columns.bytes();
        let values_start = start + columns_len.next_multiple_of(VALUES_ALIGN);
        let of_columns = &bytes[start..start + columns_len];
        let of_values = &bytes[values_start..values_start + nnz * values.bytes()];
        Some(NarrowRow::new((of_columns, columns), (of_values, values)))
    }

    /// Gives all memory back to the pool that it is from. There is no room for rows any more.
    pub fn give_back(&mut self, pool: &PagePool) {
        let Self { mut pages, .. } = std::mem::take(self);
        pool.lock().append(&mut pages);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Columns and values of a row.
    type Row = (Vec<i32>, Vec<u32>);

    fn set(rows: &mut PagedRows, row: usize, (columns, bits): &Row, pool: &PagePool) {
        let values: Vec<f32> = bits.iter().map(|bits| f32::from_bits(*bits)).collect();
        rows.set(row, (columns, &values), pool).unwrap();
        crate::nontemporal::fence();
    }

    fn found(rows: &PagedRows, row: usize) -> Option<Row> {
        let (mut columns, mut values) = (Vec::new(), Vec::<f32>::new());
        rows.row(row)?.widen(&mut columns, &mut values);
        Some((columns, values.iter().map(|value| value.to_bits()).collect()))
    }

    /// Rows of all widths and of many lengths.
    fn row() -> impl Strategy<Value = Row> {
        let column = prop_oneof![Just(70_000), Just(20)];
        let len = prop_oneof![0usize..20, 3000usize..3010, Just(40_000)];
        (column, 0..3, any::<u32>(), len).prop_map(|(column, kind, from, len)| {
            let value = |at: u32| match kind {
                0 => f32::from(from.wrapping_add(at) as u8).to_bits(),
                1 => f32::from(from.wrapping_add(at) as u16).to_bits(),
                _ => from.wrapping_mul(2 * at + 1),
            };
            ((0..len as i32).map(|at| at + column).collect(), (0..len as u32).map(value).collect())
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        /// What went in comes out, bit for bit, in whatever order, also in pages that had other rows before.
        #[test]
        fn every_bit_is_kept(first in proptest::collection::vec(row(), 1..30), then in proptest::collection::vec(row(), 1..30)) {
            let pool = PagePool::default();
            for of in [&first, &then] {
                let mut rows = PagedRows::new(of.len());
                for (at, row) in of.iter().enumerate().rev() {
                    prop_assert!(rows.row(at).is_none());
                    set(&mut rows, at, row, &pool);
                }
                for (at, row) in of.iter().enumerate() {
                    prop_assert_eq!(found(&rows, at), Some(row.clone()));
                }
                rows.give_back(&pool);
                prop_assert!(rows.row(0).is_none());
            }
        }
    }

    /// Rows of `bytes` bytes: 16-bit columns and 8-bit values.
    fn counts(bytes: usize) -> Row {
        ((0..bytes as i32 / 3).collect(), vec![1f32.to_bits(); bytes / 3])
    }

    #[test]
    fn counts_take_three_bytes_and_memory_is_used_again() {
        let pool = PagePool::default();
        for lengths in [[4800; 100], [600; 100], [2400; 100]] {
            // Two sets take memory in turn, as blocks do.
            let mut sets = [PagedRows::new(50), PagedRows::new(50)];
            for (at, bytes) in lengths.into_iter().enumerate() {
                set(&mut sets[at % 2], at / 2, &counts(bytes), &pool);
            }
            assert!((0..50).all(|row| sets.iter().all(|of| found(of, row) == Some(counts(lengths[0])))));
            sets.iter_mut().for_each(|of| of.give_back(&pool));
            // 13 rows of 4800 bytes to a page of 64 KiB: 4 pages for 50 of them. All later rows have room in these.
            assert_eq!(pool.bytes(), 2 * 4 * PAGE_BYTES as u64);
        }
    }

    #[test]
    fn a_long_row_has_a_page_of_its_own_and_it_is_used_again() {
        let pool = PagePool::default();
        for _ in 0..3 {
            let mut rows = PagedRows::new(2);
            for row in 0..2 {
                set(&mut rows, row, &counts(150_000), &pool);
            }
            rows.give_back(&pool);
            assert_eq!(pool.bytes(), 2 * 3 * PAGE_BYTES as u64);
        }
    }

    #[test]
    fn a_number_without_room_is_not_set_and_takes_no_memory() {
        let pool = PagePool::default();
        let mut rows = PagedRows::default();
        set(&mut rows, 3, &counts(300), &pool);
        assert!(rows.row(3).is_none());
        assert_eq!(pool.bytes(), 0);
        rows.give_back(&pool);
    }
}
