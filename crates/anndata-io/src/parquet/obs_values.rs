use parquet::basic::Encoding;

use super::file::{Chunk, ParquetFile};
use super::levels;
use super::numeric::{Element, Numeric};
use super::page::{Pages, Unpacker};
use super::page_header::PageHeader;
use super::runs::{Run, Runs, unpack_one};
use super::values::{Indices, Values};

/// A page of more bytes is damaged: obs has a few bytes a row.
const MAX_PAGE: usize = 1 << 30;

/// All numbers of a column with one value a row.
pub(super) fn numbers<T: Element>(
    file: &ParquetFile,
    column: usize,
    numeric: Numeric,
) -> Result<Vec<Option<T>>, String> {
    let mut table = Vec::new();
    read(file, column, |page, unpacker| match page {
        PageIn::Dictionary { header, body, chunk } => {
            unpacker.dictionary(header, body, numeric, chunk.compression, &mut table)?;
            Ok(Vec::new())
        }
        PageIn::Data { encoding, bytes, count } => {
            let mut out = Vec::new();
            Values::new(encoding, numeric, bytes, count, Some(&table))?.append(count, &mut out)?;
            Ok(out)
        }
    })
}

/// All truth values of a column.
pub(super) fn bools(file: &ParquetFile, column: usize) -> Result<Vec<Option<bool>>, String> {
    read(file, column, |page, _| match page {
        PageIn::Dictionary { .. } => Err("truth values have a dictionary".to_owned()),
        PageIn::Data { encoding: Encoding::PLAIN, bytes, count } => {
            if bytes.len() < count.div_ceil(8) {
                return Err("values are cut short".to_owned());
            }
            Ok((0..count).map(|i| bytes[i / 8] >> (i % 8) & 1 == 1).collect())
        }
        PageIn::Data { encoding: Encoding::RLE, bytes, count } => {
            let mut runs = Runs::new(bytes.get(4..).unwrap_or_default(), 1)?;
            let mut out = Vec::with_capacity(count);
            while out.len() < count {
                match runs.next()? {
                    Run::Repeat { value, count: n } => out.resize(out.len() + n.min(count - out.len()), value == 1),
                    Run::Packed { bytes, count: n } => {
                        let n = n.min(count - out.len());
                        out.extend((0..n).map(|i| unpack_one(bytes, 1, i) == 1));
                    }
                }
            }
            Ok(out)
        }
        PageIn::Data { encoding, .. } => Err(unknown(encoding)),
    })
}

/// All texts of a column.
pub(super) fn texts(file: &ParquetFile, column: usize) -> Result<Vec<Option<String>>, String> {
    let (mut table, mut places): (Vec<String>, Vec<u32>) = (Vec::new(), Vec::new());
    read(file, column, |page, unpacker| match page {
        PageIn::Dictionary { header, body, chunk } => {
            let (count, bytes) = unpacker.any_dictionary(header, body, chunk.compression, MAX_PAGE)?;
            table = plain_texts(bytes, count)?;
            places = (0..table.len() as u32).collect();
            Ok(Vec::new())
        }
        PageIn::Data { encoding: Encoding::PLAIN, bytes, count } => plain_texts(bytes, count),
        PageIn::Data { encoding: Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY, bytes, count } => {
            let mut found = vec![0; count];
            Indices::new(bytes, &places)?.read(&mut found)?;
            Ok(found.iter().map(|place| table[*place as usize].clone()).collect())
        }
        PageIn::Data { encoding, .. } => Err(unknown(encoding)),
    })
}

fn unknown(encoding: Encoding) -> String {
    format!(
        "values are encoded as {encoding}, which is not read here: write the file with plain or dictionary encoding"
    )
}

/// Texts behind their lengths.
fn plain_texts(mut bytes: &[u8], count: usize) -> Result<Vec<String>, String> {
    // A text takes four bytes at least.
    let mut texts = Vec::with_capacity(count.min(bytes.len() / 4));
    for _ in 0..count {
        let (len, rest) = bytes.split_first_chunk().ok_or("values are cut short")?;
        let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or("values are cut short")?;
        texts.push(std::str::from_utf8(text).map_err(|e| e.to_string())?.to_owned());
        bytes = rest;
    }
    Ok(texts)
}

/// What is to be decoded.
enum PageIn<'a> {
    Dictionary {
        header: &'a PageHeader,
        body: &'a [u8],
        chunk: &'a Chunk,
    },
    /// `count` values that are there.
    Data {
        encoding: Encoding,
        bytes: &'a [u8],
        count: usize,
    },
}

/// Read a column page by page; `decode` returns the values of a data page that are there.
fn read<T>(
    file: &ParquetFile,
    column: usize,
    mut decode: impl FnMut(PageIn<'_>, &mut Unpacker) -> Result<Vec<T>, String>,
) -> Result<Vec<Option<T>>, String> {
    let max = file.metadata.file_metadata().schema_descr().column(column).max_def_level();
    let mut all = Vec::new();
    let (mut unpacker, mut dictionaries, mut bytes) = (Unpacker::new(), Unpacker::new(), Vec::new());
    let mut end = 0;
    for (number, group) in file.metadata.row_groups().iter().enumerate() {
        end += group.num_rows() as usize;
        let chunk = file.chunk(number, column).map_err(|e| e.to_string())?;
        bytes.resize((chunk.bytes.end - chunk.bytes.start) as usize, 0);
        file.read(chunk.bytes.start, &mut bytes).map_err(|e| e.to_string())?;
        // What an earlier row group has is not this one's.
        let mut has_dictionary = false;
        let mut pages = Pages::new(&bytes);
        while let Some((header, body)) = pages.next_data(|header, body| {
            has_dictionary = true;
            decode(PageIn::Dictionary { header, body, chunk: &chunk }, &mut dictionaries).map(|_| ())
        })? {
            let count = header.kind.data_values();
            if all.len() + count > end {
                return Err(format!("row group {number}: it has more values than there are rows"));
            }
            let data = unpacker.any_data(&header, body, (0, max), chunk.compression, MAX_PAGE)?;
            if !has_dictionary && matches!(data.encoding, Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY) {
                return Err(format!("row group {number}: a page needs a dictionary, there is none"));
            }
            let is_there = if max > 0 { levels::defined(data.definition, max, count)? } else { vec![true; count] };
            let there = is_there.iter().filter(|is_there| **is_there).count();
            let page = PageIn::Data { encoding: data.encoding, bytes: data.values, count: there };
            let mut values = decode(page, &mut dictionaries)?.into_iter();
            all.extend(is_there.iter().map(|is_there| if *is_there { values.next() } else { None }));
        }
        if all.len() < end {
            return Err(format!("row group {number}: it has too few values"));
        }
    }
    Ok(all)
}
