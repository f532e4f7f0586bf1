use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::mds::encoding::{append_f32, append_i32};
use crate::mds::index::{MdsMatrixLayout, RAW_INDICES, RAW_VALUES};
use crate::mds::kept::ShardCache;
use crate::mds::sample::parse_array;
use crate::mds::shard::{Shard, ShardBody};
use crate::{AnnDataError, CsrRows, MdsStore, ReadRows, Rows, Wanted};

/// Samples that are no farther apart in a shard are read in one call.
const MAX_GAP: u64 = 1 << 14;
/// Compressed shards are read before they are decompressed, as far as they have no more bytes together; the others one by
/// one, when it is their turn.
const MAX_FETCHED_BYTES: u64 = 1 << 28;

/// Reads rows of an [`MdsStore`].
pub(crate) struct MdsReader<'a> {
    store: &'a MdsStore,
    /// Rows that are wanted, in their order.
    places: Vec<WantedSample>,
    /// Places by shard and sample; those of equal samples follow one another.
    order: Vec<u32>,
    /// Rows are wanted in the order of the shards.
    in_order: bool,
    /// Samples that were fetched; longer than it is, so that it is not cleared for every batch.
    bytes: Vec<u8>,
    /// Bytes of it that are in use.
    used: usize,
    /// Compressed shards that were fetched.
    packed: Vec<(usize, Vec<u8>)>,
    kept: ShardCache,
    /// Shards that were read since it was last asked whether they are unchanged.
    touched: RefCell<BTreeSet<usize>>,
    unsorted: Vec<(i32, f32)>,
}

/// A row.
#[derive(Clone, Copy, Debug)]
struct WantedSample {
    shard: u32,
    sample: u32,
    /// Where its sample is among the bytes fetched, and how long it is.
    at: usize,
    len: usize,
}

impl<'a> MdsReader<'a> {
    pub fn new(store: &'a MdsStore) -> Self {
        Self {
            store,
            places: Vec::new(),
            order: Vec::new(),
            in_order: true,
            bytes: Vec::new(),
            used: 0,
            packed: Vec::new(),
            kept: ShardCache::default(),
            touched: RefCell::default(),
            unsorted: Vec::new(),
        }
    }

    /// Find the shards of the rows.
    fn find(&mut self, wanted: &Wanted<'_>) -> Result<(), AnnDataError> {
        let store = self.store;
        let (starts, end) = (&store.starts, store.starts.last().copied().unwrap_or(0));
        let beyond = |row: u64| {
            let folder = crate::ArrayStore::name(store);
            AnnDataError::Invalid(format!("row {row} was asked for, {folder} has {end} rows"))
        };
        self.places.clear();
        self.order.clear();
        let mut shard = 0;
        let mut add = |row: u64| -> Result<(), AnnDataError> {
            if row >= end {
                return Err(beyond(row));
            }
            if !(starts[shard]..starts[shard + 1]).contains(&row) {
                shard = starts.partition_point(|start| *start <= row) - 1;
            }
            // An index has no more shards than bytes, and a shard no more samples.
            self.places.push(WantedSample { shard: shard as u32, sample: (row - starts[shard]) as u32, at: 0, len: 0 });
            Ok(())
        };
        match wanted {
            Wanted::Rows(rows) => rows.iter().copied().try_for_each(&mut add)?,
            Wanted::Range(range) => {
                if range.start < range.end && range.end > end {
                    return Err(beyond(range.end - 1));
                }
                range.clone().try_for_each(&mut add)?;
            }
        }
        let places = &self.places;
        let key = |place: &WantedSample| (place.shard, place.sample);
        self.order.extend(0..places.len() as u32);
        self.in_order = places.is_sorted_by_key(key);
        if !self.in_order {
            self.order.sort_unstable_by_key(|place| key(&places[*place as usize]));
        }
        Ok(())
    }

    /// Read the samples of a shard that is not compressed, those of `order[from..to]`; returns how many bytes.
    fn read_samples(&mut self, shard: usize, offsets: &[u32], from: usize, to: usize) -> Result<u64, AnnDataError> {
        let before = self.used;
        let mut next = from;
        while next < to {
            let first = Shard::sample(offsets, self.places[self.order[next] as usize].sample as usize);
            let (start, mut end) = (first.start, first.end);
            let begins = next;
            while next < to {
                let sample = Shard::sample(offsets, self.places[self.order[next] as usize].sample as usize);
                if next > begins && sample.start > end + MAX_GAP {
                    break;
                }
                let place = &mut self.places[self.order[next] as usize];
                (place.at, place.len) =
                    (self.used + (sample.start - start) as usize, (sample.end - sample.start) as usize);
                end = end.max(sample.end);
                next += 1;
            }
            let len = (end - start) as usize;
            grow(&mut self.bytes, self.used + len)?;
            self.store.shards[shard].source.read(start, &mut self.bytes[self.used..self.used + len])?;
            self.used += len;
        }
        Ok((self.used - before) as u64)
    }

