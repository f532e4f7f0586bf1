//! `PageHeader`, parsed from Thrift's compact protocol.
//! Invariant: any bytes give a header, `HeaderError::CutShort` (more bytes are needed) or another error; nothing is allocated.

use parquet::basic::Encoding;

/// Header of a page (`PageHeader` in parquet.thrift).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageHeader {
    /// Size of the header in bytes.
    pub header_bytes: usize,
    /// Size of the body in bytes.
    pub compressed: usize,
    /// Decompressed size of the body in bytes, with the levels of version 2.
    pub uncompressed: usize,
    /// CRC-32 of the body, if the writer stored it.
    pub crc: Option<u32>,
    /// Type of the page.
    pub kind: PageKind,
}

/// Content of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageKind {
    /// A dictionary.
    Dictionary { values: usize, encoding: Encoding },
    /// Levels with their lengths, and values, compressed together.
    V1 { values: usize, encoding: Encoding, definition: Encoding, repetition: Encoding },
    /// Levels, which are never compressed, and values.
    V2 { values: usize, encoding: Encoding, definition_bytes: usize, repetition_bytes: usize, is_compressed: bool },
    /// A page without values.
    Other,
}

impl PageKind {
    /// Number of values and nulls of a data page; 0 for other pages.
    pub fn data_values(&self) -> usize {
        match self {
            Self::V1 { values, .. } | Self::V2 { values, .. } => *values,
            Self::Dictionary { .. } | Self::Other => 0,
        }
    }

    /// Number of values of a dictionary page; 0 for other pages.
    pub fn dictionary_values(&self) -> usize {
        if let Self::Dictionary { values, .. } = self { *values } else { 0 }
    }
}

/// Why there is no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeaderError {
    /// The bytes end within the header.
    #[error("a page header is cut short")]
    CutShort,
    #[error("a page header lacks a field")]
    MissingField,
    #[error("a page header has a field of a wrong type")]
    FieldType,
    #[error("a page header has a field of an unknown type")]
    UnknownType,
    #[error("a page header is nested too deep")]
    Depth,
    #[error("a page header has a number of too many bytes")]
    LongNumber,
    #[error("a page header has a count that is negative or too large")]
    Count,
    #[error("a page has a negative length")]
    NegativeLength,
    #[error("a page has an encoding that is not known here")]
    Encoding,
}

impl PageHeader {
    /// Parses the header at the start of `bytes`, in Thrift's compact protocol.
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        let mut thrift = Compact { bytes, at: 0 };
        let (mut kind, mut uncompressed, mut compressed, mut crc) = (None, None, None, None);
        let (mut v1, mut dictionary, mut v2) = (None, None, None);
        thrift.structure(|thrift, id, wire| {
            match id {
                1 => kind = Some(thrift.int(wire)?),
                2 => uncompressed = Some(thrift.size(wire)?),
                3 => compressed = Some(thrift.size(wire)?),
                4 => crc = Some(thrift.int(wire)? as u32),
                5 => v1 = Some(thrift.fields(wire)?),
                7 => dictionary = Some(thrift.fields(wire)?),
                8 => v2 = Some(thrift.fields(wire)?),
                _ => thrift.skip(wire, 0)?,
            }
            Ok(())
        })?;
        let missing = HeaderError::MissingField;
        let kind = match kind.ok_or(missing)? {
            0 => v1.ok_or(missing)?.v1()?,
            2 => dictionary.ok_or(missing)?.dictionary()?,
            3 => v2.ok_or(missing)?.v2()?,
            _ => PageKind::Other,
        };
        Ok(Self {
            header_bytes: thrift.at,
            compressed: compressed.ok_or(missing)?,
            uncompressed: uncompressed.ok_or(missing)?,
            crc,
            kind,
        })
    }
}

/// Integers of a struct in a page header by field id, 1 to 7.
#[derive(Clone, Copy, Default)]
struct Fields([Option<i64>; 8]);

impl Fields {
    fn size(&self, id: usize) -> Result<usize, HeaderError> {
        let value = self.0[id].ok_or(HeaderError::MissingField)?;
        // The format has int32 here.
        let value = i32::try_from(value).ok().and_then(|value| usize::try_from(value).ok());
        value.ok_or(HeaderError::Count)
    }

    #[expect(deprecated, reason = "files of before 2014 have BIT_PACKED")]
    fn encoding(&self, id: usize) -> Result<Encoding, HeaderError> {
        Ok(match self.size(id)? {
            0 => Encoding::PLAIN,
            2 => Encoding::PLAIN_DICTIONARY,
            3 => Encoding::RLE,
            4 => Encoding::BIT_PACKED,
            5 => Encoding::DELTA_BINARY_PACKED,
            6 => Encoding::DELTA_LENGTH_BYTE_ARRAY,
            7 => Encoding::DELTA_BYTE_ARRAY,
            8 => Encoding::RLE_DICTIONARY,
            9 => Encoding::BYTE_STREAM_SPLIT,
            _ => return Err(HeaderError::Encoding),
        })
    }

    fn v1(&self) -> Result<PageKind, HeaderError> {
        Ok(PageKind::V1 {
            values: self.size(1)?,
            encoding: self.encoding(2)?,
            definition: self.encoding(3)?,
            repetition: self.encoding(4)?,
        })
    }

