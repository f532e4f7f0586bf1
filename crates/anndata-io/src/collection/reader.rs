//! `CollectionReader` reads selected rows from several stores and returns them in the order of the selection. Its `ReaderSet` bounds how many
//! readers of stores one thread has open.
//! Invariant: after an error the output is what it was before the fetch; a reader is closed only after its file was checked for changes.

use std::cell::Cell;
use std::ops::Range;

use crate::collection::column_map::{ColumnMap, RowScratch};
use crate::rows::RowsEnd;
use crate::{
    AnnDataError, ArrayStore, Collection, Form, Prefetch, ReadRows, RequestError, RowLocation, RowSelection, Rows,
};

/// Reads rows of a collection store by store, and orders them.
///
/// Unmapped rows of one store are read straight into the result; those of several stores are read straight to their positions
/// in it, if the stores say where the values of rows lie. All other rows are read into a buffer and copied.
pub(crate) struct CollectionReader<'c> {
    collection: &'c Collection,
    readers: ReaderSet<'c>,
    /// Parts of the last fetch, one for each store. Those from `used` on are not of this fetch; their buffers are used again.
    parts: Vec<FilePart>,
    used: usize,
    /// For each selected row its part and its position in the part, unless the parts simply follow each other.
    order: Vec<(u32, u32)>,
    mixed: bool,
    way: Assembly,
    /// End of the rows of `out` before the last fetch.
    before: RowsEnd,
    /// `[stores]`: the part of the store in this fetch, or [`NONE`].
    part_of: Vec<u32>,
    scratch: RowScratch,
}

/// The store has no part in this fetch.
const NONE: u32 = u32::MAX;

/// How the rows of a fetch get into the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Assembly {
    /// A single part is read straight into the result.
    Straight,
    /// Each row is read to its position in the result.
    Placed,
    /// Parts are read into buffers and copied.
    Beside,
}

impl<'c> CollectionReader<'c> {
    /// A reader with at most `kept` open readers of stores, which together have at most `bytes` of buffers between calls.
    pub fn new(collection: &'c Collection, kept: usize, bytes: u64) -> Self {
        Self {
            collection,
            readers: ReaderSet::new(collection.stores(), kept, bytes),
            parts: Vec::new(),
            used: 0,
            order: Vec::new(),
            mixed: false,
            way: Assembly::Beside,
            before: RowsEnd::default(),
            part_of: vec![NONE; collection.stores().len()],
            scratch: RowScratch::default(),
        }
    }

    /// Sorts the selected rows into parts.
    fn split(&mut self, wanted: &RowSelection<'_>) -> Result<(), AnnDataError> {
        self.used = 0;
        self.order.clear();
        self.mixed = false;
        match wanted {
            RowSelection::Range(range) => self.split_range(range),
            RowSelection::Rows(rows) => {
                let result = self.split_rows(rows);
                for part in &self.parts[..self.used] {
                    self.part_of[part.store] = NONE;
                }
                result
            }
        }
    }

    fn split_range(&mut self, range: &Range<u64>) -> Result<(), AnnDataError> {
        if range.end > self.collection.len() || range.start > range.end {
            return Err(self.beyond(range.end.max(range.start)));
        }
        let mut row = range.start;
        while row < range.end {
            let store = self.store_of(row);
            let (start, end) = (self.collection.starts()[store], self.collection.starts()[store + 1]);
            let until = end.min(range.end);
            let part = self.new_part(store);
            part.wanted = FileRows::Range(row - start..until - start);
            row = until;
        }
        Ok(())
    }

