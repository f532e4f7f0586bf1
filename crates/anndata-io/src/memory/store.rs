use std::ops::Range;

use super::read::Plan;
use super::{NarrowRows, Resident};
use crate::AnnDataError;
use crate::Row;
use crate::{ArrayStore, CsrRows, Form, Labels, ReadRows, Rows, Wanted};

/// All rows of another store, in memory: CSR, counts in 3 bytes a value.
///
/// Labels are asked of the store that they were read from.
#[derive(Debug)]
pub struct MemoryStore {
    source: Box<dyn ArrayStore>,
    pieces: Vec<NarrowRows>,
    /// Rows of each piece but the last; not 0.
    piece: u64,
}

impl MemoryStore {
    /// Read all rows of `source` with `threads` threads into at most `free` bytes of memory (`u64::MAX` where it is not known
    /// how much may be taken). Zeros of dense rows are left out.
    ///
    /// # Errors
    /// The rows need more memory (how much, shows as they are read, since it depends on the values); they cannot be read.
    pub fn read(source: Box<dyn ArrayStore>, threads: usize, free: u64) -> Result<Self, AnnDataError> {
        let plan = Plan::new(source.as_ref(), threads.max(1), free);
        let (pieces, piece) = (plan.read()?, plan.piece());
        Ok(Self { source, pieces, piece })
    }

    fn rows(&self) -> Resident<'_> {
        Resident::Narrow { pieces: &self.pieces, piece: self.piece }
    }
}

impl ArrayStore for MemoryStore {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn starts(&self) -> Vec<u64> {
        self.source.starts()
    }

    fn genes(&self) -> &[String] {
        self.source.genes()
    }

    fn form(&self) -> Form {
        Form::Sparse
    }

    fn stored_bytes(&self) -> u64 {
        self.source.stored_bytes()
    }

    fn most_values(&self) -> Option<u64> {
        Some(self.rows().nnz())
    }

    fn name(&self) -> String {
        self.source.name()
    }

    fn labels(&self, column: &str) -> Result<Labels, AnnDataError> {
        self.source.labels(column)
    }

    fn numbers(&self, column: &str) -> Result<Vec<f64>, AnnDataError> {
        self.source.numbers(column)
    }

    fn resident(&self) -> Option<Resident<'_>> {
        Some(self.rows())
    }

    fn reader(&self) -> Result<Box<dyn ReadRows + '_>, AnnDataError> {
        Ok(Box::new(MemoryReader { rows: self.rows(), count: self.len() }))
    }
}

/// Copies rows.
struct MemoryReader<'m> {
    rows: Resident<'m>,
    count: u64,
}

impl MemoryReader<'_> {
    fn check(&self, row: u64) -> Result<(), AnnDataError> {
        let count = self.count;
        if row <= count {
            return Ok(());
        }
        Err(AnnDataError::Invalid(format!("row {} was asked for where there are {count} rows", row - 1)))
    }

    fn add(&self, row: u64, out: &mut CsrRows) {
        if let Row::Narrow(row) = self.rows.row(row) {
            row.widen(&mut out.indices, &mut out.data);
        }
        out.indptr.push(out.indices.len() as u64);
    }
}

