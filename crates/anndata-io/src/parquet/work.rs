use super::levels::Lists;
use super::page::Unpacker;
use super::selection::Piece;
use parquet::basic::Compression;

/// Pages of a column that were fetched.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// Where they are in the file.
    pub(super) offset: u64,
    /// Their bytes.
    pub(super) len: usize,
    /// Where they are among the bytes fetched.
    pub(super) at: usize,
    /// How many rows begin before them in their row group.
    pub(super) first_row: u64,
    /// How many values come before them, where all rows have one length.
    pub(super) first_value: u64,
    /// How many rows of the row group have begun behind them; nothing where there are no data pages.
    pub(super) end_row: Option<u64>,
    /// How many values have come behind them, as above.
    pub(super) end_value: Option<u64>,
    /// Which column of the matrix, counted from 0.
    pub(super) leaf: usize,
    /// Which of the row groups of the selection.
    pub(super) group: usize,
    /// Values of all its pages, as the footer says.
    pub(super) values: u64,
    /// How they are compressed.
    pub(super) compression: Compression,
}

/// What is to be decoded of a row group.
#[derive(Clone, Copy)]
pub(super) struct GroupWork<'a> {
    /// Its rows.
    pub(super) rows: u64,
    /// Values of a row.
    pub(super) genes: usize,
    /// Rows that are wanted, ascending.
    pub(super) pieces: &'a [Piece],
    /// Pages of all columns.
    pub(super) segments: &'a [Segment],
    /// What segments are parts of.
    pub(super) bytes: &'a [u8],
}

impl<'a> GroupWork<'a> {
    /// Pages of column `leaf`.
    pub(super) fn segments(&self, leaf: usize) -> impl Iterator<Item = (&'a Segment, &'a [u8])> {
        let Self { segments, bytes, .. } = *self;
        let of_leaf = segments.iter().filter(move |segment| segment.leaf == leaf);
        of_leaf.map(move |segment| (segment, &bytes[segment.at..segment.at + segment.len]))
    }
}

/// Memory that decoding needs, kept from call to call.
pub(super) struct Work {
    pub(super) unpacker: Unpacker,
    /// Values of the dictionary.
    pub(super) values: Vec<f32>,
    /// Values of the dictionary of numbers of genes.
    pub(super) indices: Vec<i32>,
    pub(super) lists: Lists,
    /// Values of some columns.
    pub(super) columns: Vec<f32>,
}

impl Work {
    pub(super) fn new() -> Self {
        let (values, indices, columns) = (Vec::new(), Vec::new(), Vec::new());
        Self { unpacker: Unpacker::new(), values, indices, lists: Lists::default(), columns }
    }

    /// Bytes of memory held.
    pub(super) fn bytes(&self) -> u64 {
        let of =
            self.values.capacity() + self.indices.capacity() + self.lists.lens.capacity() + self.columns.capacity();
        self.unpacker.bytes() + of as u64 * 4
    }
}
