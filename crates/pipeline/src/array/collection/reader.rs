use std::ops::Range;

use super::Collection;
use super::column_map::{ColumnMap, Scratch};
use super::reader_set::ReaderSet;
use crate::PipelineError;
use crate::array::{ArrayStore, CsrRows, DenseRows, Form, ReadRows, Rows, Wanted};

/// Reads a collection's rows, file by file, and puts them in order.
///
/// What comes from files one after another, and as it is to be, goes straight into the result. Only rows that are mixed over
/// files, or need other columns, are read beside it and copied.
pub(super) struct CollectionReader<'c> {
    collection: &'c Collection,
    readers: ReaderSet<'c>,
    /// What the last fetch reads, a part for each file; those behind `used` are kept for their memory.
    parts: Vec<Part>,
    used: usize,
    /// For each row that was wanted its part and its place there, where parts do not simply follow each other.
    order: Vec<(u32, u32)>,
    mixed: bool,
    /// `[stores]`: the file's part in this fetch, or [`NONE`].
    part_of: Vec<u32>,
    scratch: Scratch,
}

/// A file has no part in this fetch.
const NONE: u32 = u32::MAX;

/// What is read of one file.
struct Part {
    store: usize,
    wanted: PartWanted,
    rows: Rows,
    /// It was fetched, and not decoded yet.
    pending: bool,
}

enum PartWanted {
    Rows(Vec<u64>),
    Range(Range<u64>),
}

impl<'c> CollectionReader<'c> {
    /// With at most `kept` readers of files open.
    pub(super) fn new(collection: &'c Collection, kept: usize) -> Self {
        Self {
            collection,
            readers: ReaderSet::new(collection.stores(), kept),
            parts: Vec::new(),
            used: 0,
            order: Vec::new(),
            mixed: false,
            part_of: vec![NONE; collection.stores().len()],
            scratch: Scratch::default(),
        }
    }

    /// Say which rows of which files are wanted.
    fn split(&mut self, wanted: &Wanted<'_>) -> Result<(), PipelineError> {
        self.used = 0;
        self.order.clear();
        self.mixed = false;
        match wanted {
            Wanted::Range(range) => self.split_range(range),
            Wanted::Rows(rows) => {
                let result = self.split_rows(rows);
                for part in &self.parts[..self.used] {
                    self.part_of[part.store] = NONE;
                }
                result
            }
        }
    }

    fn split_range(&mut self, range: &Range<u64>) -> Result<(), PipelineError> {
        if range.end > self.collection.len() || range.start > range.end {
            return Err(self.beyond(range.end.max(range.start)));
        }
        let mut row = range.start;
        while row < range.end {
            let store = self.store_of(row);
            let (start, end) = (self.collection.starts()[store], self.collection.starts()[store + 1]);
            let until = end.min(range.end);
            let part = self.new_part(store);
            part.wanted = PartWanted::Range(row - start..until - start);
            row = until;
        }
        Ok(())
    }

    fn split_rows(&mut self, rows: &[u64]) -> Result<(), PipelineError> {
        let Some(first) = rows.first() else { return Ok(()) };
        if let Some(row) = rows.iter().find(|row| **row >= self.collection.len()) {
            return Err(self.beyond(*row));
        }
        let mut store = self.store_of(*first);
        let mut last = NONE;
        for row in rows {
            if !(self.collection.starts()[store]..self.collection.starts()[store + 1]).contains(row) {
                store = self.store_of(*row);
            }
            let mut number = self.part_of[store];
            if number == NONE {
                number = self.used as u32;
                self.part_of[store] = number;
                self.new_part(store);
            } else {
                self.mixed |= number != last;
            }
            last = number;
            let start = self.collection.starts()[store];
            let PartWanted::Rows(local) = &mut self.parts[number as usize].wanted else { continue };
            self.order.push((number, local.len() as u32));
            local.push(row - start);
        }
        Ok(())
    }

    /// The file that a row is in: there is one.
    fn store_of(&self, row: u64) -> usize {
        self.collection.starts().partition_point(|start| *start <= row) - 1
    }

    fn beyond(&self, row: u64) -> PipelineError {
        let (name, rows) = (self.collection.name(), self.collection.len());
        PipelineError::Invalid(format!("row {row} was asked for where {name} have {rows} rows"))
    }

    /// The next part, without rows.
    fn new_part(&mut self, store: usize) -> &mut Part {
        let form = self.collection.stores()[store].form();
        if self.used == self.parts.len() {
            self.parts.push(Part { store, wanted: PartWanted::Rows(Vec::new()), rows: empty(form), pending: false });
        }
        let part = &mut self.parts[self.used];
        self.used += 1;
        part.store = store;
        part.pending = false;
        match &mut part.wanted {
            PartWanted::Rows(rows) => rows.clear(),
            PartWanted::Range(_) => part.wanted = PartWanted::Rows(Vec::new()),
        }
        match (&mut part.rows, form) {
            (Rows::Sparse(rows), Form::Sparse) => rows.clear(),
            (Rows::Dense(rows), Form::Dense) => rows.data.clear(),
            (rows, _) => *rows = empty(form),
        }
        if let Rows::Dense(rows) = &mut part.rows {
            rows.columns = self.collection.map(store).columns_before();
        }
        part
    }

    /// A part's rows go straight into the result.
    fn is_straight(&self, number: usize) -> bool {
        !self.mixed && self.collection.keeps(self.parts[number].store)
    }