    /// Read a compressed shard, unless there is much already; returns how many bytes it has.
    fn read_packed(&mut self, shard: usize, fetched: u64) -> Result<u64, AnnDataError> {
        if self.kept.has(shard) {
            return Ok(0);
        }
        let source = &self.store.shards[shard].source;
        if fetched == 0 || fetched + source.bytes() <= MAX_FETCHED_BYTES {
            self.packed.push((shard, source.all()?));
        }
        Ok(source.bytes())
    }

    /// Have a compressed shard among those that are kept.
    fn unpack(&mut self, shard: usize, codec: crate::mds::shard::ShardCodec) -> Result<(), AnnDataError> {
        if self.kept.has(shard) {
            return Ok(());
        }
        let of = &self.store.shards[shard];
        let packed = match self.packed.iter_mut().find(|(number, _)| *number == shard) {
            Some((_, bytes)) => std::mem::take(bytes),
            None => of.source.all()?,
        };
        let mut data = self.kept.make_room(of.raw_bytes() as usize);
        of.unpack(codec, &packed, &mut data)?;
        self.kept.add(shard, data);
        Ok(())
    }

    /// Append all rows.
    fn decode_rows(&mut self, out: &mut Rows) -> Result<(), AnnDataError> {
        let store = self.store;
        let mut next = 0;
        while next < self.order.len() {
            let shard = self.places[self.order[next] as usize].shard as usize;
            let end =
                next + self.order[next..].partition_point(|place| self.places[*place as usize].shard as usize == shard);
            let group = next..end;
            next = end;
            match &store.shards[shard].body {
                ShardBody::Raw(_) if !self.in_order => {}
                ShardBody::Raw(_) => {
                    for place in &self.places[group] {
                        let sample = &self.bytes[place.at..place.at + place.len];
                        append_row(store, sample, out, &mut self.unsorted)
                            .map_err(|reason| store.damaged(shard, place.sample.into(), &reason))?;
                    }
                }
                ShardBody::Packed(codec) => {
                    self.unpack(shard, *codec)?;
                    let data = self.kept.get(shard).unwrap_or_default();
                    for number in &self.order[group] {
                        let place = &mut self.places[*number as usize];
                        let sample = &data[Shard::sample_in(data, place.sample as usize)];
                        if self.in_order {
                            append_row(store, sample, out, &mut self.unsorted)
                                .map_err(|reason| store.damaged(shard, place.sample.into(), &reason))?;
                            continue;
                        }
                        (place.at, place.len) = (self.used, sample.len());
                        grow(&mut self.bytes, self.used + sample.len())?;
                        self.bytes[self.used..self.used + sample.len()].copy_from_slice(sample);
                        self.used += sample.len();
                    }
                }
            }
        }
        if self.in_order {
            return Ok(());
        }
        for place in &self.places {
            let sample = &self.bytes[place.at..place.at + place.len];
            append_row(store, sample, out, &mut self.unsorted)
                .map_err(|reason| store.damaged(place.shard as usize, place.sample.into(), &reason))?;
        }
        Ok(())
    }
}

/// Have so many bytes.
fn grow(bytes: &mut Vec<u8>, len: usize) -> Result<(), AnnDataError> {
    if len > bytes.len() {
        let none = |_| AnnDataError::Invalid(format!("there is no memory for samples of {len} bytes"));
        bytes.try_reserve(len - bytes.len()).map_err(none)?;
        bytes.resize(len, 0);
    }
    Ok(())
}

/// Append the row of a sample.
#[inline]
fn append_row(store: &MdsStore, sample: &[u8], out: &mut Rows, unsorted: &mut Vec<(i32, f32)>) -> Result<(), String> {
    let (columns, genes) = (&store.columns, store.genes.len());
    match (store.layout, out) {
        (MdsMatrixLayout::Dense(x), Rows::Dense(out)) => {
            let [cell, _] = columns.shape.cells(sample, [x, x])?;
            let values = parse_array(&columns.encodings[x], RAW_VALUES, cell)?;
            if values.count != genes {
                return Err(format!("it has {} values, there are {genes} genes", values.count));
            }
            append_f32(values.dtype, values.bytes, &mut out.data);
            Ok(())
        }
        (MdsMatrixLayout::Sparse { indices, values }, Rows::Sparse(out)) => {
            let [index_cell, value_cell] = columns.shape.cells(sample, [indices, values])?;
            let indices = parse_array(&columns.encodings[indices], RAW_INDICES, index_cell)?;
            let values = parse_array(&columns.encodings[values], RAW_VALUES, value_cell)?;
            if indices.count != values.count {
                return Err(format!("it has {} numbers of genes and {} values", indices.count, values.count));
            }
            let start = out.indices.len();
            append_i32(indices.dtype, indices.bytes, &mut out.indices)?;
            append_f32(values.dtype, values.bytes, &mut out.data);
            sort_row(out, start, genes, unsorted)?;
            out.indptr.push(out.indices.len() as u64);
            Ok(())
        }
        _ => Err("rows of another form than the store has".to_owned()),
    }
}

