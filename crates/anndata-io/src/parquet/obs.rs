//! Reads an obs column of all row groups as classes or numbers. A null is a missing value: -1 as a class, NaN as a number.

use parquet::basic::Encoding;

use crate::annotation::coded_column::{BOOL_NAMES, CodedColumn};
use crate::parquet::error::{EncodingError, PageError, ParquetError};
use crate::parquet::file::{ColumnChunk, ParquetFile};
use crate::parquet::levels::{HybridRun, HybridRuns, defined_values, unpack_one};
use crate::parquet::page::{Pages, Unpacker};
use crate::parquet::page_header::PageHeader;
use crate::parquet::schema::ObsColumn;
use crate::parquet::values::{DictionaryIndices, NumericElement, NumericType, PageValues};
use crate::{LabelKind, Labels};

/// Reads a column of obs as classes. `categories` are the class names in the metadata of the file, if it has them.
pub(crate) fn obs_labels(
    file: &ParquetFile,
    leaf: ObsColumn,
    categories: Option<&Vec<String>>,
) -> Result<Labels, ParquetError> {
    match leaf {
        ObsColumn::Text(column) => {
            let mut coded = CodedColumn::<String>::default();
            read_texts(file, column)?.iter().for_each(|value| coded.add(value.as_deref()));
            Ok(CodedColumn::labels(vec![coded], categories, LabelKind::Text)?)
        }
        ObsColumn::Bool(column) => {
            let mut coded = CodedColumn::<String>::default();
            let names =
                read_bools(file, column)?.into_iter().map(|value| value.map(|value| BOOL_NAMES[usize::from(value)]));
            names.for_each(|name| coded.add(name));
            Ok(CodedColumn::labels(vec![coded], categories, LabelKind::Bool)?)
        }
        ObsColumn::Number(_, numeric) if numeric.is_float() => Err(ParquetError::Fractions),
        ObsColumn::Number(column, numeric) => {
            let mut coded = CodedColumn::<i128>::default();
            read_numbers::<i128>(file, column, numeric)?.into_iter().for_each(|value| coded.add(value));
            Ok(CodedColumn::labels(vec![coded], categories, LabelKind::Integer)?)
        }
    }
}

/// Reads a column of obs as numbers; a missing value is NaN.
pub(crate) fn obs_numbers(file: &ParquetFile, leaf: ObsColumn) -> Result<Vec<f64>, ParquetError> {
    let or_nan = |value: Option<f64>| value.unwrap_or(f64::NAN);
    match leaf {
        ObsColumn::Text(_) => Err(ParquetError::Text),
        ObsColumn::Bool(column) => Ok(read_bools(file, column)?
            .into_iter()
            .map(|value| or_nan(value.map(|value| f64::from(u8::from(value)))))
            .collect()),
        ObsColumn::Number(column, numeric) => {
            Ok(read_numbers::<f64>(file, column, numeric)?.into_iter().map(or_nan).collect())
        }
    }
}

/// A larger page is taken for damaged: obs has a few bytes a row.
const MAX_PAGE_BYTES: usize = 1 << 30;

/// Reads a column with one number a row.
pub(crate) fn read_numbers<T: NumericElement>(
    file: &ParquetFile,
    column: usize,
    numeric: NumericType,
) -> Result<Vec<Option<T>>, ParquetError> {
    let mut table = Vec::new();
    read_column(file, column, |page, unpacker| match page {
        ObsPage::Dictionary { header, body, chunk } => {
            unpacker.dictionary(header, body, numeric, chunk.compression, &mut table)?;
            Ok(Vec::new())
        }
        ObsPage::Data { encoding, bytes, count } => {
            let mut out = Vec::new();
            PageValues::new(encoding, numeric, bytes, count, Some(&table))?.append(count, &mut out)?;
            Ok(out)
        }
    })
}

/// Reads a column of truth values.
fn read_bools(file: &ParquetFile, column: usize) -> Result<Vec<Option<bool>>, ParquetError> {
    read_column(file, column, |page, _| match page {
        ObsPage::Dictionary { .. } => Err(PageError::BoolDictionary),
        ObsPage::Data { encoding: Encoding::PLAIN, bytes, count } => {
            if bytes.len() < count.div_ceil(8) {
                return Err(EncodingError::CutShort.into());
            }
            Ok((0..count).map(|i| bytes[i / 8] >> (i % 8) & 1 == 1).collect())
        }
        ObsPage::Data { encoding: Encoding::RLE, bytes, count } => {
            let mut runs = HybridRuns::new(bytes.get(4..).unwrap_or_default(), 1)?;
            let mut out = Vec::with_capacity(count);
            while out.len() < count {
                match runs.next()? {
                    HybridRun::Repeat { value, count: n } => {
                        out.resize(out.len() + n.min(count - out.len()), value == 1)
                    }
                    HybridRun::Packed { bytes, count: n } => {
                        let n = n.min(count - out.len());
                        out.extend((0..n).map(|i| unpack_one(bytes, 1, i) == 1));
                    }
                }
            }
            Ok(out)
        }
        ObsPage::Data { encoding, .. } => Err(PageError::ValueEncoding { encoding }),
    })
}

