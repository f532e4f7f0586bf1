//! `PageDirectory` says which pages of a list column have which rows, so that some rows of a row group are read without the others. It comes from
//! the page index of the file; without one, from the headers of pages (dense) or from their levels (sparse).

use std::ops::Range;

use parquet::file::metadata::page_index::PageIndexProvider;

use crate::AnnDataError;
use crate::parquet::error::{PageError, ParquetError};
use crate::parquet::file::{ColumnChunk, ParquetFile};
use crate::parquet::levels::{ListLengths, ListLimit, read_lists};
use crate::parquet::page::{Pages, Unpacker};
use crate::parquet::page_header::{HeaderError, PageHeader, PageKind};
use crate::parquet::schema::MatrixColumn;

/// Location of the pages of a column chunk of lists.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PageDirectory {
    /// Range of the dictionary page; empty if there is none.
    pub dictionary: Range<u64>,
    /// Data pages.
    pub pages: Vec<PageSpan>,
    /// Whether every page begins with a row.
    aligned: bool,
}

/// Location of a data page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageSpan {
    /// Range in the file, header included.
    pub bytes: Range<u64>,
    /// Number of rows of the row group that begin before the page.
    pub first_row: u64,
    /// Number of values of the row group before the page; 0 if the directory has rows only.
    pub first_value: u64,
    /// First row that begins in the next page.
    pub end_row: u64,
    /// First value of the next page; 0 as above.
    pub end_value: u64,
}

impl PageSpan {
    /// A page whose end is not known yet.
    fn new(bytes: Range<u64>, first_row: u64, first_value: u64) -> Self {
        Self { bytes, first_row, first_value, end_row: 0, end_value: 0 }
    }
}

/// Bytes that are read for a header at first; they are doubled until the header is complete.
const HEADER_WINDOW: usize = 512;
/// A longer header is taken for damaged.
const MAX_HEADER_BYTES: usize = 1 << 20;

impl PageDirectory {
    /// Finds the pages of column `leaf` of row group `group`, with the page index of the file or from page to page. Rows have
    /// `genes` values if `is_dense`, else at most `genes`. Also returns the number of bytes that were read.
    pub fn of(
        file: &ParquetFile,
        group: usize,
        leaf: &MatrixColumn,
        genes: usize,
        is_dense: bool,
    ) -> Result<(Self, u64), AnnDataError> {
        let chunk = file.chunk(group, leaf.column)?;
        let rows = file.metadata.row_group(group).num_rows();
        let index = file.page_index.as_ref().and_then(|index| index.offset_index(group, leaf.column));
        if let Some(index) = index.filter(|index| !index.page_locations().is_empty()) {
            let pages = index
                .page_locations()
                .iter()
                .map(|page| (page.offset, page.compressed_page_size, page.first_row_index));
            return Self::noted(&chunk, pages, rows, if is_dense { genes as u64 } else { 0 })
                .map(|found| (found, 0))
                .ok_or_else(|| file.damaged(ParquetError::in_group(group, ParquetError::PageIndex)));
        }
        if is_dense {
            return Self::from_headers(file, &chunk, genes as u64);
        }
        let most = ListLimit { rows: rows as u64, begun: 0, genes, values: chunk.values };
        Self::from_levels(file, &chunk, leaf, most)
    }

    /// Finds the pages with the page index; `None` if it is not usable.
    fn noted(chunk: &ColumnChunk, pages: impl Iterator<Item = (i64, i32, i64)>, rows: i64, genes: u64) -> Option<Self> {
        let mut found = Self { dictionary: chunk.bytes.start..chunk.bytes.start, pages: Vec::new(), aligned: true };
        let mut row = 0;
        for (offset, len, first_row) in pages {
            let start = u64::try_from(offset).ok()?;
            let end = start.checked_add(u64::try_from(len).ok()?)?;
            let before = found.pages.last().map_or(chunk.bytes.start, |page| page.bytes.end);
            if start < before || end > chunk.bytes.end || first_row > rows || first_row < row {
                return None;
            }
            if found.pages.is_empty() {
                if first_row != 0 {
                    return None;
                }
                found.dictionary.end = start;
            }
            row = first_row;
            let first_row = u64::try_from(first_row).ok()?;
            found.pages.push(PageSpan::new(start..end, first_row, first_row.checked_mul(genes)?));
        }
        let rows = u64::try_from(rows).ok()?;
        found.close(rows, rows.checked_mul(genes)?);
        Some(found)
    }

    /// Sets the end of each page to the start of the next one.
    fn close(&mut self, rows: u64, values: u64) {
        let (mut end_row, mut end_value) = (rows, values);
        for page in self.pages.iter_mut().rev() {
            (page.end_row, page.end_value) = (end_row, end_value);
            (end_row, end_value) = (page.first_row, page.first_value);
        }
    }

