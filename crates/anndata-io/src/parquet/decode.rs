//! Decodes the fetched pages of one row group to float32 rows, for each of the three layouts: dense lists, sparse lists, a column for each gene.
//! Invariant: the output grows only by values that pages contain, whatever their headers claim.

use parquet::basic::Compression;

use crate::CsrRows;
use crate::parquet::error::{EncodingError, PageError};
use crate::parquet::levels::{ListLengths, ListLimit, RaggedRows, all_defined, check_row_starts, read_lists};
use crate::parquet::page::{Pages, Unpacker};
use crate::parquet::reader::RowRun;
use crate::parquet::schema::MatrixColumn;
use crate::parquet::values::{NumericElement, PageValues};

/// Pages of a column that were fetched.
#[derive(Clone, Debug)]
pub(crate) struct PageSegment {
    /// Range in the file.
    pub offset: u64,
    /// Size in bytes.
    pub len: usize,
    /// Offset in the fetch buffer.
    pub at: usize,
    /// First row that begins in these pages, counted within the row group.
    pub first_row: u64,
    /// Number of values of the row group before these pages, if all rows have the same length.
    pub first_value: u64,
    /// First row that begins after these pages, counted within the row group; `None` if there are no data pages.
    pub end_row: Option<u64>,
    /// Number of values of the row group up to the end of these pages, as above.
    pub end_value: Option<u64>,
    /// Index of the column: of lists 0 for gene numbers and 1 for values (0 for values without gene numbers), else the gene.
    pub leaf: usize,
    /// Index of the row group within the selection.
    pub group: usize,
    /// Number of values of all pages, from the footer.
    pub values: u64,
    /// Compression of the pages.
    pub compression: Compression,
}

/// What must be decoded of a row group.
#[derive(Clone, Copy)]
pub(crate) struct RowGroupRead<'a> {
    /// Number of its rows.
    pub rows: u64,
    /// Number of genes.
    pub genes: usize,
    /// The selected rows, ascending.
    pub pieces: &'a [RowRun],
    /// Segments of all columns.
    pub segments: &'a [PageSegment],
    /// The fetch buffer.
    pub bytes: &'a [u8],
}

impl<'a> RowGroupRead<'a> {
    /// Segments of column `leaf`.
    pub fn segments(&self, leaf: usize) -> impl Iterator<Item = (&'a PageSegment, &'a [u8])> {
        let Self { segments, bytes, .. } = *self;
        let of_leaf = segments.iter().filter(move |segment| segment.leaf == leaf);
        of_leaf.map(move |segment| (segment, &bytes[segment.at..segment.at + segment.len]))
    }
}

/// Buffers of the decoder, reused between calls.
pub(crate) struct DecodeBuffers {
    pub unpacker: Unpacker,
    /// Values of the dictionary.
    pub values: Vec<f32>,
    /// Values of the dictionary of gene numbers.
    pub indices: Vec<i32>,
    pub lists: ListLengths,
    /// Values of some columns.
    pub columns: Vec<f32>,
}

impl DecodeBuffers {
    pub fn new() -> Self {
        let (values, indices, columns) = (Vec::new(), Vec::new(), Vec::new());
        Self { unpacker: Unpacker::new(), values, indices, lists: ListLengths::default(), columns }
    }

    /// Allocated bytes.
    pub fn bytes(&self) -> u64 {
        let of =
            self.values.capacity() + self.indices.capacity() + self.lists.lens.capacity() + self.columns.capacity();
        self.unpacker.bytes() + of as u64 * 4
    }
}

/// Values that are decoded at once, 64 KiB: zeroed memory is then still in the cache when values are written to it.
const VALUES_AT_ONCE: usize = 1 << 14;