    /// Fetch a part, into the result or beside it.
    fn fetch_part(&mut self, number: usize, out: &mut Rows) -> Result<u64, PipelineError> {
        let store = self.parts[number].store;
        if self.readers.get(store)?.is_none() {
            // As many files as are kept open are in use: what they have must be taken before one of them can be closed.
            (0..number).try_for_each(|earlier| self.take_part(earlier, out))?;
            self.readers.next_turn();
        }
        let straight = self.is_straight(number);
        let Some(reader) = self.readers.get(store)? else {
            return Err(PipelineError::Invalid("no file can be opened for reading".to_owned()));
        };
        let part = &mut self.parts[number];
        let wanted = match &part.wanted {
            PartWanted::Rows(rows) => Wanted::Rows(rows),
            PartWanted::Range(range) => Wanted::Range(range.clone()),
        };
        let bytes = reader.fetch(&wanted, if straight { out } else { &mut part.rows })?;
        part.pending = true;
        Ok(bytes)
    }

    /// Decode what a part fetched, and add it to the result where it comes next.
    fn take_part(&mut self, number: usize, out: &mut Rows) -> Result<(), PipelineError> {
        let straight = self.is_straight(number);
        let part = &mut self.parts[number];
        if !std::mem::take(&mut part.pending) {
            return Ok(());
        }
        if let Some(reader) = self.readers.get(part.store)? {
            reader.decode(if straight { &mut *out } else { &mut part.rows })?;
        }
        if straight || self.mixed { Ok(()) } else { self.add_part(number, out) }
    }

    /// Add all rows of a part to the result.
    fn add_part(&mut self, number: usize, out: &mut Rows) -> Result<(), PipelineError> {
        let part = &self.parts[number];
        if let (Rows::Sparse(rows), Rows::Sparse(out)) = (&part.rows, &mut *out)
            && self.collection.keeps(part.store)
        {
            ColumnMap::add_same(rows.view(), out);
            return Ok(());
        }
        (0..part.len()).try_for_each(|row| add_row(part, row, self.collection, &mut self.scratch, out))
    }

    /// Add the rows of all parts to the result, as they were wanted.
    fn add_mixed(&mut self, out: &mut Rows) -> Result<(), PipelineError> {
        match out {
            Rows::Sparse(out) => {
                let values = self.parts[..self.used].iter().map(|part| match &part.rows {
                    Rows::Sparse(rows) => rows.data.len(),
                    Rows::Dense(_) => 0,
                });
                let values = values.sum();
                out.indptr.reserve(self.order.len());
                out.indices.reserve(values);
                out.data.reserve(values);
            }
            Rows::Dense(out) => out.data.reserve(self.order.len() * self.collection.genes().len()),
        }
        for (part, row) in &self.order {
            add_row(&self.parts[*part as usize], *row as usize, self.collection, &mut self.scratch, out)?;
        }
        Ok(())
    }
}

impl ReadRows for CollectionReader<'_> {
    fn fetch(&mut self, wanted: &Wanted<'_>, out: &mut Rows) -> Result<u64, PipelineError> {
        match (&mut *out, self.collection.form()) {
            (Rows::Sparse(_), Form::Sparse) => {}
            (Rows::Dense(rows), Form::Dense) => rows.columns = self.collection.genes().len(),
            _ => return Err(PipelineError::Invalid("rows of two forms cannot be in one result".to_owned())),
        }
        self.split(wanted)?;
        self.readers.next_turn();
        let mut bytes = 0;
        for number in 0..self.used {
            if !self.mixed && number > 0 {
                // Its rows follow those of the part before, so these must all be there.
                self.take_part(number - 1, out)?;
            }
            bytes += self.fetch_part(number, out)?;
        }
        Ok(bytes)
    }

    fn decode(&mut self, out: &mut Rows) -> Result<(), PipelineError> {
        (0..self.used).try_for_each(|number| self.take_part(number, out))?;
        if self.mixed {
            self.add_mixed(out)?;
        }
        self.used = 0;
        Ok(())
    }

    fn unchanged(&self) -> Result<(), PipelineError> {
        self.readers.unchanged()
    }

    fn work_bytes(&self) -> u64 {
        let parts: u64 = self.parts.iter().map(Part::capacity_bytes).sum();
        self.readers.work_bytes() + parts + self.order.capacity() as u64 * 8 + self.scratch.bytes()
    }
}

impl Part {
    /// Number of rows.
    fn len(&self) -> usize {
        match &self.wanted {
            PartWanted::Rows(rows) => rows.len(),
            PartWanted::Range(range) => (range.end - range.start) as usize,
        }
    }

    fn capacity_bytes(&self) -> u64 {
        let wanted = match &self.wanted {
            PartWanted::Rows(rows) => rows.capacity() * 8,
            PartWanted::Range(_) => 0,
        };
        self.rows.capacity_bytes() + wanted as u64
    }
}

/// Add one row of a part to the result.
fn add_row(
    part: &Part,
    row: usize,
    collection: &Collection,
    scratch: &mut Scratch,
    out: &mut Rows,
) -> Result<(), PipelineError> {
    let map = collection.map(part.store);
    match (&part.rows, out) {
        (Rows::Sparse(rows), Rows::Sparse(out)) => {
            let (columns, values) = rows.view().row(row);
            map.add_sparse(columns, values, out, scratch);
        }
        (Rows::Dense(rows), out) => {
            let values = &rows.data[row * rows.columns..(row + 1) * rows.columns];
            match out {
                Rows::Sparse(out) => map.add_dense_as_sparse(values, out),
                Rows::Dense(out) => map.add_dense(values, out),
            }
        }
        (Rows::Sparse(_), Rows::Dense(_)) => {
            return Err(PipelineError::Invalid("sparse rows cannot be added to dense ones".to_owned()));
        }
    }
    Ok(())
}

fn empty(form: Form) -> Rows {
    match form {
        Form::Sparse => Rows::Sparse(CsrRows::default()),
        Form::Dense => Rows::Dense(DenseRows::default()),
    }
}
