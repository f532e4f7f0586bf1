use parquet::basic::{Compression, Encoding};

use super::codec::Codec;
use super::layout::Leaf;
use super::numeric::{Element, Numeric};
use super::page_header::{PageHeader, PageKind};

/// Pages that lie one behind the other.
pub(super) struct Pages<'a> {
    bytes: &'a [u8],
}

impl<'a> Pages<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The next page: its header, and what is behind it.
    pub(super) fn next(&mut self) -> Result<Option<(PageHeader, &'a [u8])>, String> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let header = PageHeader::parse(self.bytes).map_err(|e| e.reason().to_owned())?;
        let rest = &self.bytes[header.header_bytes..];
        let (body, rest) = rest.split_at_checked(header.compressed).ok_or("a page is cut short")?;
        self.bytes = rest;
        Ok(Some((header, body)))
    }

    /// The next page of data: its header, and what is behind it. Dictionaries before it are handed
    /// to `dictionary`, other pages are left out.
    pub(super) fn next_data(
        &mut self,
        mut dictionary: impl FnMut(&PageHeader, &'a [u8]) -> Result<(), String>,
    ) -> Result<Option<(PageHeader, &'a [u8])>, String> {
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

/// A data page, decompressed.
pub(super) struct DataPage<'a> {
    pub(super) encoding: Encoding,
    pub(super) repetition: &'a [u8],
    pub(super) definition: &'a [u8],
    pub(super) values: &'a [u8],
}

/// Room for a page that is decompressed, and what decompresses it.
pub(super) struct Unpacker {
    codec: Codec,
    room: Vec<u8>,
}

impl Unpacker {
    pub(super) fn new() -> Self {
        Self { codec: Codec::new(), room: Vec::new() }
    }

    /// Bytes of memory held.
    pub(super) fn bytes(&self) -> u64 {
        self.room.capacity() as u64
    }

    /// `body` decompressed to `len` bytes, `most` at most.
    fn plain<'a>(
        &'a mut self,
        body: &'a [u8],
        compression: Compression,
        len: usize,
        most: usize,
    ) -> Result<&'a [u8], String> {
        if len > most {
            return Err(format!("a page says that it has {len} bytes, which is too much for its values"));
        }
        if compression == Compression::UNCOMPRESSED {
            return if body.len() == len { Ok(body) } else { Err("a page has another length than it says".to_owned()) };
        }
        if self.room.len() < len {
            self.room.resize(len, 0);
        }
        let out = &mut self.room[..len];
        self.codec.decompress(compression, body, out).map_err(|e| format!("a page cannot be decompressed: {e}"))?;
        Ok(out)
    }

    /// A data page of `leaf`; `header` is one.
    pub(super) fn data<'a>(
        &'a mut self,
        header: &PageHeader,
        body: &'a [u8],
        leaf: &Leaf,
        compression: Compression,
    ) -> Result<DataPage<'a>, String> {
        // Levels have 2 bits a value, and a byte more for every run; dictionary indices 4 bytes, differences 9.
        let most = header.kind.data_values().saturating_mul(leaf.numeric.bytes() + 12).saturating_add(4096);
        self.any_data(header, body, (leaf.max_repetition, leaf.max_definition), compression, most)
    }

    /// A data page of a column with these highest levels of repetition and definition, of `most` bytes at most.
    pub(super) fn any_data<'a>(
        &'a mut self,
        header: &PageHeader,
        body: &'a [u8],
        (max_repetition, max_definition): (i16, i16),
        compression: Compression,
        most: usize,
    ) -> Result<DataPage<'a>, String> {
        check_crc(header, body)?;
        match header.kind {
            PageKind::V1 { encoding, definition, repetition, .. } => {
                for (max, encoding) in [(max_definition, definition), (max_repetition, repetition)] {
                    if max > 0 && encoding != Encoding::RLE {
                        return Err(format!("levels are encoded as {encoding}, which is not read here"));
                    }
                }
                let mut rest = self.plain(body, compression, header.uncompressed, most)?;
                let mut levels = |max: i16| -> Result<&'a [u8], String> {
                    if max == 0 {
                        return Ok(&[]);
                    }
                    let (len, behind) = rest.split_first_chunk().ok_or("levels are cut short")?;
                    let (levels, behind) =
                        behind.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or("levels are cut short")?;
                    rest = behind;
                    Ok(levels)
                };
                let repetition = levels(max_repetition)?;
                let definition = levels(max_definition)?;
                Ok(DataPage { encoding, repetition, definition, values: rest })
            }
            PageKind::V2 { encoding, definition_bytes, repetition_bytes, is_compressed, .. } => {
                let (repetition, rest) = body.split_at_checked(repetition_bytes).ok_or("levels are cut short")?;
                let (definition, rest) = rest.split_at_checked(definition_bytes).ok_or("levels are cut short")?;
                let len = header.uncompressed.checked_sub(repetition_bytes + definition_bytes);
                let len = len.ok_or("levels are longer than their page")?;
                // A page without values may have nothing to decompress.
                let compression =
                    if is_compressed && !rest.is_empty() { compression } else { Compression::UNCOMPRESSED };
                Ok(DataPage { encoding, repetition, definition, values: self.plain(rest, compression, len, most)? })
            }
            PageKind::Dictionary { .. } | PageKind::Other => Err("this is no data page".to_owned()),
        }
    }

    /// The values of a dictionary page, into `table`.
    pub(super) fn dictionary<T: Element>(
        &mut self,
        header: &PageHeader,
        body: &[u8],
        numeric: Numeric,
        compression: Compression,
        table: &mut Vec<T>,
    ) -> Result<(), String> {
        let most = header.kind.dictionary_values().saturating_mul(numeric.bytes()).saturating_add(64);
        let (values, bytes) = self.any_dictionary(header, body, compression, most)?;
        let bytes =
            values.checked_mul(numeric.bytes()).and_then(|len| bytes.get(..len)).ok_or("a dictionary is cut short")?;
        table.clear();
        table.resize(values, T::default());
        Ok(T::convert(numeric, bytes, table)?)
    }

    /// A dictionary page of `most` bytes at most: how many values it has, and its bytes.
    pub(super) fn any_dictionary<'a>(
        &'a mut self,
        header: &PageHeader,
        body: &'a [u8],
        compression: Compression,
        most: usize,
    ) -> Result<(usize, &'a [u8]), String> {
        let PageKind::Dictionary { values, encoding } = header.kind else {
            return Err("this is no dictionary page".to_owned());
        };
        if !matches!(encoding, Encoding::PLAIN | Encoding::PLAIN_DICTIONARY) {
            return Err(format!("a dictionary is encoded as {encoding}"));
        }
        check_crc(header, body)?;
        Ok((values, self.plain(body, compression, header.uncompressed, most)?))
    }
}

fn check_crc(header: &PageHeader, body: &[u8]) -> Result<(), String> {
    match header.crc {
        Some(crc) if crc32fast::hash(body) != crc => Err("a page has a wrong checksum".to_owned()),
        _ => Ok(()),
    }
}
