//! Parquet: our page reader, the column readers of the `parquet` crate, and its record batches.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anndata_io::{ArrayStore, CsrRows, ParquetStore};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type as ArrowInt32};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection as ArrowSelection,
};
use parquet::column::reader::{ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{DataType, FloatType, Int32Type};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::serialized_reader::{ReadOptionsBuilder, SerializedFileReader};

use crate::files::{GENES, ROW_GROUP};
use crate::harness::{Case, Check, Clock, Context, Hash, Outcome, Pass, RunPass};
use crate::ours;
use crate::work::{Draw, Request};

/// Batches of single rows of a pass: about the time of a pass over all rows.
const BATCHES: u64 = 40;

pub fn cases() -> Vec<Case> {
    let draws = [Draw::InOrder(ROW_GROUP), Draw::Blocks(ROW_GROUP), Draw::Single(BATCHES)];
    let mut cases = Vec::new();
    for (file, names) in [
        ("sparse.parquet", ["CSR lists, in order", "CSR lists, random row groups", "CSR lists, single rows"]),
        ("dense.parquet", ["dense lists, in order", "dense lists, random row groups", "dense lists, single rows"]),
    ] {
        let is_sparse = file == "sparse.parquet";
        for (draw, name) in draws.into_iter().zip(names) {
            let path = move |context: &Context| context.folder.join(file);
            cases.push(
                Case::new("parquet", name, "rows/s")
                    .side("ours", move |context| ours::passes(ParquetStore::open(&path(context))?, draw))
                    .side("parquet, column readers", move |context| columns(&path(context), is_sparse, draw))
                    .side("parquet, arrow batches", move |context| batches(&path(context), is_sparse, draw)),
            );
        }
    }
    cases
}

/// First row of each row group, and the end.
fn starts(metadata: &ParquetMetaData) -> Vec<u64> {
    let mut starts = vec![0];
    for group in metadata.row_groups() {
        starts.push(starts[starts.len() - 1] + group.num_rows() as u64);
    }
    starts
}

/// Selected rows in file order, as runs, and for each position of the request its row among them.
#[derive(Default)]
struct Sorted {
    runs: Vec<Range<u64>>,
    positions: Vec<usize>,
    /// Whether the rows of the runs are in the order of the request.
    in_order: bool,
}

impl Sorted {
    fn new(request: &Request) -> Self {
        let rows = match request {
            Request::Range(range) => return Self { runs: vec![range.clone()], positions: Vec::new(), in_order: true },
            Request::Rows(rows) => rows,
        };
        let mut order: Vec<(u64, usize)> = rows.iter().copied().zip(0..).collect();
        order.sort_unstable();
        let mut sorted = Self { runs: Vec::new(), positions: vec![0; rows.len()], in_order: false };
        let mut distinct = 0;
        for (row, position) in order {
            match sorted.runs.last_mut() {
                Some(last) if last.end == row + 1 => {}
                Some(last) if last.end == row => (last.end, distinct) = (row + 1, distinct + 1),
                _ => {
                    sorted.runs.push(row..row + 1);
                    distinct += 1;
                }
            }
            sorted.positions[position] = distinct - 1;
        }
        sorted
    }

    /// The runs by row group, counted from its first row.
    fn by_group(&self, starts: &[u64]) -> Vec<(usize, Vec<Range<usize>>)> {
        let mut groups: Vec<(usize, Vec<Range<usize>>)> = Vec::new();
        for run in &self.runs {
            let mut row = run.start;
            while row < run.end {
                let group = starts.partition_point(|start| *start <= row) - 1;
                let end = run.end.min(starts[group + 1]);
                let part = (row - starts[group]) as usize..(end - starts[group]) as usize;
                match groups.last_mut() {
                    Some((last, parts)) if *last == group => parts.push(part),
                    _ => groups.push((group, vec![part])),
                }
                row = end;
            }
        }
        groups
    }
}

/// Rows, and memory for rows in file order.
#[derive(Default)]
struct Buffers {
    out: CsrRows,
    sorted: CsrRows,
}

impl Buffers {
    /// Appends rows with `read`, in file order, and puts them into the order of the request.
    fn fill(
        &mut self,
        sorted: &Sorted,
        is_sparse: bool,
        read: impl FnOnce(&mut CsrRows) -> Outcome<()>,
    ) -> Outcome<()> {
        self.out.clear();
        if sorted.in_order {
            return read(&mut self.out);
        }
        self.sorted.clear();
        read(&mut self.sorted)?;
        for position in &sorted.positions {
            if is_sparse {
                let (indices, data) = self.sorted.view().row(*position);
                self.out.indices.extend_from_slice(indices);
                self.out.data.extend_from_slice(data);
                self.out.indptr.push(self.out.indices.len() as u64);
            } else {
                let genes = GENES as usize;
                self.out.data.extend_from_slice(&self.sorted.data[position * genes..(position + 1) * genes]);
            }
        }
        Ok(())
    }
}

/// Passes with a way to read rows.
fn passes(
    rows: u64,
    is_sparse: bool,
    draw: Draw,
    mut read: impl FnMut(&Sorted, &mut CsrRows) -> Outcome<()> + 'static,
) -> RunPass {
    let requests = draw.requests(rows);
    let mut buffers = Buffers::default();
    Box::new(move |check| {
        let (mut clock, mut hash, mut units) = (Clock::default(), Hash::default(), 0);
        for request in &requests {
            clock.time(|| {
                let sorted = Sorted::new(request);
                buffers.fill(&sorted, is_sparse, |rows| read(&sorted, rows))
            })?;
            units += request.len();
            let out = &buffers.out;
            match (check, is_sparse) {
                (true, true) => hash.csr(&out.indptr, &out.indices, &out.data),
                (true, false) => hash.floats(&out.data),
                (false, _) => {}
            }
        }
        Ok(Pass { units, time: clock.0, check: Check::Same(hash.0) })
    })
}

/// Levels of a column.
#[derive(Default)]
struct Levels {
    definition: Vec<i16>,
    repetition: Vec<i16>,
}

/// Appends rows of a column chunk; pages between them are skipped by the page index.
fn read_column<T: DataType>(
    group: &dyn RowGroupReader,
    column: usize,
    parts: &[Range<usize>],
    levels: &mut Levels,
    values: &mut Vec<T::T>,
) -> Outcome<()> {
    let mut reader: ColumnReaderImpl<T> = get_typed_column_reader(group.get_column_reader(column)?);
    levels.definition.clear();
    levels.repetition.clear();
    let mut at = 0;
    for part in parts {
        if part.start > at {
            reader.skip_records(part.start - at)?;
        }
        let (mut left, Levels { definition, repetition }) = (part.len(), &mut *levels);
        while left > 0 {
            let (records, _, _) = reader.read_records(left, Some(&mut *definition), Some(&mut *repetition), values)?;
            if records == 0 {
                return Err("a column ends too early".into());
            }
            left -= records;
        }
        at = part.end;
    }
    Ok(())
}

fn columns(path: &Path, is_sparse: bool, draw: Draw) -> Outcome<RunPass> {
    let options = ReadOptionsBuilder::new().with_page_index().build();
    let file = SerializedFileReader::new_with_options(File::open(path)?, options)?;
    let starts = starts(file.metadata());
    let mut levels = Levels::default();
    Ok(passes(starts[starts.len() - 1], is_sparse, draw, move |sorted, out| {
        for (group, parts) in sorted.by_group(&starts) {
            let group = file.get_row_group(group)?;
            if is_sparse {
                let mut end = out.indices.len() as u64;
                read_column::<Int32Type>(group.as_ref(), 0, &parts, &mut levels, &mut out.indices)?;
                // A row begins where the repetition level is 0; an empty row has the definition level 0.
                let mut is_first = true;
                for (repetition, definition) in levels.repetition.iter().zip(&levels.definition) {
                    if *repetition == 0 && !std::mem::take(&mut is_first) {
                        out.indptr.push(end);
                    }
                    end += *definition as u64;
                }
                out.indptr.push(end);
                read_column::<FloatType>(group.as_ref(), 1, &parts, &mut levels, &mut out.data)?;
            } else {
                read_column::<FloatType>(group.as_ref(), 0, &parts, &mut levels, &mut out.data)?;
            }
        }
        Ok(())
    }))
}

fn batches(path: &Path, is_sparse: bool, draw: Draw) -> Outcome<RunPass> {
    let path: PathBuf = path.to_owned();
    let file = File::open(&path)?;
    let options = ArrowReaderOptions::new().with_offset_index_policy(PageIndexPolicy::Optional);
    let metadata = ArrowReaderMetadata::load(&file, options)?;
    let starts = starts(metadata.metadata());
    let columns: &[usize] = if is_sparse { &[0, 1] } else { &[0] };
    let mask = ProjectionMask::leaves(metadata.parquet_schema(), columns.iter().copied());
    Ok(passes(starts[starts.len() - 1], is_sparse, draw, move |sorted, out| {
        let groups = sorted.by_group(&starts);
        let numbers: Vec<usize> = groups.iter().map(|(group, _)| *group).collect();
        let (mut ranges, mut before, mut is_whole) = (Vec::new(), 0, true);
        for (group, parts) in &groups {
            let rows = (starts[group + 1] - starts[*group]) as usize;
            is_whole &= parts.len() == 1 && parts[0] == (0..rows);
            ranges.extend(parts.iter().map(|part| part.start + before..part.end + before));
            before += rows;
        }
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file.try_clone()?, metadata.clone())
            .with_projection(mask.clone())
            .with_row_groups(numbers)
            .with_batch_size(ROW_GROUP as usize);
        if !is_whole {
            builder = builder.with_row_selection(ArrowSelection::from_consecutive_ranges(ranges.into_iter(), before));
        }
        for batch in builder.build()? {
            let batch = batch?;
            if is_sparse {
                let (indices, data) = (batch.column(0).as_list::<i32>(), batch.column(1).as_list::<i32>());
                let offsets = indices.value_offsets();
                let (first, last) = (offsets[0] as usize, offsets[offsets.len() - 1] as usize);
                let base = out.indices.len() as u64;
                out.indptr.extend(offsets[1..].iter().map(|end| *end as u64 - first as u64 + base));
                out.indices.extend_from_slice(&indices.values().as_primitive::<ArrowInt32>().values()[first..last]);
                let offsets = data.value_offsets();
                let (first, last) = (offsets[0] as usize, offsets[offsets.len() - 1] as usize);
                out.data.extend_from_slice(&data.values().as_primitive::<Float32Type>().values()[first..last]);
            } else {
                let data = batch.column(0).as_list::<i32>();
                let offsets = data.value_offsets();
                let (first, last) = (offsets[0] as usize, offsets[offsets.len() - 1] as usize);
                out.data.extend_from_slice(&data.values().as_primitive::<Float32Type>().values()[first..last]);
            }
        }
        Ok(())
    }))
}
