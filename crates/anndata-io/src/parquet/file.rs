//! `ParquetFile`: an open file with its footer and, for list columns, its page index.
//! Invariant: every column chunk lies inside the file, and the row groups together have the rows that the footer says.

use std::ops::Range;
use std::path::Path;

use bytes::Bytes;
use parquet::basic::Compression;
use parquet::file::metadata::page_index::PageIndex;
use parquet::file::metadata::{
    ColumnChunkMask, ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataOptions,
    ParquetMetaDataReader, ParquetStatisticsPolicy,
};
use parquet::file::reader::{ChunkReader, Length};

use crate::AnnDataError;
use crate::error::DamageKind;
use crate::parquet::error::ParquetError;
use crate::parquet::page::PageDecompressor;
use crate::source::byte_source::{ByteSource, ReadRange, SourceReader, as_uninit};

/// A parquet file with its footer. Threads share it.
#[derive(Debug)]
pub(crate) struct ParquetFile {
    pub source: ByteSource,
    /// The footer. All column chunks are within the file.
    pub metadata: ParquetMetaData,
    /// The page index, if the file has one and [`Self::with_page_index`] has read it.
    pub page_index: Option<PageIndex>,
}

/// Location of a column chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ColumnChunk {
    /// Range in the file: the dictionary page, if there is one, and all data pages.
    pub bytes: Range<u64>,
    /// Offset of the first data page.
    first_page: u64,
    /// Compression of its pages.
    pub compression: Compression,
    /// Number of values, nulls included.
    pub values: u64,
}

impl ParquetFile {
    /// Opens a file and reads its footer.
    pub fn open(path: &Path) -> Result<Self, AnnDataError> {
        let source = ByteSource::open(path)?;
        // Statistics are not needed; with 20,000 columns they would be most of the footer.
        let options = ParquetMetaDataOptions::new()
            .with_column_stats_policy(ParquetStatisticsPolicy::SkipAll)
            .with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll)
            .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll);
        let metadata = ParquetMetaDataReader::new()
            .with_metadata_options(Some(options))
            .parse_and_finish(&FooterReader(&source))
            .map_err(|e| source.damaged(ParquetError::from(e)))?;
        let opened = Self { source, metadata, page_index: None };
        opened.check().map_err(|error| AnnDataError::damaged(path, error))?;
        Ok(opened)
    }

    /// Reads the page index of these columns, if the file has one.
    pub fn with_page_index(self, columns: &[usize]) -> Result<Self, AnnDataError> {
        let Self { source, metadata, .. } = self;
        let (metadata, page_index) = ParquetMetaDataReader::new_with_metadata(metadata)
            .with_offset_index_policy(PageIndexPolicy::Optional)
            .with_offset_index_mask(ColumnChunkMask::columns(columns.iter().copied()))
            .read_page_index_and_finish(&FooterReader(&source))
            .map_err(|e| source.damaged(ParquetError::from(e)))?;
        Ok(Self { source, metadata, page_index })
    }

    /// An error for invalid content.
    pub fn damaged(&self, damage: impl Into<DamageKind>) -> AnnDataError {
        self.source.file_damaged(0, damage)
    }

    /// Reads exactly `out.len()` bytes from `offset` on.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), AnnDataError> {
        self.source.read_all(&[ReadRange { offset, at: 0, len: out.len() }], as_uninit(out))
    }

    /// Location of a column chunk.
    pub fn chunk(&self, group: usize, column: usize) -> Result<ColumnChunk, AnnDataError> {
        let chunk = self.metadata.row_groups().get(group).and_then(|group| group.columns().get(column));
        let chunk = chunk.ok_or(ParquetError::NoColumn { column }).and_then(|chunk| self.chunk_of(chunk));
        chunk.map_err(|error| self.damaged(ParquetError::in_group(group, error)))
    }

    fn chunk_of(&self, chunk: &ColumnChunkMetaData) -> Result<ColumnChunk, ParquetError> {
        let name = || chunk.column_path().string();
        let wrong = || ParquetError::ColumnPlace { column: name() };
        let number = |value: i64| u64::try_from(value).map_err(|_| wrong());
        if chunk.file_path().is_some() {
            return Err(ParquetError::OtherFile { column: name() });
        }
        let first_page = number(chunk.data_page_offset())?;
        // Some writers store 0 if there is no dictionary.
        let dictionary = chunk.dictionary_page_offset().map(number).transpose()?;
        let start = dictionary.filter(|at| (4..first_page).contains(at)).unwrap_or(first_page);
        let end = start.checked_add(number(chunk.compressed_size())?).filter(|end| *end <= self.source.bytes());
        let end = end.ok_or_else(wrong)?;
        if start < 4 || first_page > end {
            return Err(wrong());
        }
        let compression = chunk.compression();
        Ok(ColumnChunk { bytes: start..end, first_page, compression, values: number(chunk.num_values())? })
    }

    fn check(&self) -> Result<(), ParquetError> {
        let columns = self.metadata.file_metadata().schema_descr().num_columns();
        let mut rows = 0_u64;
        for (number, group) in self.metadata.row_groups().iter().enumerate() {
            let of_group = |error: ParquetError| ParquetError::in_group(number, error);
            if group.num_columns() != columns {
                let found = group.num_columns();
                return Err(of_group(ParquetError::ColumnCount { found, expected: columns }));
            }
            for chunk in group.columns() {
                self.chunk_of(chunk).map_err(of_group)?;
            }
            let of_this = u64::try_from(group.num_rows()).ok().filter(|rows| *rows <= i32::MAX as u64);
            rows += of_this.ok_or_else(|| of_group(ParquetError::RowGroupRows { rows: group.num_rows() }))?;
        }
        let said = self.metadata.file_metadata().num_rows();
        if u64::try_from(said) != Ok(rows) {
            return Err(ParquetError::Rows { footer: said, row_groups: rows });
        }
        Ok(())
    }

    /// Fails if the pages of a column cannot be decompressed.
    pub fn check_compression(&self, column: usize) -> Result<(), AnnDataError> {
        for group in self.metadata.row_groups() {
            let checked = PageDecompressor::check(group.column(column).compression());
            checked.map_err(|error| self.damaged(ParquetError::from(error)))?;
        }
        Ok(())
    }
}

/// Input of the footer reader of the parquet crate.
struct FooterReader<'s>(&'s ByteSource);

impl Length for FooterReader<'_> {
    fn len(&self) -> u64 {
        self.0.bytes()
    }
}

impl<'s> ChunkReader for FooterReader<'s> {
    type T = SourceReader<'s>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<SourceReader<'s>> {
        Ok(self.0.reader(start..self.0.bytes()))
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.0.bytes()) {
            return Err(parquet::errors::ParquetError::EOF(format!("no {length} bytes at {start}")));
        }
        let bytes = self.0.read_vec(start, length);
        bytes.map(Bytes::from).map_err(|e| parquet::errors::ParquetError::External(e.into()))
    }
}