/// Decodes rows of a list column with equal lengths: float32 `[rows, genes]` to `out`, at the positions of the pieces, the
/// first of which is `base`. `out` grows as necessary.
///
/// Rows have `genes` values, so the position of a value is known without its levels: levels are checked run by run, and values
/// go straight from their page to their row.
pub(crate) fn decode_dense_lists(
    group: &RowGroupRead<'_>,
    leaf: &MatrixColumn,
    buffers: &mut DecodeBuffers,
    out: &mut Vec<f32>,
    base: usize,
) -> Result<(), PageError> {
    let genes = group.genes as u64;
    let total = group.rows * genes;
    let DecodeBuffers { unpacker, values: table, .. } = buffers;
    let mut has_dictionary = false;
    let mut missing: u64 = group.pieces.iter().map(|piece| piece.rows * genes).sum();
    for (segment, bytes) in group.segments(0) {
        let mut first = segment.first_value;
        let mut pages = Pages::new(bytes);
        while let Some((header, body)) = pages.next_data(|header, body| {
            has_dictionary = true;
            unpacker.dictionary(header, body, leaf.numeric, segment.compression, table)
        })? {
            let count = header.kind.data_values();
            let end = first + count as u64;
            if end > total {
                return Err(PageError::MoreValues { rows: group.rows, genes });
            }
            // Pieces ascend: those of this page are neighbours.
            let from = group.pieces.partition_point(|piece| (piece.row + piece.rows) * genes <= first);
            let mut at = first;
            let mut pieces = group.pieces[from..].iter().take_while(|piece| piece.row * genes < end).peekable();
            if pieces.peek().is_none() {
                first = end;
                continue;
            }
            let page = unpacker.data(&header, body, leaf, segment.compression)?;
            check_row_starts(page.repetition, first, count, genes).map_err(|e| match e {
                RaggedRows::Damaged(error) => error.into(),
                RaggedRows::Row(row) => PageError::Ragged { row, genes },
            })?;
            if !all_defined(page.definition, leaf.max_definition, count)? {
                return Err(EncodingError::Null.into());
            }
            let dictionary = has_dictionary.then_some(table.as_slice());
            let mut values = PageValues::new(page.encoding, leaf.numeric, page.values, count, dictionary)?;
            for piece in pieces {
                let start = (piece.row * genes).max(first);
                let stop = ((piece.row + piece.rows) * genes).min(end);
                let to = base + (piece.slot * genes + (start - piece.row * genes)) as usize;
                let len = (stop - start) as usize;
                values.skip((start - at) as usize)?;
                for to in
                    (to..to + len).step_by(VALUES_AT_ONCE).map(|first| first..(first + VALUES_AT_ONCE).min(to + len))
                {
                    if out.len() < to.end {
                        out.resize(to.end, 0.0);
                    }
                    values.read(&mut out[to])?;
                }
                at = stop;
                missing -= len as u64;
            }
            first = end;
        }
        if segment.end_value.is_some_and(|end| end != first) {
            return Err(PageError::PageRows);
        }
    }
    if missing > 0 { Err(PageError::MissingValues { values: missing }) } else { Ok(()) }
}

/// Columns that are transposed together: a cache line of each row.
const TRANSPOSED_COLUMNS: usize = 16;

/// Decodes rows with one column for each gene: float32 `[rows, genes]` to `out`, at the positions of the pieces.
pub(crate) fn decode_gene_columns(
    group: &RowGroupRead<'_>,
    leaves: &[MatrixColumn],
    buffers: &mut DecodeBuffers,
    out: &mut [f32],
) -> Result<(), PageError> {
    let (rows, genes) = (group.rows as usize, group.genes);
    for (block, leaves) in leaves.chunks(TRANSPOSED_COLUMNS).enumerate() {
        let mut columns = std::mem::take(&mut buffers.columns);
        columns.clear();
        columns.try_reserve_exact(leaves.len() * rows).map_err(|_| PageError::NoMemory { rows })?;
        for (i, leaf) in leaves.iter().enumerate() {
            let number = block * TRANSPOSED_COLUMNS + i;
            // One segment for each column, in the order of the columns.
            let segment =
                group.segments.get(number).filter(|segment| segment.leaf == number).ok_or(PageError::MissingColumn)?;
            let bytes = &group.bytes[segment.at..segment.at + segment.len];
            decode_column(segment, bytes, leaf, buffers, &mut columns, (i + 1) * rows)
                .map_err(|error| PageError::GeneColumn { gene: number, error: Box::new(error) })?;
        }
        for piece in group.pieces {
            for i in 0..piece.rows {
                let (from, to) =
                    ((piece.row + i) as usize, (piece.slot + i) as usize * genes + block * TRANSPOSED_COLUMNS);
                let out = out.get_mut(to..to + leaves.len()).ok_or(PageError::NoRoom)?;
                for (column, out) in out.iter_mut().enumerate() {
                    *out = columns[column * rows + from];
                }
            }
        }
        buffers.columns = columns;
    }
    Ok(())
}

/// Appends all values of a column to `out`, which then has `end` values. `out` grows only by values that the pages contain,
/// whatever their headers say.
fn decode_column(
    segment: &PageSegment,
    bytes: &[u8],
    leaf: &MatrixColumn,
    buffers: &mut DecodeBuffers,
    out: &mut Vec<f32>,
    end: usize,
) -> Result<(), PageError> {
    let DecodeBuffers { unpacker, values: table, .. } = buffers;
    let mut has_dictionary = false;
    let mut pages = Pages::new(bytes);
    while let Some((header, body)) = pages.next_data(|header, body| {
        has_dictionary = true;
        unpacker.dictionary(header, body, leaf.numeric, segment.compression, table)
    })? {
        let count = header.kind.data_values();
        if count > end - out.len() {
            return Err(PageError::LongColumn);
        }
        let page = unpacker.data(&header, body, leaf, segment.compression)?;
        if leaf.max_definition > 0 && !all_defined(page.definition, leaf.max_definition, count)? {
            return Err(EncodingError::Null.into());
        }
        let dictionary = has_dictionary.then_some(table.as_slice());
        PageValues::new(page.encoding, leaf.numeric, page.values, count, dictionary)?.append(count, out)?;
    }
    if out.len() < end { Err(PageError::ShortColumn { values: end - out.len() }) } else { Ok(()) }
}

