//! The NPZ archives that records are: byte for byte what `numpy.savez` of numpy 2 writes for one-dimensional arrays.
//!
//! A zip file of stored members, each an `.npy` file of format 1.0: a local header (its 32-bit sizes are left to the zip64
//! field behind the name, as savez does for all members), the npy header, the elements; then the central directory with the
//! same sizes and CRCs, and its end record. No other zip feature exists here, so a reader that builds the header which must
//! come next, and compares, accepts all that was written and nothing else.

use std::ops::Range;

use crate::error::{ArrayError, RecordError};

/// Bytes of a local header up to the name.
const LOCAL: usize = 30;
/// Bytes of the zip64 field behind the name: two 64-bit sizes.
const EXTRA: usize = 20;
/// Bytes of an npy header: numpy leaves room for a shape of 21 digits and pads to 64, which gives this for each type here.
const NPY: usize = 128;
/// Bytes of an entry of the central directory up to the name.
const CENTRAL: usize = 46;
/// Bytes of the end record.
const END: usize = 22;

/// Type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    I64,
    F32,
    U8,
}

impl Dtype {
    /// As an npy header calls it.
    const fn descr(self) -> &'static str {
        match self {
            Self::I64 => "<i8",
            Self::F32 => "<f4",
            Self::U8 => "|u1",
        }
    }

    /// Bytes of an element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::I64 => 8,
            Self::F32 => 4,
            Self::U8 => 1,
        }
    }
}

/// An array of an archive: name and type. Invariant of all writing here: a record, which LMDB limits to 32 bits, is far
/// smaller than the 2 GiB from which on zip writes sizes and offsets in another way.
#[derive(Clone, Debug)]
pub struct Member {
    /// Name in the archive, with `.npy`.
    pub file: String,
    pub dtype: Dtype,
}

impl Member {
    pub fn new(name: &str, dtype: Dtype) -> Self {
        Self { file: format!("{name}.npy"), dtype }
    }

    /// Name of the array.
    pub fn name(&self) -> &str {
        self.file.strip_suffix(".npy").unwrap_or(&self.file)
    }

    /// Bytes before the elements.
    pub fn header(&self) -> usize {
        LOCAL + self.file.len() + EXTRA + NPY
    }