    fn split_rows(&mut self, rows: &[u64]) -> Result<(), AnnDataError> {
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
            let FileRows::Rows(local) = &mut self.parts[number as usize].wanted else { continue };
            self.order.push((number, local.len() as u32));
            local.push(row - start);
        }
        Ok(())
    }

    /// The store that has a row.
    fn store_of(&self, row: u64) -> usize {
        self.collection.starts().partition_point(|start| *start <= row) - 1
    }

    fn beyond(&self, row: u64) -> AnnDataError {
        RequestError::RowBeyondEnd { row, store: self.collection.name(), rows: self.collection.len() }.into()
    }

    /// The next part, emptied.
    fn new_part(&mut self, store: usize) -> &mut FilePart {
        let form = self.collection.stores()[store].form();
        if self.used == self.parts.len() {
            let wanted = FileRows::Rows(Vec::new());
            let (located, places) = (Vec::new(), Vec::new());
            self.parts.push(FilePart { store, wanted, located, places, rows: Rows::empty(form), pending: false });
        }
        let part = &mut self.parts[self.used];
        self.used += 1;
        part.store = store;
        part.pending = false;
        match &mut part.wanted {
            FileRows::Rows(rows) => rows.clear(),
            FileRows::Range(_) => part.wanted = FileRows::Rows(Vec::new()),
        }
        match (&mut part.rows, form) {
            (Rows::Sparse(rows), Form::Sparse) => rows.clear(),
            (Rows::Dense(rows), Form::Dense) => rows.data.clear(),
            (rows, _) => *rows = Rows::empty(form),
        }
        if let Rows::Dense(rows) = &mut part.rows {
            rows.columns = self.collection.map(store).columns_before();
        }
        part
    }

    /// Decides how the selected rows get into `out`; sets their positions if they have some. Returns the number of bytes that were read for that,
    /// too.
    fn choose_way(&mut self, out: &mut Rows) -> Result<(Assembly, u64), AnnDataError> {
        let collection = self.collection;
        let parts = &mut self.parts[..self.used];
        if !parts.iter().all(|part| collection.keeps(part.store)) {
            return Ok((Assembly::Beside, 0));
        }
        if parts.len() < 2 {
            return Ok((Assembly::Straight, 0));
        }
        let mut bytes = 0;
        for part in &mut *parts {
            part.located.clear();
            let FileRows::Rows(rows) = &part.wanted else { return Ok((Assembly::Beside, bytes)) };
            match collection.stores()[part.store].locate(rows, &mut part.located)? {
                Some(read) => bytes += read,
                None => return Ok((Assembly::Beside, bytes)),
            }
            part.places.clear();
            part.places.resize(part.located.len(), 0);
        }
        let mut end = out.end().values as u64;
        for (part, row) in &self.order {
            let (part, row) = (&mut parts[*part as usize], *row as usize);
            part.places[row] = end;
            end += part.located[row].values;
            if let Rows::Sparse(out) = out {
                out.indptr.push(end);
            }
        }
        let count = end as usize;
        match out {
            Rows::Sparse(out) => {
                reserve(&mut out.indices, count)?;
                reserve(&mut out.data, count)?;
                out.indices.resize(count, 0);
                out.data.resize(count, 0.0);
            }
            Rows::Dense(out) => {
                reserve(&mut out.data, count)?;
                out.data.resize(count, 0.0);
            }
        }
        Ok((Assembly::Placed, bytes))
    }

    /// Fetches a part, into the result or into its buffer.
    fn fetch_part(&mut self, number: usize, out: &mut Rows) -> Result<u64, AnnDataError> {
        let store = self.parts[number].store;
        if self.readers.get(store)?.is_none() {
            // All readers that may be open are in use: decode what they fetched, so that one of them can be closed.
            (0..number).try_for_each(|earlier| self.decode_part(earlier, out))?;
            self.readers.next_call()?;
        }
        let Some(reader) = self.readers.get(store)? else {
            return Err(self.no_reader(store));
        };
        let part = &mut self.parts[number];
        let wanted = match &part.wanted {
            FileRows::Rows(rows) => RowSelection::Rows(rows),
            FileRows::Range(range) => RowSelection::Range(range.clone()),
        };
        let bytes = match self.way {
            Assembly::Placed => reader.fetch_to(&part.located, &part.places, out)?,
            Assembly::Straight => reader.fetch(&wanted, out)?,
            Assembly::Beside => reader.fetch(&wanted, &mut part.rows)?,
        };
        part.pending = true;
        Ok(bytes)
    }

    /// Decodes the fetched rows of a part.
    fn decode_part(&mut self, number: usize, out: &mut Rows) -> Result<(), AnnDataError> {
        let part = &mut self.parts[number];
        if !std::mem::take(&mut part.pending) {
            return Ok(());
        }
        let out = if self.way == Assembly::Beside { &mut part.rows } else { out };
        let store = part.store;
        match self.readers.get(store)? {
            Some(reader) => reader.decode(out),
            None => Err(self.no_reader(store)),
        }
    }

    #[cold]
    fn no_reader(&self, store: usize) -> AnnDataError {
        RequestError::NoReader { store: self.collection.stores()[store].name() }.into()
    }

    fn fetch_all(&mut self, wanted: &RowSelection<'_>, out: &mut Rows) -> Result<u64, AnnDataError> {
        self.split(wanted)?;
        let (way, bytes) = self.choose_way(out)?;
        self.way = way;
        self.readers.next_call()?;
        (0..self.used).try_fold(bytes, |bytes, number| Ok(bytes + self.fetch_part(number, out)?))
    }

    fn decode_all(&mut self, out: &mut Rows) -> Result<(), AnnDataError> {
        (0..self.used).try_for_each(|number| self.decode_part(number, out))?;
        if self.way == Assembly::Beside {
            match self.mixed {
                true => self.add_mixed(out)?,
                false => (0..self.used).try_for_each(|number| self.add_part(number, out))?,
            }
        }
        Ok(())
    }

    /// Removes from `out` what this fetch appended, after an error.
    fn take_back(&mut self, out: &mut Rows) {
        self.used = 0;
        out.truncate(self.before);
    }

    /// Appends all rows of a part to the result.
    fn add_part(&mut self, number: usize, out: &mut Rows) -> Result<(), AnnDataError> {
        let part = &self.parts[number];
        if let (Rows::Sparse(rows), Rows::Sparse(out)) = (&part.rows, &mut *out)
            && self.collection.keeps(part.store)
        {
            ColumnMap::add_same(rows.view(), out);
            return Ok(());
        }
        (0..part.len()).try_for_each(|row| add_row(part, row, self.collection, &mut self.scratch, out))
    }

    /// Appends the rows of all parts to the result, in the order of the selection.
    fn add_mixed(&mut self, out: &mut Rows) -> Result<(), AnnDataError> {
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
    fn fetch(&mut self, wanted: &RowSelection<'_>, out: &mut Rows) -> Result<u64, AnnDataError> {
        match (&mut *out, self.collection.form()) {
            (Rows::Sparse(_), Form::Sparse) => {}
            (Rows::Dense(rows), Form::Dense) => rows.columns = self.collection.genes().len(),
            (_, form) => return Err(RequestError::OtherForm { form }.into()),
        }
        self.before = out.end();
        self.fetch_all(wanted, out).inspect_err(|_| self.take_back(out))
    }

    fn will_need(&mut self, ranges: &[Range<u64>]) -> Result<Prefetch, AnnDataError> {
        let mut ahead = Prefetch::default();
        self.readers.next_call()?;
        for range in ranges {
            let mut row = range.start;
            while row < range.end.min(self.collection.len()) {
                let store = self.store_of(row);
                let (start, end) = (self.collection.starts()[store], self.collection.starts()[store + 1]);
                let until = end.min(range.end);
                if self.readers.get(store)?.is_none() {
                    self.readers.next_call()?;
                }
                if let Some(reader) = self.readers.get(store)? {
                    let within = row - start..until - start;
                    ahead.add(reader.will_need(std::slice::from_ref(&within))?);
                }
                row = until;
            }
        }
        Ok(ahead)
    }

    fn decode(&mut self, out: &mut Rows) -> Result<(), AnnDataError> {
        self.decode_all(out).inspect_err(|_| self.take_back(out))?;
        self.used = 0;
        Ok(())
    }

    fn unchanged(&self) -> Result<(), AnnDataError> {
        self.readers.unchanged()
    }

    fn work_bytes(&self) -> u64 {
        let parts: u64 = self.parts.iter().map(FilePart::capacity_bytes).sum();
        self.readers.work_bytes() + parts + self.order.capacity() as u64 * 8 + self.scratch.bytes()
    }
}

