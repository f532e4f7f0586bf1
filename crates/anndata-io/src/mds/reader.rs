//! `MdsReader` reads the samples of selected rows: single samples of uncompressed shards, and compressed shards as a whole.
//! Invariant: rows come in the order of the selection, and the columns of a sparse row ascend below the number of genes.

use std::ops::Range;

use crate::lru_cache::LruCache;
use crate::mds::encoding::{append_f32, append_i32};
use crate::mds::error::SampleError;
use crate::mds::index::{MdsMatrixLayout, RAW_INDICES, RAW_VALUES};
use crate::mds::sample::parse_array;
use crate::mds::shard::{Shard, ShardBody, ShardCodec};
use crate::source::byte_source::{PendingReads, ReadRange, as_uninit};
use crate::source::coalesce::Coalescer;
use crate::{AnnDataError, ArrayStore, CsrRows, Form, MdsStore, Prefetch, ReadRows, RequestError, RowSelection, Rows};

/// Samples with at most this gap are read together.
const MAX_GAP: u64 = 1 << 14;
/// Bytes of compressed shards that are read before the first one is decompressed. Further shards are read one by one.
const MAX_FETCHED_BYTES: u64 = 1 << 28;
/// Capacity of the cache of decompressed shards.
const MAX_CACHED_SHARDS: usize = 4;
const MAX_CACHED_BYTES: usize = 256 << 20;

/// Reads rows of an [`MdsStore`].
pub(crate) struct MdsReader<'a> {
    store: &'a MdsStore,
    /// Samples of the selected rows, in the order of the selection.
    samples: Vec<RowSample>,
    /// Indices of `samples`, sorted by shard and sample.
    order: Vec<u32>,
    /// Whether rows are selected in the order of the shards.
    in_order: bool,
    reads: Vec<ReadRange>,
    pending: PendingReads,
    /// Fetched samples. Longer than `used`, so that it is not zeroed for every batch.
    bytes: Vec<u8>,
    used: usize,
    /// Fetched compressed shards.
    packed: Vec<(usize, Vec<u8>)>,
    /// Decompressed shards.
    cache: LruCache<usize, Vec<u8>>,
    unsorted: Vec<(i32, f32)>,
}

/// The sample of a row.
#[derive(Clone, Copy, Debug)]
struct RowSample {
    shard: u32,
    sample: u32,
    /// Offset in the fetch buffer, and length.
    at: usize,
    len: usize,
}

impl<'a> MdsReader<'a> {
    pub fn new(store: &'a MdsStore) -> Self {
        Self {
            store,
            samples: Vec::new(),
            order: Vec::new(),
            in_order: true,
            reads: Vec::new(),
            pending: PendingReads::default(),
            bytes: Vec::new(),
            used: 0,
            packed: Vec::new(),
            cache: LruCache::new(MAX_CACHED_SHARDS, MAX_CACHED_BYTES),
            unsorted: Vec::new(),
        }
    }

    /// Finds the samples of the selected rows.
    fn find(&mut self, wanted: &RowSelection<'_>) -> Result<(), AnnDataError> {
        let store = self.store;
        let (starts, end) = (&store.starts, store.len());
        let beyond = |row: u64| RequestError::RowBeyondEnd { row, store: store.name(), rows: end };
        self.samples.clear();
        self.order.clear();
        let mut shard = 0;
        let mut add = |row: u64| -> Result<(), RequestError> {
            if row >= end {
                return Err(beyond(row));
            }
            if !(starts[shard]..starts[shard + 1]).contains(&row) {
                shard = starts.partition_point(|start| *start <= row) - 1;
            }
            // The numbers fit: an index has no more shards than bytes, and a shard no more samples than bytes.
            self.samples.push(RowSample { shard: shard as u32, sample: (row - starts[shard]) as u32, at: 0, len: 0 });
            Ok(())
        };
        match wanted {
            RowSelection::Rows(rows) => rows.iter().copied().try_for_each(&mut add)?,
            RowSelection::Range(range) => {
                if range.start < range.end && range.end > end {
                    return Err(beyond(range.end - 1).into());
                }
                range.clone().try_for_each(&mut add)?;
            }
        }
        let samples = &self.samples;
        let key = |sample: &RowSample| (sample.shard, sample.sample);
        self.order.extend(0..samples.len() as u32);
        self.in_order = samples.is_sorted_by_key(key);
        if !self.in_order {
            self.order.sort_unstable_by_key(|number| key(&samples[*number as usize]));
        }
        Ok(())
    }

    /// The shard of the samples from `order[next]` on, and the range of `order` in this shard.
    fn shard_group(&self, next: usize) -> (usize, Range<usize>) {
        let shard_of = |number: u32| self.samples[number as usize].shard;
        let shard = shard_of(self.order[next]);
        let end = next + self.order[next..].partition_point(|number| shard_of(*number) == shard);
        (shard as usize, next..end)
    }

