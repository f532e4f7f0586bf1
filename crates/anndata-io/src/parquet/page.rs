//! `Pages` goes through the pages of a column chunk; `Unpacker` decompresses a page and separates its levels from its values.
//! Invariant: a checksum is compared and the claimed size bounded before a page is decompressed.

use std::error::Error;
use std::io::Read as _;

use parquet::basic::{Compression, Encoding};

use crate::parquet::error::PageError;
use crate::parquet::levels::{hybrid_of_bit_packed, level_width};
use crate::parquet::page_header::{PageHeader, PageKind};
use crate::parquet::schema::MatrixColumn;
use crate::parquet::values::{NumericElement, NumericType};

/// Consecutive pages.
pub(crate) struct Pages<'a> {
    bytes: &'a [u8],
}

impl<'a> Pages<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The next page: its header and its body.
    pub fn next(&mut self) -> Result<Option<(PageHeader, &'a [u8])>, PageError> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let header = PageHeader::parse(self.bytes)?;
        let rest = &self.bytes[header.header_bytes..];
        let (body, rest) = rest.split_at_checked(header.compressed).ok_or(PageError::CutShort)?;
        self.bytes = rest;
        Ok(Some((header, body)))
    }

    /// The next data page: its header and its body. Dictionary pages before it are passed to `dictionary`, other pages are
    /// skipped.
    pub fn next_data(
        &mut self,
        mut dictionary: impl FnMut(&PageHeader, &'a [u8]) -> Result<(), PageError>,
    ) -> Result<Option<(PageHeader, &'a [u8])>, PageError> {
        while let Some((header, body)) = self.next()? {
            match header.kind {
                PageKind::Dictionary { .. } => dictionary(&header, body)?,
                PageKind::Other => {}
                PageKind::V1 { .. } | PageKind::V2 { .. } => return Ok(Some((header, body))),
            }
        }
        Ok(None)
    }
}

/// A decompressed data page.
pub(crate) struct DataPage<'a> {
    pub encoding: Encoding,
    pub repetition: &'a [u8],
    pub definition: &'a [u8],
    pub values: &'a [u8],
}

/// Buffer for a decompressed page, and the decompressor.
pub(crate) struct Unpacker {
    body: BodyBuffer,
    /// Levels that were stored as `BIT_PACKED`, in the encoding that has replaced it.
    levels: [Vec<u8>; 2],
}

/// Where the body of a page is decompressed.
struct BodyBuffer {
    codec: PageDecompressor,
    room: Vec<u8>,
}

impl BodyBuffer {
    /// Decompresses `body` to `len` bytes, which must not exceed `most`.
    fn plain<'a>(
        &'a mut self,
        body: &'a [u8],
        compression: Compression,
        len: usize,
        most: usize,
    ) -> Result<&'a [u8], PageError> {
        if len > most {
            return Err(PageError::TooLarge { bytes: len });
        }
        if compression == Compression::UNCOMPRESSED {
            return if body.len() == len { Ok(body) } else { Err(PageError::Length) };
        }
        if self.room.len() < len {
            self.room.resize(len, 0);
        }
        let out = &mut self.room[..len];
        self.codec.decompress(compression, body, out)?;
        Ok(out)
    }
}

impl Unpacker {
    pub fn new() -> Self {
        let body = BodyBuffer { codec: PageDecompressor::new(), room: Vec::new() };
        Self { body, levels: Default::default() }
    }

    /// Allocated bytes.
    pub fn bytes(&self) -> u64 {
        (self.body.room.capacity() + self.levels.iter().map(Vec::capacity).sum::<usize>()) as u64
    }