/// Reserves memory for `count` values, or fails.
fn reserve<T>(values: &mut Vec<T>, count: usize) -> Result<(), AnnDataError> {
    let more = count.saturating_sub(values.len());
    values.try_reserve(more).map_err(|_| AnnDataError::no_memory(more.saturating_mul(size_of::<T>()), "a batch"))
}

/// The rows of one store in a fetch.
struct FilePart {
    store: usize,
    wanted: FileRows,
    /// Only for rows that are read to their positions: where the values of each row lie, and its position in the result.
    located: Vec<RowLocation>,
    places: Vec<u64>,
    pub rows: Rows,
    /// It was fetched, and is not decoded yet.
    pending: bool,
}

/// Selected rows of a store.
enum FileRows {
    Rows(Vec<u64>),
    Range(Range<u64>),
}

impl FilePart {
    /// Number of rows.
    pub fn len(&self) -> usize {
        match &self.wanted {
            FileRows::Rows(rows) => rows.len(),
            FileRows::Range(range) => (range.end - range.start) as usize,
        }
    }

    /// Allocated bytes.
    pub fn capacity_bytes(&self) -> u64 {
        let wanted = match &self.wanted {
            FileRows::Rows(rows) => rows.capacity() * 8,
            FileRows::Range(_) => 0,
        };
        let located = self.located.capacity() * size_of::<RowLocation>();
        self.rows.capacity_bytes() + (wanted + located + self.places.capacity() * 8) as u64
    }
}