    /// Plans the reads of samples in uncompressed shards. Compressed shards are passed to `packed`.
    fn plan(
        &mut self,
        wanted: &RowSelection<'_>,
        mut packed: impl FnMut(&mut Self, usize) -> Result<(), AnnDataError>,
    ) -> Result<(), AnnDataError> {
        let store = self.store;
        self.reads.clear();
        self.find(wanted).inspect_err(|_| {
            self.samples.clear();
            self.order.clear();
        })?;
        let mut next = 0;
        while next < self.order.len() {
            let (number, group) = self.shard_group(next);
            next = group.end;
            let shard = &store.shards[number];
            store.source.mark_used(shard.file);
            match &shard.body {
                ShardBody::Packed(_) => packed(self, number)?,
                ShardBody::Raw(offsets) => {
                    let mut coalescer = Coalescer::new(&mut self.reads, MAX_GAP);
                    for number in &self.order[group] {
                        let sample = &mut self.samples[*number as usize];
                        let range = Shard::sample(offsets, sample.sample as usize);
                        let len = range.end - range.start;
                        (sample.at, sample.len) = (coalescer.add(shard.start + range.start, len), len as usize);
                    }
                }
            }
        }
        Ok(())
    }

    /// Decompresses a shard, unless it is cached.
    fn unpack(&mut self, number: usize, codec: ShardCodec) -> Result<(), AnnDataError> {
        if self.cache.find(&number).is_some() {
            return Ok(());
        }
        let (source, shard) = (&self.store.source, &self.store.shards[number]);
        let packed = match self.packed.iter_mut().find(|(fetched, _)| *fetched == number) {
            Some((_, bytes)) => std::mem::take(bytes),
            None => shard.read_packed(source)?,
        };
        let mut data = self.cache.make_room(shard.raw_bytes() as usize).unwrap_or_default();
        shard.unpack(source, codec, &packed, &mut data)?;
        self.cache.insert(number, data);
        Ok(())
    }

    /// Appends all rows.
    fn decode_rows(&mut self, out: &mut Rows) -> Result<(), AnnDataError> {
        let store = self.store;
        let mut next = 0;
        while next < self.order.len() {
            let (shard, group) = self.shard_group(next);
            next = group.end;
            match &store.shards[shard].body {
                ShardBody::Raw(_) if !self.in_order => {}
                ShardBody::Raw(_) => {
                    for sample in &self.samples[group] {
                        let bytes = &self.bytes[sample.at..sample.at + sample.len];
                        append_row(store, bytes, out, &mut self.unsorted)
                            .map_err(|error| store.damaged(shard, sample.sample.into(), error))?;
                    }
                }
                ShardBody::Packed(codec) => {
                    self.unpack(shard, *codec)?;
                    let data = self.cache.get(&shard).map_or(&[][..], Vec::as_slice);
                    for number in &self.order[group] {
                        let sample = &mut self.samples[*number as usize];
                        let bytes = &data[Shard::sample_in(data, sample.sample as usize)];
                        if self.in_order {
                            append_row(store, bytes, out, &mut self.unsorted)
                                .map_err(|error| store.damaged(shard, sample.sample.into(), error))?;
                            continue;
                        }
                        (sample.at, sample.len) = (self.used, bytes.len());
                        grow(&mut self.bytes, self.used + bytes.len())?;
                        self.bytes[self.used..self.used + bytes.len()].copy_from_slice(bytes);
                        self.used += bytes.len();
                    }
                }
            }
        }
        if self.in_order {
            return Ok(());
        }
        for sample in &self.samples {
            let bytes = &self.bytes[sample.at..sample.at + sample.len];
            append_row(store, bytes, out, &mut self.unsorted)
                .map_err(|error| store.damaged(sample.shard as usize, sample.sample.into(), error))?;
        }
        Ok(())
    }
}

/// Sets the length of a buffer that only grows.
fn grow(bytes: &mut Vec<u8>, len: usize) -> Result<(), AnnDataError> {
    if len > bytes.len() {
        bytes.try_reserve(len - bytes.len()).map_err(|_| AnnDataError::no_memory(len, "samples"))?;
        bytes.resize(len, 0);
    }
    Ok(())
}

/// Appends the row of a sample.
#[inline]
fn append_row(
    store: &MdsStore,
    sample: &[u8],
    out: &mut Rows,
    unsorted: &mut Vec<(i32, f32)>,
) -> Result<(), SampleError> {
    let (columns, genes) = (&store.columns, store.genes.len());
    match (store.layout, out) {
        (MdsMatrixLayout::Dense(x), Rows::Dense(out)) => {
            let [cell, _] = columns.shape.cells(sample, [x, x])?;
            let values = parse_array(&columns.encodings[x], RAW_VALUES, cell)?;
            if values.count != genes {
                return Err(SampleError::ValueCount { values: values.count, genes });
            }
            append_f32(values.dtype, values.bytes, &mut out.data);
            Ok(())
        }
        (MdsMatrixLayout::Sparse { indices, values }, Rows::Sparse(out)) => {
            let [index_cell, value_cell] = columns.shape.cells(sample, [indices, values])?;
            let indices = parse_array(&columns.encodings[indices], RAW_INDICES, index_cell)?;
            let values = parse_array(&columns.encodings[values], RAW_VALUES, value_cell)?;
            if indices.count != values.count {
                return Err(SampleError::ListLengths { indices: indices.count, values: values.count });
            }
            let start = out.indices.len();
            append_i32(indices.dtype, indices.bytes, &mut out.indices)?;
            append_f32(values.dtype, values.bytes, &mut out.data);
            sort_row(out, start, genes, unsorted)?;
            out.indptr.push(out.indices.len() as u64);
            Ok(())
        }
        _ => Err(SampleError::OtherForm),
    }
}