    /// Goes from page to page and reads only the headers.
    fn from_headers(file: &ParquetFile, chunk: &ColumnChunk, genes: u64) -> Result<(Self, u64), AnnDataError> {
        let mut found = Self { dictionary: chunk.bytes.start..chunk.bytes.start, pages: Vec::new(), aligned: false };
        let (mut at, mut value, mut bytes) = (chunk.bytes.start, 0_u64, 0);
        let mut window = Vec::new();
        while at < chunk.bytes.end {
            let header = read_header(file, at..chunk.bytes.end, &mut window, &mut bytes)?;
            let end = at + (header.header_bytes + header.compressed) as u64;
            if end > chunk.bytes.end {
                return Err(file.damaged(ParquetError::from(PageError::CutShort)));
            }
            match header.kind {
                PageKind::Dictionary { .. } => found.dictionary = at..end,
                PageKind::Other => {}
                PageKind::V1 { .. } | PageKind::V2 { .. } => {
                    let first_row = value.checked_div(genes).unwrap_or(0);
                    found.pages.push(PageSpan::new(at..end, first_row, value));
                    value += header.kind.data_values() as u64;
                }
            }
            at = end;
        }
        found.close(value.checked_div(genes).unwrap_or(0), value);
        Ok((found, bytes))
    }

    /// Goes from page to page and decodes the levels, since nothing else says which rows a page has.
    fn from_levels(
        file: &ParquetFile,
        chunk: &ColumnChunk,
        leaf: &MatrixColumn,
        mut most: ListLimit,
    ) -> Result<(Self, u64), AnnDataError> {
        let (mut found, mut all_bytes) = Self::from_headers(file, chunk, 0)?;
        let (mut unpacker, mut lists, mut bytes) = (Unpacker::new(), ListLengths::default(), Vec::new());
        for page in &mut found.pages {
            bytes.resize((page.bytes.end - page.bytes.start) as usize, 0);
            file.read(page.bytes.start, &mut bytes)?;
            all_bytes += bytes.len() as u64;
            page.first_row = most.begun;
            let of_page = Pages::new(&bytes).next().and_then(|next| {
                let (header, body) = next.ok_or(PageError::CutShort)?;
                let count = header.kind.data_values();
                most.check(count)?;
                let data = unpacker.data(&header, body, leaf, chunk.compression)?;
                read_lists(data.repetition, data.definition, count, leaf, most, &mut lists)?;
                Ok(())
            });
            of_page.map_err(|error| file.damaged(ParquetError::from(error)))?;
            most.begun += lists.lens.len() as u64;
        }
        found.close(most.begun, 0);
        Ok((found, all_bytes))
    }

    /// The pages that have the rows `rows`.
    pub fn pages_of(&self, rows: Range<u64>) -> &[PageSpan] {
        // The page that has the start of row `rows.start` is the last one whose first row is not behind it.
        let first = self.pages.partition_point(|page| page.first_row <= rows.start).saturating_sub(1);
        // Several pages can begin with the same row, if they have only continuations of the previous row.
        let first_of_row =
            self.pages.partition_point(|page| page.first_row < self.pages.get(first).map_or(0, |p| p.first_row));
        let first = if self.aligned { first } else { first_of_row };
        let end = self.pages.partition_point(|page| page.first_row < rows.end + u64::from(!self.aligned));
        self.pages.get(first..end).unwrap_or_default()
    }

    /// The pages that have the values `values`.
    pub fn pages_of_values(&self, values: Range<u64>) -> &[PageSpan] {
        let first = self.pages.partition_point(|page| page.first_value <= values.start).saturating_sub(1);
        let end = self.pages.partition_point(|page| page.first_value < values.end);
        self.pages.get(first..end).unwrap_or_default()
    }
}

/// Reads the header at the start of `bytes` of the file; adds the number of bytes to `read`.
fn read_header(
    file: &ParquetFile,
    bytes: Range<u64>,
    window: &mut Vec<u8>,
    read: &mut u64,
) -> Result<PageHeader, AnnDataError> {
    let most = usize::try_from(bytes.end - bytes.start).unwrap_or(usize::MAX);
    let mut len = HEADER_WINDOW.min(most);
    loop {
        window.resize(len, 0);
        file.source.read_near(bytes.start, window)?;
        *read += len as u64;
        match PageHeader::parse(window) {
            Ok(header) => return Ok(header),
            Err(HeaderError::CutShort) if len < most.min(MAX_HEADER_BYTES) => len = (len * 2).min(most),
            Err(error) => return Err(file.damaged(ParquetError::Page(error.into()))),
        }
    }
}