    /// Bytes that the local header and the central directory share: version, flags, method, time (the first of zip), CRC.
    fn common(&self, crc: u32) -> [u8; 14] {
        // Bit 11: the name is UTF-8.
        let flags: u16 = if self.file.is_ascii() { 0 } else { 1 << 11 };
        let mut bytes = [45, 0, 0, 0, 0, 0, 0, 0, 0x21, 0, 0, 0, 0, 0];
        bytes[2..4].copy_from_slice(&flags.to_le_bytes());
        bytes[10..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Local header up to the name.
    fn local(&self, crc: u32) -> [u8; LOCAL] {
        let mut bytes = [0xff; LOCAL];
        bytes[..4].copy_from_slice(b"PK\x03\x04");
        bytes[4..18].copy_from_slice(&self.common(crc));
        bytes[26..28].copy_from_slice(&(self.file.len() as u16).to_le_bytes());
        bytes[28..].copy_from_slice(&(EXTRA as u16).to_le_bytes());
        bytes
    }

    /// Entry of the central directory up to the name.
    fn central(&self, crc: u32, size: usize, offset: usize) -> [u8; CENTRAL] {
        let mut bytes = [0; CENTRAL];
        bytes[..4].copy_from_slice(b"PK\x01\x02");
        // Made on Unix, by version 4.5.
        bytes[4..6].copy_from_slice(&[45, 3]);
        bytes[6..20].copy_from_slice(&self.common(crc));
        bytes[20..24].copy_from_slice(&(size as u32).to_le_bytes());
        bytes[24..28].copy_from_slice(&(size as u32).to_le_bytes());
        bytes[28..30].copy_from_slice(&(self.file.len() as u16).to_le_bytes());
        // Mode rw-------.
        bytes[38..42].copy_from_slice(&(0o600_u32 << 16).to_le_bytes());
        bytes[42..].copy_from_slice(&(offset as u32).to_le_bytes());
        bytes
    }

    /// Header of an array of shape `[elements]`.
    fn npy(&self, elements: usize) -> [u8; NPY] {
        let mut bytes = [b' '; NPY];
        bytes[..10].copy_from_slice(b"\x93NUMPY\x01\x00\x76\x00");
        let mut at = 10;
        let mut put = |text: &[u8]| {
            bytes[at..at + text.len()].copy_from_slice(text);
            at += text.len();
        };
        put(b"{'descr': '");
        put(self.dtype.descr().as_bytes());
        put(b"', 'fortran_order': False, 'shape': (");
        let mut digits = [0; 20];
        let mut first = digits.len();
        let mut rest = elements;
        loop {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        put(&digits[first..]);
        put(b",), }");
        bytes[NPY - 1] = b'\n';
        bytes
    }
}

/// The zip64 field of a member of `size` bytes.
fn extra(size: u64) -> [u8; EXTRA] {
    let mut bytes = [0; EXTRA];
    bytes[..4].copy_from_slice(&[1, 0, 16, 0]);
    bytes[4..12].copy_from_slice(&size.to_le_bytes());
    bytes[12..].copy_from_slice(&size.to_le_bytes());
    bytes
}

/// The end record of an archive.
fn end_record(members: usize, directory: Range<usize>) -> [u8; END] {
    let mut bytes = [0; END];
    bytes[..4].copy_from_slice(b"PK\x05\x06");
    bytes[8..10].copy_from_slice(&(members as u16).to_le_bytes());
    bytes[10..12].copy_from_slice(&(members as u16).to_le_bytes());
    bytes[12..16].copy_from_slice(&(directory.len() as u32).to_le_bytes());
    bytes[16..20].copy_from_slice(&(directory.start as u32).to_le_bytes());
    bytes
}

/// Bytes of an archive of these members, each with so many elements, or so many on average.
pub fn archive_bytes<'m>(members: impl Iterator<Item = (&'m Member, f64)>) -> f64 {
    let of_member = |(member, elements): (&Member, f64)| {
        (member.header() + CENTRAL + member.file.len()) as f64 + elements * member.dtype.bytes() as f64
    };
    members.map(of_member).sum::<f64>() + END as f64
}

/// Append an archive to `out`. `elements` appends those of the `i`-th member.
pub fn write_npz<'m>(
    members: impl Iterator<Item = &'m Member>,
    out: &mut Vec<u8>,
    mut elements: impl FnMut(usize, &mut Vec<u8>),
) {
    let start = out.len();
    let mut written = Vec::new();
    for (i, member) in members.enumerate() {
        let local = out.len();
        out.resize(local + member.header(), 0);
        elements(i, out);
        let archived = &mut out[local..];
        let count = (archived.len() - member.header()) / member.dtype.bytes();
        let (head, file) = archived.split_at_mut(member.header() - NPY);
        file[..NPY].copy_from_slice(&member.npy(count));
        let crc = crc32fast::hash(file);
        head[..LOCAL].copy_from_slice(&member.local(crc));
        head[LOCAL..LOCAL + member.file.len()].copy_from_slice(member.file.as_bytes());
        head[LOCAL + member.file.len()..].copy_from_slice(&extra(file.len() as u64));
        written.push((member, crc, file.len(), local - start));
    }
    let directory = out.len();
    for (member, crc, size, offset) in &written {
        out.extend_from_slice(&member.central(*crc, *size, *offset));
        out.extend_from_slice(member.file.as_bytes());
    }
    let directory = directory - start..out.len() - start;
    out.extend_from_slice(&end_record(written.len(), directory));
}