/// Appends one row of a part to the result.
fn add_row(
    part: &FilePart,
    row: usize,
    collection: &Collection,
    scratch: &mut RowScratch,
    out: &mut Rows,
) -> Result<(), AnnDataError> {
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
            return Err(RequestError::OtherForm { form: Form::Sparse }.into());
        }
    }
    Ok(())
}

/// The open readers of one thread, at most one for each store.
pub(crate) struct ReaderSet<'c> {
    stores: &'c [Box<dyn ArrayStore>],
    slots: Vec<ReaderSlot<'c>>,
    /// The stores that have a reader: fewer than there are stores, if these are thousands.
    open: Vec<usize>,
    max_open: usize,
    call: u64,
    /// Bytes that the readers keep together, when they were last measured, and their limit.
    bytes: u64,
    max_bytes: u64,
    /// Readers that were used in this call.
    used: Vec<usize>,
}

/// A reader, and its use.
#[derive(Default)]
struct ReaderSlot<'c> {
    reader: Option<Box<dyn ReadRows + 'c>>,
    /// The last call that used it.
    call: u64,
    /// Bytes that it kept when it was last measured.
    bytes: u64,
    /// Whether it was read from since it was last checked to be unchanged.
    touched: Cell<bool>,
}

impl<'c> ReaderSet<'c> {
    /// At most `max_open` readers are open at a time, and at least one. The least recently used ones are closed until all
    /// together keep at most `max_bytes` between calls.
    pub fn new(stores: &'c [Box<dyn ArrayStore>], max_open: usize, max_bytes: u64) -> Self {
        let slots = stores.iter().map(|_| ReaderSlot::default()).collect();
        Self {
            stores,
            slots,
            open: Vec::new(),
            max_open: max_open.max(1),
            call: 1,
            bytes: 0,
            max_bytes,
            used: Vec::new(),
        }
    }

    /// Begins a call: readers of earlier calls may be closed.
    ///
    /// # Errors
    /// The file of a closed reader has changed.
    pub fn next_call(&mut self) -> Result<(), AnnDataError> {
        self.call += 1;
        for store in self.used.drain(..) {
            let slot = &mut self.slots[store];
            let now = slot.reader.as_ref().map_or(0, |reader| reader.work_bytes());
            self.bytes = self.bytes - slot.bytes + now;
            slot.bytes = now;
        }
        while self.bytes > self.max_bytes && self.open.len() > 1 && self.close_oldest()? {}
        Ok(())
    }

    /// The reader of a store; `None` if the maximum number of readers is in use in this call.
    pub fn get(&mut self, store: usize) -> Result<Option<&mut (dyn ReadRows + 'c)>, AnnDataError> {
        if self.slots[store].reader.is_none() {
            if self.open.len() >= self.max_open && !self.close_oldest()? {
                return Ok(None);
            }
            self.slots[store].reader = Some(self.stores[store].reader()?);
            self.open.push(store);
        }
        let slot = &mut self.slots[store];
        if slot.call != self.call {
            self.used.push(store);
        }
        slot.call = self.call;
        slot.touched.set(true);
        Ok(slot.reader.as_deref_mut())
    }

    /// Closes the least recently used reader; `false` if all are in use in this call.
    fn close_oldest(&mut self) -> Result<bool, AnnDataError> {
        let last_call = |store: usize| self.slots[store].call;
        let old = self.open.iter().copied().enumerate().filter(|(_, store)| last_call(*store) < self.call);
        let Some((index, store)) = old.min_by_key(|(_, store)| last_call(*store)) else { return Ok(false) };
        self.open.remove(index);
        let slot = &mut self.slots[store];
        let closed = slot.reader.take();
        self.bytes -= std::mem::take(&mut slot.bytes);
        if let Some(reader) = closed.filter(|_| slot.touched.replace(false)) {
            reader.unchanged()?;
        }
        Ok(true)
    }

    /// Fails if a file that was read since the last check has changed.
    pub fn unchanged(&self) -> Result<(), AnnDataError> {
        let touched = self.slots_with_readers().filter(|slot| slot.touched.replace(false));
        touched.filter_map(|slot| slot.reader.as_ref()).try_for_each(|reader| reader.unchanged())
    }

    pub fn work_bytes(&self) -> u64 {
        self.slots_with_readers().filter_map(|slot| slot.reader.as_ref()).map(|reader| reader.work_bytes()).sum()
    }

    fn slots_with_readers(&self) -> impl Iterator<Item = &ReaderSlot<'c>> {
        self.open.iter().map(|store| &self.slots[*store])
    }
}