/// Put the values of the last row, from `start` on, into the order of their genes.
fn sort_row(out: &mut CsrRows, start: usize, genes: usize, unsorted: &mut Vec<(i32, f32)>) -> Result<(), String> {
    let columns = &mut out.indices[start..];
    // No early end: this way it takes several at a time.
    let ascend = columns.iter().zip(columns.iter().skip(1)).fold(true, |ascend, (a, b)| ascend & (a < b));
    let is_gene = |column: i32| usize::try_from(column).is_ok_and(|column| column < genes);
    if ascend && columns.first().is_none_or(|first| *first >= 0) && columns.last().is_none_or(|last| is_gene(*last)) {
        return Ok(());
    }
    if columns.iter().any(|column| !is_gene(*column)) {
        return Err(format!("it has a value for a gene that there is not; there are {genes}"));
    }
    let values = &mut out.data[start..];
    unsorted.clear();
    unsorted.extend(columns.iter().copied().zip(values.iter().copied()));
    unsorted.sort_by_key(|(column, _)| *column);
    if let Some(pair) = unsorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(format!("it has two values for gene {}", pair[0].0));
    }
    for ((column, value), sorted) in columns.iter_mut().zip(values).zip(unsorted.iter()) {
        (*column, *value) = *sorted;
    }
    Ok(())
}

impl ReadRows for MdsReader<'_> {
    fn fetch(&mut self, wanted: &Wanted<'_>, _: &mut Rows) -> Result<u64, AnnDataError> {
        self.used = 0;
        self.packed.clear();
        self.find(wanted).inspect_err(|_| {
            self.places.clear();
            self.order.clear();
        })?;
        let store = self.store;
        let (mut bytes, mut next, mut packed) = (0, 0, 0);
        while next < self.order.len() {
            let shard = self.places[self.order[next] as usize].shard as usize;
            let end =
                next + self.order[next..].partition_point(|place| self.places[*place as usize].shard as usize == shard);
            self.touched.get_mut().insert(shard);
            match &store.shards[shard].body {
                ShardBody::Raw(offsets) => bytes += self.read_samples(shard, offsets, next, end)?,
                ShardBody::Packed(_) => packed += self.read_packed(shard, packed)?,
            }
            next = end;
        }
        Ok(bytes + packed)
    }

    fn decode(&mut self, out: &mut Rows) -> Result<(), AnnDataError> {
        let genes = self.store.genes.len();
        let before = match out {
            Rows::Sparse(rows) => [rows.len(), rows.indices.len(), rows.data.len()],
            Rows::Dense(rows) => {
                if rows.data.is_empty() {
                    rows.columns = genes;
                }
                if rows.columns != genes {
                    let reason = format!("rows of {genes} values behind rows of {}", rows.columns);
                    return Err(AnnDataError::Invalid(reason));
                }
                [0, 0, rows.data.len()]
            }
        };
        let result = self.decode_rows(out);
        self.packed.clear();
        if result.is_err() {
            match out {
                Rows::Sparse(rows) => {
                    rows.indptr.truncate(before[0] + 1);
                    rows.indices.truncate(before[1]);
                    rows.data.truncate(before[2]);
                }
                Rows::Dense(rows) => rows.data.truncate(before[2]),
            }
        }
        result
    }

    fn unchanged(&self) -> Result<(), AnnDataError> {
        let mut touched = self.touched.borrow_mut();
        touched.iter().try_for_each(|shard| self.store.shards[*shard].source.unchanged())?;
        touched.clear();
        Ok(())
    }

    fn work_bytes(&self) -> u64 {
        let packed: usize = self.packed.iter().map(|(_, bytes)| bytes.capacity()).sum();
        let places = self.places.capacity() * size_of::<WantedSample>() + self.order.capacity() * size_of::<u32>();
        let unsorted = self.unsorted.capacity() * size_of::<(i32, f32)>();
        (self.bytes.capacity() + packed + self.kept.bytes() + places + unsorted) as u64
    }
}