impl ReadRows for MemoryReader<'_> {
    fn fetch(&mut self, wanted: &Wanted<'_>, out: &mut Rows) -> Result<u64, AnnDataError> {
        let Rows::Sparse(out) = out else {
            return Err(AnnDataError::Invalid("rows in memory are sparse".to_owned()));
        };
        let before = out.data.len();
        match wanted {
            Wanted::Rows(rows) => {
                rows.iter().try_for_each(|row| self.check(row.saturating_add(1)))?;
                rows.iter().for_each(|row| self.add(*row, out));
            }
            Wanted::Range(Range { start, end }) => {
                self.check(*start.max(end))?;
                if start > end {
                    return Err(AnnDataError::Invalid(format!("rows {start} to {end} were asked for")));
                }
                (*start..*end).for_each(|row| self.add(row, out));
            }
        }
        Ok((out.data.len() - before) as u64 * 8)
    }

    fn decode(&mut self, _: &mut Rows) -> Result<(), AnnDataError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row n has n % 3 values, which are n; of dense rows of three genes the others are 0.
    #[derive(Clone, Debug)]
    struct Made {
        rows: u64,
        form: Form,
        values: Option<u64>,
        genes: Vec<String>,
        /// From this row on, reading fails or panics.
        fails: u64,
        panics: u64,
    }

    impl Default for Made {
        fn default() -> Self {
            let genes = ["a", "b", "c"].map(str::to_owned).to_vec();
            Self { rows: 200_000, form: Form::Sparse, values: None, genes, fails: u64::MAX, panics: u64::MAX }
        }
    }

    impl ArrayStore for Made {
        fn len(&self) -> u64 {
            self.rows
        }
        fn genes(&self) -> &[String] {
            &self.genes
        }
        fn form(&self) -> Form {
            self.form
        }
        fn stored_bytes(&self) -> u64 {
            0
        }
        fn most_values(&self) -> Option<u64> {
            self.values
        }
        fn least_values(&self) -> u64 {
            if self.form == Form::Sparse { self.values.unwrap_or(0) } else { 0 }
        }
        fn labels(&self, column: &str) -> Result<Labels, AnnDataError> {
            Err(AnnDataError::Invalid(column.to_owned()))
        }
        fn numbers(&self, column: &str) -> Result<Vec<f64>, AnnDataError> {
            Err(AnnDataError::Invalid(column.to_owned()))
        }
        fn reader(&self) -> Result<Box<dyn ReadRows + '_>, AnnDataError> {
            Ok(Box::new(MadeReader(self)))
        }
    }

    struct MadeReader<'m>(&'m Made);

    impl ReadRows for MadeReader<'_> {
        fn fetch(&mut self, wanted: &Wanted<'_>, out: &mut Rows) -> Result<u64, AnnDataError> {
            let Wanted::Range(range) = wanted else { panic!("ranges are asked for") };
            assert!(range.end <= self.0.panics, "row {} is a panic", range.end);
            if range.end > self.0.fails {
                return Err(AnnDataError::Invalid(format!("row {} is broken", range.end)));
            }
            for row in range.clone() {
                let count = (row % 3) as usize;
                match out {
                    Rows::Sparse(out) => {
                        out.indices.extend(0..count as i32);
                        out.data.extend(std::iter::repeat_n(row as f32, count));
                        out.indptr.push(out.data.len() as u64);
                    }
                    Rows::Dense(out) => {
                        out.data.extend((0..3).map(|gene| if gene < count { row as f32 } else { 0.0 }));
                    }
                }
            }
            Ok(0)
        }
        fn decode(&mut self, _: &mut Rows) -> Result<(), AnnDataError> {
            Ok(())
        }
    }

    #[test]
    fn rows_of_many_pieces_are_in_order() {
        for (threads, form) in (1..5).zip([Form::Sparse, Form::Dense, Form::Sparse, Form::Dense]) {
            let store = MemoryStore::read(Box::new(Made { form, ..Made::default() }), threads, u64::MAX).unwrap();
            let rows = store.resident().unwrap();
            assert_eq!(rows.len(), 200_000);
            let mut reader = store.reader().unwrap();
            let mut found = Rows::Sparse(CsrRows::default());
            reader.fetch(&Wanted::Range(0..200_000), &mut found).unwrap();
            let Rows::Sparse(found) = found else { panic!() };
            for row in 0..200_000 {
                let (indices, data) = found.view().row(row);
                assert!(indices == &[0, 1][..row % 3] && data == &[row as f32; 2][..row % 3], "{row} {data:?}");
            }
        }
    }

    #[test]
    fn an_error_or_panic_of_a_thread_is_returned() {
        for threads in 1..5 {
            let fails = Made { fails: 70_000, rows: 1_000_000, ..Made::default() };
            let e = MemoryStore::read(Box::new(fails), threads, u64::MAX).unwrap_err();
            assert!(e.to_string().contains("is broken"), "{e}");
            let panics = Made { panics: 70_000, rows: 1_000_000, ..Made::default() };
            let e = MemoryStore::read(Box::new(panics), threads, u64::MAX).unwrap_err();
            assert!(e.to_string().contains("is a panic"), "{e}");
        }
    }

    #[test]
    fn memory_that_is_not_there_is_said_before_it_is_taken() {
        let large = Made { rows: 7, values: Some(1 << 50), ..Made::default() };
        let e = MemoryStore::read(Box::new(large), 1, 1 << 40).unwrap_err().to_string();
        assert!(
            e.contains("reading 7 rows of the array into memory needs ") && e.contains("1024.00 GiB are free"),
            "{e}"
        );
    }

    #[test]
    fn only_what_is_kept_counts() {
        // One value a row is kept in the mean, of three; as float32, since row numbers are above 65,535.
        let free = |store: &Made| {
            let kept = MemoryStore::read(Box::new(store.clone()), 1, u64::MAX).unwrap();
            assert!(kept.pieces.len() > 3, "{}", kept.pieces.len());
            kept.rows().bytes() + Plan::new(store, 1, 0).fixed()
        };
        for (form, values) in [(Form::Dense, 600_000), (Form::Sparse, 199_999)] {
            let store = Made { form, values: Some(values), ..Made::default() };
            let free = free(&store);
            MemoryStore::read(Box::new(store.clone()), 1, free).unwrap();
            let e = MemoryStore::read(Box::new(store), 1, free - 1).unwrap_err().to_string();
            assert!(e.contains("GiB at least"), "{e}");
        }
    }

    #[test]
    fn rows_beyond_the_end_are_refused() {
        let store = MemoryStore::read(Box::new(Made { rows: 3, ..Made::default() }), 1, u64::MAX).unwrap();
        let mut reader = store.reader().unwrap();
        let mut rows = Rows::Sparse(CsrRows::default());
        for wanted in [Wanted::Rows(&[0, 3]), Wanted::Rows(&[u64::MAX]), Wanted::Range(0..4), Wanted::Range(7..7)] {
            let e = reader.fetch(&wanted, &mut rows).unwrap_err().to_string();
            assert!(e.contains("was asked for where there are 3 rows"), "{e}");
        }
        assert_eq!(rows, Rows::Sparse(CsrRows::default()));
        reader.fetch(&Wanted::Rows(&[2, 0, 1]), &mut rows).unwrap();
        let expected = CsrRows { indptr: vec![0, 2, 2, 3], indices: vec![0, 1, 0], data: vec![2.0, 2.0, 1.0] };
        assert_eq!(rows, Rows::Sparse(expected));
    }
}