/// Decodes rows of two list columns, and appends them to `out` in the order of the pieces.
pub(crate) fn decode_sparse_lists(
    group: &RowGroupRead<'_>,
    indices: &MatrixColumn,
    values: &MatrixColumn,
    buffers: &mut DecodeBuffers,
    out: &mut CsrRows,
) -> Result<(), PageError> {
    let first_row = out.len();
    let first = out.indices.len();
    let DecodeBuffers { unpacker, values: table, indices: index_table, lists, .. } = buffers;
    let (mut lens, mut value_lens) = (Vec::new(), Vec::new());
    decode_lists(group, 0, indices, unpacker, lists, index_table, &mut out.indices, &mut lens)?;
    decode_lists(group, 1, values, unpacker, lists, table, &mut out.data, &mut value_lens)?;
    if let Some(row) = (0..lens.len().max(value_lens.len())).find(|row| lens.get(*row) != value_lens.get(*row)) {
        return Err(PageError::ListLengths { indices: lens.get(row).copied(), values: value_lens.get(row).copied() });
    }
    let mut end = first;
    for len in lens {
        let start = end;
        end += len as usize;
        check_columns(&out.indices[start..end], group.genes)?;
        out.indptr.push(end as u64);
    }
    debug_assert_eq!(out.len() - first_row, group.pieces.iter().map(|piece| piece.rows as usize).sum::<usize>());
    Ok(())
}

/// Whether gene numbers ascend and are below `genes`.
fn check_columns(columns: &[i32], genes: usize) -> Result<(), PageError> {
    let (Some(first), Some(last)) = (columns.first(), columns.last()) else { return Ok(()) };
    // Without an early exit the loop is vectorised.
    let ascend = columns.iter().zip(&columns[1..]).fold(true, |ascend, (a, b)| ascend & (a < b));
    if ascend && *first >= 0 && (*last as usize) < genes {
        return Ok(());
    }
    let outside = columns.iter().find(|column| usize::try_from(**column).map_or(true, |column| column >= genes));
    Err(match outside {
        Some(gene) => PageError::Gene { gene: *gene, genes },
        None => PageError::Unsorted,
    })
}

/// Appends the values of the selected rows to `out`, and the length of each row to `lens`.
#[expect(clippy::too_many_arguments, reason = "parts of the memory of one decoder, of two types")]
fn decode_lists<T: NumericElement>(
    group: &RowGroupRead<'_>,
    index: usize,
    leaf: &MatrixColumn,
    unpacker: &mut Unpacker,
    lists: &mut ListLengths,
    table: &mut Vec<T>,
    out: &mut Vec<T>,
    lens: &mut Vec<u32>,
) -> Result<(), PageError> {
    let selected: u64 = group.pieces.iter().map(|piece| piece.rows).sum();
    let mut has_dictionary = false;
    let mut next_row = 0;
    // The row before `next_row` is selected and was the last one appended to `out`.
    let mut is_open = false;
    for (segment, bytes) in group.segments(index) {
        if segment.first_row != next_row {
            next_row = segment.first_row;
            is_open = false;
        }
        let mut pages = Pages::new(bytes);
        while let Some((header, body)) = pages.next_data(|header, body| {
            has_dictionary = true;
            unpacker.dictionary(header, body, leaf.numeric, segment.compression, table)
        })? {
            let count = header.kind.data_values();
            let limit = ListLimit { rows: group.rows, begun: next_row, genes: group.genes, values: segment.values };
            limit.check(count)?;
            let page = unpacker.data(&header, body, leaf, segment.compression)?;
            read_lists(page.repetition, page.definition, count, leaf, limit, lists)?;
            let dictionary = has_dictionary.then_some(table.as_slice());
            let mut values = PageValues::new(page.encoding, leaf.numeric, page.values, count, dictionary)?;
            if lists.lead > 0 && is_open {
                if let Some(len) = lens.last_mut() {
                    if *len as usize + lists.lead > group.genes {
                        return Err(EncodingError::LongRow.into());
                    }
                    *len += lists.lead as u32;
                }
                values.append(lists.lead, out)?;
            } else {
                values.skip(lists.lead)?;
            }
            let end = next_row + lists.lens.len() as u64;
            let from = group.pieces.partition_point(|piece| piece.row + piece.rows <= next_row);
            let mut at = 0;
            for piece in group.pieces[from..].iter().take_while(|piece| piece.row < end) {
                let start = (piece.row.max(next_row) - next_row) as usize;
                let stop = ((piece.row + piece.rows).min(end) - next_row) as usize;
                let sum = |lens: &[u32]| lens.iter().map(|len| *len as usize).sum::<usize>();
                values.skip(sum(&lists.lens[at..start]))?;
                values.append(sum(&lists.lens[start..stop]), out)?;
                lens.extend(&lists.lens[start..stop]);
                at = stop;
            }
            if !lists.lens.is_empty() {
                is_open = at == lists.lens.len();
            }
            next_row = end;
        }
        if segment.end_row.is_some_and(|end| end != next_row) {
            return Err(PageError::PageRows);
        }
    }
    let rows = lens.len() as u64;
    if rows != selected { Err(PageError::MissingRows { rows: selected - rows }) } else { Ok(()) }
}