/// Reads a column of strings.
pub(crate) fn read_texts(file: &ParquetFile, column: usize) -> Result<Vec<Option<String>>, ParquetError> {
    let (mut table, mut places): (Vec<String>, Vec<u32>) = (Vec::new(), Vec::new());
    read_column(file, column, |page, unpacker| match page {
        ObsPage::Dictionary { header, body, chunk } => {
            let (count, bytes) = unpacker.any_dictionary(header, body, chunk.compression, MAX_PAGE_BYTES)?;
            table = plain_texts(bytes, count)?;
            places = (0..table.len() as u32).collect();
            Ok(Vec::new())
        }
        ObsPage::Data { encoding: Encoding::PLAIN, bytes, count } => plain_texts(bytes, count),
        ObsPage::Data { encoding: Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY, bytes, count } => {
            let mut found = vec![0; count];
            DictionaryIndices::new(bytes, &places)?.read(&mut found)?;
            Ok(found.iter().map(|place| table[*place as usize].clone()).collect())
        }
        ObsPage::Data { encoding, .. } => Err(PageError::ValueEncoding { encoding }),
    })
}

/// Decodes strings with their lengths.
fn plain_texts(mut bytes: &[u8], count: usize) -> Result<Vec<String>, PageError> {
    // A string takes at least the 4 bytes of its length.
    let mut texts = Vec::with_capacity(count.min(bytes.len() / 4));
    for _ in 0..count {
        let (len, rest) = bytes.split_first_chunk().ok_or(EncodingError::CutShort)?;
        let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or(EncodingError::CutShort)?;
        texts.push(std::str::from_utf8(text)?.to_owned());
        bytes = rest;
    }
    Ok(texts)
}

/// A page to decode.
enum ObsPage<'a> {
    Dictionary {
        header: &'a PageHeader,
        body: &'a [u8],
        chunk: &'a ColumnChunk,
    },
    /// The `count` present values.
    Data {
        encoding: Encoding,
        bytes: &'a [u8],
        count: usize,
    },
}

/// Reads a column page by page; `decode` returns the present values of a data page.
fn read_column<T>(
    file: &ParquetFile,
    column: usize,
    mut decode: impl FnMut(ObsPage<'_>, &mut Unpacker) -> Result<Vec<T>, PageError>,
) -> Result<Vec<Option<T>>, ParquetError> {
    let max = file.metadata.file_metadata().schema_descr().column(column).max_def_level();
    let mut all = Vec::new();
    let (mut unpacker, mut dictionaries, mut bytes) = (Unpacker::new(), Unpacker::new(), Vec::new());
    let mut end = 0;
    for (number, group) in file.metadata.row_groups().iter().enumerate() {
        end += group.num_rows() as usize;
        let chunk = file.chunk(number, column)?;
        bytes.resize((chunk.bytes.end - chunk.bytes.start) as usize, 0);
        file.read(chunk.bytes.start, &mut bytes)?;
        // A dictionary is valid for its row group only.
        let mut has_dictionary = false;
        let mut pages = Pages::new(&bytes);
        while let Some((header, body)) = pages.next_data(|header, body| {
            has_dictionary = true;
            decode(ObsPage::Dictionary { header, body, chunk: &chunk }, &mut dictionaries).map(|_| ())
        })? {
            let count = header.kind.data_values();
            if all.len() + count > end {
                return Err(ParquetError::in_group(number, ParquetError::LongObs));
            }
            let data = unpacker.any_data(&header, body, (0, max), chunk.compression, MAX_PAGE_BYTES)?;
            if !has_dictionary && matches!(data.encoding, Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY) {
                return Err(ParquetError::in_group(number, PageError::NoDictionary));
            }
            let is_there = if max > 0 { defined_values(data.definition, max, count)? } else { vec![true; count] };
            let there = is_there.iter().filter(|is_there| **is_there).count();
            let page = ObsPage::Data { encoding: data.encoding, bytes: data.values, count: there };
            let mut values = decode(page, &mut dictionaries)?.into_iter();
            all.extend(is_there.iter().map(|is_there| if *is_there { values.next() } else { None }));
        }
        if all.len() < end {
            return Err(ParquetError::in_group(number, ParquetError::ShortObs));
        }
    }
    Ok(all)
}