    /// The data page with `header`, of column `leaf`.
    pub fn data<'a>(
        &'a mut self,
        header: &PageHeader,
        body: &'a [u8],
        leaf: &MatrixColumn,
        compression: Compression,
    ) -> Result<DataPage<'a>, PageError> {
        // Levels take 2 bits a value and a byte for every run; dictionary indices take 4 bytes, deltas 9.
        let most = header.kind.data_values().saturating_mul(leaf.numeric.bytes() + 12).saturating_add(4096);
        self.any_data(header, body, (leaf.max_repetition, leaf.max_definition), compression, most)
    }

    /// The data page of a column with these maximum levels, of at most `most` bytes.
    pub fn any_data<'a>(
        &'a mut self,
        header: &PageHeader,
        body: &'a [u8],
        (max_repetition, max_definition): (i16, i16),
        compression: Compression,
        most: usize,
    ) -> Result<DataPage<'a>, PageError> {
        check_crc(header, body)?;
        match header.kind {
            PageKind::V1 { values, encoding, definition, repetition } => {
                let mut rest = self.body.plain(body, compression, header.uncompressed, most)?;
                let [repetition_buffer, definition_buffer] = &mut self.levels;
                let repetition = v1_levels(&mut rest, max_repetition, repetition, values, repetition_buffer)?;
                let definition = v1_levels(&mut rest, max_definition, definition, values, definition_buffer)?;
                Ok(DataPage { encoding, repetition, definition, values: rest })
            }
            PageKind::V2 { encoding, definition_bytes, repetition_bytes, is_compressed, .. } => {
                let (repetition, rest) = body.split_at_checked(repetition_bytes).ok_or(PageError::ShortLevels)?;
                let (definition, rest) = rest.split_at_checked(definition_bytes).ok_or(PageError::ShortLevels)?;
                let len = header.uncompressed.checked_sub(repetition_bytes + definition_bytes);
                let len = len.ok_or(PageError::LongLevels)?;
                // A page without values may have an empty body.
                let compression =
                    if is_compressed && !rest.is_empty() { compression } else { Compression::UNCOMPRESSED };
                Ok(DataPage {
                    encoding,
                    repetition,
                    definition,
                    values: self.body.plain(rest, compression, len, most)?,
                })
            }
            PageKind::Dictionary { .. } | PageKind::Other => Err(PageError::NotData),
        }
    }

    /// Decodes a dictionary page into `table`.
    pub fn dictionary<T: NumericElement>(
        &mut self,
        header: &PageHeader,
        body: &[u8],
        numeric: NumericType,
        compression: Compression,
        table: &mut Vec<T>,
    ) -> Result<(), PageError> {
        let most = header.kind.dictionary_values().saturating_mul(numeric.bytes()).saturating_add(64);
        let (values, bytes) = self.any_dictionary(header, body, compression, most)?;
        let bytes = values.checked_mul(numeric.bytes()).and_then(|len| bytes.get(..len));
        let bytes = bytes.ok_or(PageError::ShortDictionary)?;
        table.clear();
        table.resize(values, T::default());
        Ok(T::convert(numeric, bytes, table)?)
    }

    /// A dictionary page of at most `most` bytes: its number of values and its bytes.
    pub fn any_dictionary<'a>(
        &'a mut self,
        header: &PageHeader,
        body: &'a [u8],
        compression: Compression,
        most: usize,
    ) -> Result<(usize, &'a [u8]), PageError> {
        let PageKind::Dictionary { values, encoding } = header.kind else {
            return Err(PageError::NotDictionary);
        };
        if !matches!(encoding, Encoding::PLAIN | Encoding::PLAIN_DICTIONARY) {
            return Err(PageError::DictionaryEncoding { encoding });
        }
        check_crc(header, body)?;
        Ok((values, self.body.plain(body, compression, header.uncompressed, most)?))
    }
}

/// Takes `count` levels up to `max` off the front of the body of a page of version 1: bytes of [`Encoding::RLE`], which follow their
/// length, or [`Encoding::BIT_PACKED`], which is converted to it in `buffer`.
#[expect(deprecated, reason = "files of before 2014 have BIT_PACKED")]
fn v1_levels<'a>(
    rest: &mut &'a [u8],
    max: i16,
    encoding: Encoding,
    count: usize,
    buffer: &'a mut Vec<u8>,
) -> Result<&'a [u8], PageError> {
    if max == 0 {
        return Ok(&[]);
    }
    match encoding {
        Encoding::RLE => {
            let (len, behind) = rest.split_first_chunk().ok_or(PageError::ShortLevels)?;
            let (levels, behind) =
                behind.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or(PageError::ShortLevels)?;
            *rest = behind;
            Ok(levels)
        }
        Encoding::BIT_PACKED => {
            let bits = count.checked_mul(level_width(max) as usize).ok_or(PageError::ShortLevels)?;
            let (levels, behind) = rest.split_at_checked(bits.div_ceil(8)).ok_or(PageError::ShortLevels)?;
            *rest = behind;
            hybrid_of_bit_packed(levels, level_width(max), count, buffer);
            Ok(buffer)
        }
        encoding => Err(PageError::LevelEncoding { encoding }),
    }
}