/// Sorts the values of the last row, from `start` on, by gene.
fn sort_row(out: &mut CsrRows, start: usize, genes: usize, unsorted: &mut Vec<(i32, f32)>) -> Result<(), SampleError> {
    let columns = &mut out.indices[start..];
    // Without an early exit the loop is vectorised.
    let ascend = columns.iter().zip(columns.iter().skip(1)).fold(true, |ascend, (a, b)| ascend & (a < b));
    let is_gene = |column: i32| usize::try_from(column).is_ok_and(|column| column < genes);
    if ascend && columns.first().is_none_or(|first| *first >= 0) && columns.last().is_none_or(|last| is_gene(*last)) {
        return Ok(());
    }
    if columns.iter().any(|column| !is_gene(*column)) {
        return Err(SampleError::UnknownGene { genes });
    }
    let values = &mut out.data[start..];
    unsorted.clear();
    unsorted.extend(columns.iter().copied().zip(values.iter().copied()));
    unsorted.sort_by_key(|(column, _)| *column);
    if let Some(pair) = unsorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(SampleError::RepeatedGene { gene: pair[0].0 });
    }
    for ((column, value), sorted) in columns.iter_mut().zip(values).zip(unsorted.iter()) {
        (*column, *value) = *sorted;
    }
    Ok(())
}

impl ReadRows for MdsReader<'_> {
    fn fetch(&mut self, wanted: &RowSelection<'_>, _: &mut Rows) -> Result<u64, AnnDataError> {
        let source = &self.store.source;
        self.used = 0;
        self.packed.clear();
        let mut packed_bytes = 0;
        self.plan(wanted, |reader, number| {
            if reader.cache.find(&number).is_some() {
                return Ok(());
            }
            let shard = &reader.store.shards[number];
            let range = source.file_range(shard.file);
            let bytes = range.end - range.start;
            if packed_bytes == 0 || packed_bytes + bytes <= MAX_FETCHED_BYTES {
                reader.packed.push((number, shard.read_packed(source)?));
            }
            packed_bytes += bytes;
            Ok(())
        })?;
        self.used = self.reads.last().map_or(0, ReadRange::buffer_end);
        grow(&mut self.bytes, self.used)?;
        let into = as_uninit(&mut self.bytes[..self.used]);
        source.read_cached(&self.reads, into, &mut self.pending)?;
        source.read_pending(&mut self.pending, into)?;
        Ok(self.used as u64 + packed_bytes)
    }

    fn will_need(&mut self, ranges: &[Range<u64>]) -> Result<Prefetch, AnnDataError> {
        let source = &self.store.source;
        let mut ahead = Prefetch::default();
        if source.is_remote() {
            for range in ranges {
                let mut packed = Vec::new();
                self.plan(&RowSelection::Range(range.clone()), |reader, number| {
                    if reader.cache.find(&number).is_none() {
                        let range = source.file_range(reader.store.shards[number].file);
                        packed.push(ReadRange { offset: range.start, at: 0, len: (range.end - range.start) as usize });
                    }
                    Ok(())
                })?;
                ahead.add(source.will_need(&packed)?);
                ahead.add(source.will_need(&self.reads)?);
            }
            self.samples.clear();
            self.order.clear();
        }
        Ok(ahead)
    }

    fn decode(&mut self, out: &mut Rows) -> Result<(), AnnDataError> {
        match self.store.form() {
            Form::Sparse => {
                out.sparse()?;
            }
            Form::Dense => {
                out.dense(self.store.genes.len())?;
            }
        }
        let before = out.end();
        let result = self.decode_rows(out);
        self.packed.clear();
        result.inspect_err(|_| out.truncate(before))
    }

    fn unchanged(&self) -> Result<(), AnnDataError> {
        self.store.source.unchanged()
    }

    fn work_bytes(&self) -> u64 {
        let packed: usize = self.packed.iter().map(|(_, bytes)| bytes.capacity()).sum();
        let lists = self.samples.capacity() * size_of::<RowSample>()
            + self.order.capacity() * size_of::<u32>()
            + self.reads.capacity() * size_of::<ReadRange>()
            + self.pending.capacity_bytes();
        let unsorted = self.unsorted.capacity() * size_of::<(i32, f32)>();
        (self.bytes.capacity() + packed + self.cache.bytes() + lists + unsorted) as u64
    }
}