#[cfg(test)]
mod sparse_tests {
    use parquet::basic::Compression;

    use super::*;
    use crate::parquet::reader::RowRun;
    use crate::parquet::values::NumericType;

    /// An unsigned varint, as in runs and headers.
    fn varint(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value > 0x7f {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }

    /// The next field of a header.
    fn field(value: u64) -> Vec<u8> {
        [vec![0x15], varint(value * 2)].concat()
    }

    /// A run of equal values of at most one byte.
    fn run(value: &[u8], count: u64) -> Vec<u8> {
        [varint(count << 1), value.to_vec()].concat()
    }

    /// A dictionary with the value 0, and a page that claims to have it `count` times.
    fn pages(repetition: &[u8], count: u64) -> Vec<u8> {
        let dictionary = [field(2), field(4), field(4), vec![0x4c], field(1), field(0), vec![0, 0], vec![0; 4]];
        let (definition, values) = (run(&[1], count), [vec![0], run(&[], count)].concat());
        let body = [repetition, &definition, &values].concat();
        let len = body.len() as u64;
        let counts = [field(count), field(0), field(1), field(8)].concat();
        let lens = [field(definition.len() as u64), field(repetition.len() as u64)].concat();
        let page = [field(3), field(len), field(len), vec![0x5c], counts, lens, vec![0x12, 0, 0], body];
        [dictionary.concat(), page.concat()].concat()
    }

    /// Decodes a row group of `rows` rows with such pages in both columns, and `claimed` values in the footer.
    fn decoded(repetition: &[u8], count: u64, rows: u64, claimed: u64) -> (Result<(), PageError>, CsrRows, u64) {
        let bytes = pages(repetition, count);
        let segment = |leaf| PageSegment {
            offset: 0,
            len: bytes.len(),
            at: 0,
            first_row: 0,
            first_value: 0,
            end_row: Some(rows),
            end_value: None,
            leaf,
            group: 0,
            values: claimed,
            compression: Compression::UNCOMPRESSED,
        };
        let pieces = [RowRun { row: 0, rows, slot: 0 }];
        let segments = [segment(0), segment(1)];
        let group = RowGroupRead { rows, genes: 1 << 20, pieces: &pieces, segments: &segments, bytes: &bytes };
        let leaf = |numeric| MatrixColumn { column: 0, numeric, max_definition: 1, max_repetition: 1, empty: 0 };
        let (mut work, mut out) = (DecodeBuffers::new(), CsrRows::default());
        let result = decode_sparse_lists(&group, &leaf(NumericType::I32), &leaf(NumericType::F32), &mut work, &mut out);
        (result, out, work.bytes())
    }

    #[test]
    fn no_room_is_made_for_more_values_than_there_can_be() {
        // Three rows with gene 0.
        let (result, rows, _) = decoded(&run(&[0], 3), 3, 3, 3);
        result.unwrap();
        assert_eq!((rows.indptr, rows.data), (vec![0, 1, 2, 3], vec![0.0; 3]));

        let huge = (1 << 30) - 1;
        let one_row = [run(&[0], 1), run(&[1], huge - 1)].concat();
        for (repetition, rows, claimed, reason) in [
            (run(&[0], huge), 3, u64::MAX, "there can be 3145728"),
            (run(&[0], huge), 1 << 20, 17, "there can be 17"),
            (run(&[0], huge), 1 << 20, u64::MAX, "more lists than rows"),
            (one_row, 1 << 20, u64::MAX, "more values than there are genes"),
        ] {
            let (result, out, room) = decoded(&repetition, huge, rows, claimed);
            let found = result.unwrap_err().to_string();
            assert!(found.contains(reason), "{found}");
            assert!(room < 1 << 20 && out.capacity_bytes() < 1 << 20, "{reason}: {room} {}", out.capacity_bytes());
        }
    }
}