    fn dictionary(&self) -> Result<PageKind, HeaderError> {
        Ok(PageKind::Dictionary { values: self.size(1)?, encoding: self.encoding(2)? })
    }

    fn v2(&self) -> Result<PageKind, HeaderError> {
        Ok(PageKind::V2 {
            values: self.size(1)?,
            encoding: self.encoding(4)?,
            definition_bytes: self.size(5)?,
            repetition_bytes: self.size(6)?,
            is_compressed: self.0[7] != Some(0),
        })
    }
}

/// Maximum nesting of skipped values; statistics have two levels.
const DEPTH: u32 = 8;

/// A reader of the part of Thrift's compact protocol that page headers use.
struct Compact<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Compact<'_> {
    fn byte(&mut self) -> Result<u8, HeaderError> {
        let byte = *self.bytes.get(self.at).ok_or(HeaderError::CutShort)?;
        self.at += 1;
        Ok(byte)
    }

    fn varint(&mut self) -> Result<u64, HeaderError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(HeaderError::LongNumber)
    }

    fn zigzag(&mut self) -> Result<i64, HeaderError> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// An integer or a Boolean.
    fn int(&mut self, wire: u8) -> Result<i64, HeaderError> {
        match wire {
            1 => Ok(1),
            2 => Ok(0),
            4..=6 => self.zigzag(),
            _ => Err(HeaderError::FieldType),
        }
    }

    fn size(&mut self, wire: u8) -> Result<usize, HeaderError> {
        // The format has int32 here.
        let value = i32::try_from(self.int(wire)?).ok().and_then(|value| usize::try_from(value).ok());
        value.ok_or(HeaderError::NegativeLength)
    }

    /// Calls `field` with id and type of each field; it reads the value.
    fn structure(
        &mut self,
        mut field: impl FnMut(&mut Self, i64, u8) -> Result<(), HeaderError>,
    ) -> Result<(), HeaderError> {
        let mut id = 0_i64;
        loop {
            let byte = self.byte()?;
            if byte & 0x0f == 0 {
                return Ok(());
            }
            id = match byte >> 4 {
                0 => self.zigzag()?,
                delta => id.wrapping_add(i64::from(delta)),
            };
            field(self, id, byte & 0x0f)?;
        }
    }

    fn fields(&mut self, wire: u8) -> Result<Fields, HeaderError> {
        if wire != 12 {
            return Err(HeaderError::FieldType);
        }
        let mut fields = Fields::default();
        self.structure(|thrift, id, wire| {
            match (usize::try_from(id).ok().filter(|id| *id < fields.0.len()), wire) {
                (Some(id), 1 | 2 | 4..=6) => fields.0[id] = Some(thrift.int(wire)?),
                _ => thrift.skip(wire, 0)?,
            }
            Ok(())
        })?;
        Ok(fields)
    }

    fn skip_bytes(&mut self, count: u64) -> Result<(), HeaderError> {
        let at = usize::try_from(count).ok().and_then(|count| self.at.checked_add(count));
        self.at = at.filter(|at| *at <= self.bytes.len()).ok_or(HeaderError::CutShort)?;
        Ok(())
    }

    fn skip(&mut self, wire: u8, depth: u32) -> Result<(), HeaderError> {
        if depth > DEPTH {
            return Err(HeaderError::Depth);
        }
        match wire {
            1 | 2 => Ok(()),
            3 => self.skip_bytes(1),
            4..=6 => self.varint().map(|_| ()),
            7 => self.skip_bytes(8),
            8 => {
                let len = self.varint()?;
                self.skip_bytes(len)
            }
            9 | 10 => {
                let head = self.byte()?;
                let len = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                for _ in 0..len {
                    match head & 0x0f {
                        1 | 2 => self.skip_bytes(1)?,
                        of => self.skip(of, depth + 1)?,
                    }
                }
                Ok(())
            }
            12 => self.structure(|thrift, _, wire| thrift.skip(wire, depth + 1)),
            _ => Err(HeaderError::UnknownType),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A page header of version 1 as pyarrow writes it: 20 values of 12 bytes (7 compressed), with statistics.
    const V1: [u8; 27] = [
        0x15, 0, 0x15, 24, 0x15, 14, 0x2c, 0x15, 40, 0x15, 16, 0x15, 6, 0x15, 6, 0x1c, 0x18, 2, 9, 9, 0x18, 1, 7, 0, 0,
        0, 0xff,
    ];

    #[test]
    fn a_header_is_read_to_its_end() {
        let kind = PageKind::V1 {
            values: 20,
            encoding: Encoding::RLE_DICTIONARY,
            definition: Encoding::RLE,
            repetition: Encoding::RLE,
        };
        let expected = PageHeader { header_bytes: 26, compressed: 7, uncompressed: 12, crc: None, kind };
        assert_eq!(PageHeader::parse(&V1), Ok(expected));
        for len in 0..26 {
            assert_eq!(PageHeader::parse(&V1[..len]), Err(HeaderError::CutShort), "{len} bytes");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_header_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(header) = PageHeader::parse(&bytes) {
                prop_assert!(header.header_bytes <= bytes.len());
            }
        }

        #[test]
        fn a_changed_header_is_a_header_or_an_error(at in 0..V1.len(), byte: u8) {
            let mut bytes = V1;
            bytes[at] = byte;
            let _ = PageHeader::parse(&bytes);
        }
    }
}