fn check_crc(header: &PageHeader, body: &[u8]) -> Result<(), PageError> {
    match header.crc {
        Some(crc) if crc32fast::hash(body) != crc => Err(PageError::Checksum),
        _ => Ok(()),
    }
}

/// Decompresses the pages of one thread.
pub(crate) struct PageDecompressor {
    snappy: snap::raw::Decoder,
    gzip: libdeflater::Decompressor,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl PageDecompressor {
    pub fn new() -> Self {
        Self { snappy: snap::raw::Decoder::new(), gzip: libdeflater::Decompressor::new(), zstd: None }
    }

    /// Fails if a compression is not supported.
    pub fn check(compression: Compression) -> Result<(), PageError> {
        match compression {
            Compression::UNCOMPRESSED
            | Compression::SNAPPY
            | Compression::GZIP(_)
            | Compression::LZ4
            | Compression::LZ4_RAW
            | Compression::ZSTD(_) => Ok(()),
            compression => Err(PageError::Compression { compression }),
        }
    }

    /// Decompresses into `out`, which has the decompressed size.
    pub fn decompress(&mut self, compression: Compression, from: &[u8], out: &mut [u8]) -> Result<(), PageError> {
        let count = match compression {
            Compression::UNCOMPRESSED if from.len() == out.len() => {
                out.copy_from_slice(from);
                out.len()
            }
            Compression::UNCOMPRESSED => from.len(),
            Compression::SNAPPY => self.snappy.decompress(from, out).map_err(undecodable)?,
            Compression::GZIP(_) => match self.gzip.gzip_decompress(from, out) {
                Ok(count) if count == out.len() => count,
                // Several gzip members in a row are valid (RFC 1952), and libdeflate reads only the first one.
                _ => gzip_members(from, out).map_err(undecodable)?,
            },
            Compression::ZSTD(_) => {
                let zstd = match &mut self.zstd {
                    Some(zstd) => zstd,
                    none => none.insert(zstd::bulk::Decompressor::new().map_err(undecodable)?),
                };
                zstd.decompress_to_buffer(from, out).map_err(undecodable)?
            }
            Compression::LZ4_RAW => lz4_flex::block::decompress_into(from, out).map_err(undecodable)?,
            Compression::LZ4 => hadoop_lz4(from, out)?,
            compression => return Err(PageError::Compression { compression }),
        };
        if count == out.len() {
            Ok(())
        } else {
            Err(PageError::DecompressedLength { found: count, expected: out.len() })
        }
    }
}

#[cold]
fn undecodable(error: impl Error + Send + Sync + 'static) -> PageError {
    PageError::Decompression(Box::new(error))
}

/// Decompresses all gzip members into `out`; the number of their bytes, which is larger than `out` if they do not fit.
fn gzip_members(from: &[u8], out: &mut [u8]) -> std::io::Result<usize> {
    let mut members = flate2::read::MultiGzDecoder::new(from);
    let mut count = 0;
    while count < out.len() {
        match members.read(&mut out[count..])? {
            0 => return Ok(count),
            read => count += read,
        }
    }
    Ok(count + members.read(&mut [0])?)
}

/// The deprecated codec `LZ4` of nearly all files: Hadoop's blocks, each with its decompressed and compressed size
/// (big-endian).
fn hadoop_lz4(mut from: &[u8], out: &mut [u8]) -> Result<usize, PageError> {
    let mut done = 0;
    while let Some((head, rest)) = from.split_at_checked(8) {
        let number = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        let (block, rest) = rest.split_at_checked(number(4)).ok_or(PageError::Lz4Block)?;
        let into = out.get_mut(done..).and_then(|out| out.get_mut(..number(0))).ok_or(PageError::Lz4Block)?;
        done += lz4_flex::block::decompress_into(block, into).map_err(undecodable)?;
        from = rest;
    }
    if from.is_empty() { Ok(done) } else { Err(PageError::Lz4Block) }
}