/// Walks through the members of an archive. CRCs are compared with each other and not with the elements: that would cost more
/// than reading them.
pub struct NpzWalk<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> NpzWalk<'b> {
    /// Start at the front of an archive.
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Byte range of the elements of the next member, which must be `member`; the elements are whole.
    ///
    /// # Errors
    /// Another member, one that is not stored as savez does, another type or number of dimensions, or the archive's end.
    pub fn next(&mut self, member: &Member) -> Result<Range<usize>, ArrayError> {
        let rest = &self.bytes[self.at..];
        let (Some(local), Some(header)) = (LocalHeader::read(rest, member), rest.get(..member.header())) else {
            return Err(ArrayError::HeaderCut { bytes: self.bytes.len() });
        };
        let (head, npy) = header.split_at(member.header() - NPY);
        let (fixed, behind) = head.split_at(LOCAL);
        let (name, zip64) = behind.split_at(member.file.len());
        if fixed != member.local(local.crc) || name != member.file.as_bytes() || zip64 != extra(local.size) {
            return Err(ArrayError::NotThisMember { offset: self.at });
        }
        let available = rest.len() - head.len();
        let Some(bytes) = usize::try_from(local.size).ok().filter(|size| (NPY..=available).contains(size)) else {
            return Err(ArrayError::Truncated { bytes: local.size, available });
        };
        let elements = (bytes - NPY) / member.dtype.bytes();
        if !(bytes - NPY).is_multiple_of(member.dtype.bytes()) || npy != member.npy(elements) {
            return Err(ArrayError::NpyHeader { bytes: bytes - NPY, dtype: member.dtype.descr() });
        }
        let start = self.at + member.header();
        self.at = start + bytes - NPY;
        Ok(start..self.at)
    }

    /// Check that nothing but the central directory of `members`, all of which have been walked through, is left.
    ///
    /// # Errors
    /// The directory is another one, or bytes follow it.
    pub fn finish<'m>(self, members: impl Iterator<Item = &'m Member>) -> Result<(), RecordError> {
        let wrong = |offset: usize| RecordError::Directory { offset };
        let (mut at, mut offset, mut count) = (self.at, 0, 0);
        for member in members {
            let local = LocalHeader::read(&self.bytes[offset..], member).ok_or_else(|| wrong(at))?;
            let (size, names) = (local.size as usize, at + CENTRAL);
            let entry = self.bytes.get(at..names + member.file.len()).ok_or_else(|| wrong(at))?;
            if entry[..CENTRAL] != member.central(local.crc, size, offset)
                || entry[CENTRAL..] != *member.file.as_bytes()
            {
                return Err(wrong(at));
            }
            offset += member.header() - NPY + size;
            (at, count) = (names + member.file.len(), count + 1);
        }
        let end = self.bytes.get(at..).unwrap_or_default();
        if !end.starts_with(&end_record(count, self.at..at)) {
            return Err(wrong(at));
        }
        if end.len() != END {
            return Err(RecordError::TrailingBytes { bytes: end.len() - END });
        }
        Ok(())
    }
}

/// The fields that differ between local headers of one member.
struct LocalHeader {
    crc: u32,
    size: u64,
}

impl LocalHeader {
    /// From the front of `bytes`, if there are enough.
    fn read(bytes: &[u8], member: &Member) -> Option<Self> {
        let crc = *bytes.get(14..)?.first_chunk()?;
        let size = *bytes.get(LOCAL + member.file.len() + 4..)?.first_chunk()?;
        Some(Self { crc: u32::from_le_bytes(crc), size: u64::from_le_bytes(size) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (Vec<Member>, Vec<u8>) {
        let members = vec![
            Member::new("gene/perturbation_indices", Dtype::I64),
            Member::new("a", Dtype::F32),
            Member::new("m", Dtype::U8),
        ];
        let mut out = b"before".to_vec();
        write_npz(members.iter(), &mut out, |i, out| match i {
            0 => [3_i64, 4, 5].iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes())),
            1 => out.extend_from_slice(&1.5_f32.to_le_bytes()),
            _ => out.resize(out.len() + 100_000, 1),
        });
        (members, out.split_off(6))
    }

    fn walk(members: &[Member], bytes: &[u8]) -> Result<Vec<Range<usize>>, RecordError> {
        let mut walk = NpzWalk::new(bytes);
        let named = |member: &Member, problem| RecordError::Array { array: member.name().to_owned(), problem };
        let next = |member: &Member| walk.next(member).map_err(|problem| named(member, problem));
        let found = members.iter().map(next).collect::<Result<Vec<_>, _>>()?;
        walk.finish(members.iter()).map(|()| found)
    }

    #[test]
    fn an_archive_is_the_one_that_numpy_writes() {
        let (members, bytes) = example();
        // Length and CRC of what `numpy.savez` (2.3.5, Python 3.11) writes for these arrays.
        assert_eq!((bytes.len(), crc32fast::hash(&bytes)), (100_800, 0x733be68a));
        let found = walk(&members, &bytes).unwrap();
        assert_eq!(found.iter().map(Range::len).collect::<Vec<_>>(), [24, 4, 100_000]);
        assert_eq!(bytes[found[1].clone()], 1.5_f32.to_le_bytes());
        assert_eq!(members[0].name(), "gene/perturbation_indices");
    }

    #[test]
    fn every_byte_that_is_no_element_is_compared() {
        let (members, good) = example();
        let elements = walk(&members, &good).unwrap();
        for at in (0..good.len()).filter(|at| !elements.iter().any(|range| range.contains(at))) {
            for flip in [1, 0x20, 0x80] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                assert!(walk(&members, &bad).is_err(), "byte {at} with {flip:#x}");
            }
        }
        for length in (0..good.len()).filter(|length| !elements[2].contains(length)) {
            assert!(walk(&members, &good[..length]).is_err(), "{length}");
        }
        let more = [&good[..], &[0; 3]].concat();
        assert!(walk(&members, &more).unwrap_err().to_string().starts_with("3 bytes behind the last"));
        assert!(walk(&members[..2], &good).unwrap_err().to_string().contains("directory"));
    }
}
