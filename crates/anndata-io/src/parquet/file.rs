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
use crate::parquet::page::PageDecompressor;
use crate::source::byte_source::{ByteSource, ReadRange, SourceReader, as_uninit};

/// A parquet file and its footer. Read at positions: threads share it.
#[derive(Debug)]
pub(crate) struct ParquetFile {
    pub source: ByteSource,
    /// The footer. Every column chunk of it is within the file.
    pub metadata: ParquetMetaData,
    /// Where pages are, as far as the file has noted it and [`Self::with_page_index`] has read it.
    pub page_index: Option<PageIndex>,
}

/// Where a column of a row group is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ColumnChunk {
    /// Bytes of the file: the dictionary page, if there is one, and all data pages.
    pub bytes: Range<u64>,
    /// Where the first data page begins.
    first_page: u64,
    /// How its pages are compressed.
    pub compression: Compression,
    /// Values, nulls among them.
    pub values: u64,
}

impl ParquetFile {
    /// Open it and read its footer.
    pub fn open(path: &Path) -> Result<Self, AnnDataError> {
        let source = ByteSource::open(path)?;
        // Statistics of 20,000 columns are most of a footer, and nobody asks for them.
        let options = ParquetMetaDataOptions::new()
            .with_column_stats_policy(ParquetStatisticsPolicy::SkipAll)
            .with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll)
            .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll);
        let metadata = ParquetMetaDataReader::new()
            .with_metadata_options(Some(options))
            .parse_and_finish(&FooterReader(&source))
            .map_err(|e| source.damaged(e))?;
        let opened = Self { source, metadata, page_index: None };
        opened.check().map_err(|reason| AnnDataError::damaged(path, reason))?;
        Ok(opened)
    }

    /// Read where the pages of these columns are, if the file has noted it.
    pub fn with_page_index(self, columns: &[usize]) -> Result<Self, AnnDataError> {
        let Self { source, metadata, .. } = self;
        let (metadata, page_index) = ParquetMetaDataReader::new_with_metadata(metadata)
            .with_offset_index_policy(PageIndexPolicy::Optional)
            .with_offset_index_mask(ColumnChunkMask::columns(columns.iter().copied()))
            .read_page_index_and_finish(&FooterReader(&source))
            .map_err(|e| source.damaged(e))?;
        Ok(Self { source, metadata, page_index })
    }

    /// The error for content that is wrong.
    pub fn damaged(&self, reason: impl ToString) -> AnnDataError {
        self.source.file_damaged(0, reason)
    }

    /// Fill `out` from `offset` on.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), AnnDataError> {
        self.source.read_all(&[ReadRange { offset, at: 0, len: out.len() }], as_uninit(out))
    }

    /// Where a column of a row group is.
    pub fn chunk(&self, group: usize, column: usize) -> Result<ColumnChunk, AnnDataError> {
        let chunk = self.metadata.row_groups().get(group).and_then(|group| group.columns().get(column));
        let chunk = chunk.ok_or_else(|| self.damaged(format!("row group {group} has no column {column}")))?;
        self.chunk_of(chunk).map_err(|reason| self.damaged(format!("row group {group}: {reason}")))
    }

    fn chunk_of(&self, chunk: &ColumnChunkMetaData) -> Result<ColumnChunk, String> {
        let name = || chunk.column_path().string();
        let wrong = || format!("column '{}' is not where the footer says", name());
        let number = |value: i64| u64::try_from(value).map_err(|_| wrong());
        if chunk.file_path().is_some() {
            return Err(format!("column '{}' is in another file", name()));
        }
        let first_page = number(chunk.data_page_offset())?;
        // Some writers give 0 where there is no dictionary.
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

    fn check(&self) -> Result<(), String> {
        let columns = self.metadata.file_metadata().schema_descr().num_columns();
        let mut rows = 0_u64;
        for (number, group) in self.metadata.row_groups().iter().enumerate() {
            let of_group = |reason: String| format!("row group {number}: {reason}");
            if group.num_columns() != columns {
                return Err(of_group(format!("it has {} columns, the file has {columns}", group.num_columns())));
            }
            for chunk in group.columns() {
                self.chunk_of(chunk).map_err(of_group)?;
            }
            let of_this = u64::try_from(group.num_rows()).ok().filter(|rows| *rows <= i32::MAX as u64);
            rows += of_this.ok_or_else(|| of_group(format!("it has {} rows", group.num_rows())))?;
        }
        let said = self.metadata.file_metadata().num_rows();
        if u64::try_from(said) != Ok(rows) {
            return Err(format!("its footer says that it has {said} rows, its row groups have {rows}"));
        }
        Ok(())
    }

    /// An error if the pages of a column cannot be decompressed.
    pub fn check_compression(&self, column: usize) -> Result<(), AnnDataError> {
        for group in self.metadata.row_groups() {
            PageDecompressor::check(group.column(column).compression()).map_err(|reason| self.damaged(reason))?;
        }
        Ok(())
    }
}

/// What the reader of footers reads from.
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
