//! The NPZ archives that records are: byte for byte what `numpy.savez` of numpy 2 writes for one-dimensional arrays.
//!
//! A zip file of stored members, each an `.npy` file of format 1.0: a local header (its 32-bit sizes are left to the zip64
//! field behind the name, as savez does for all members), the npy header, the elements; then the central directory with the
//! same sizes and CRCs, and its end record. No other zip feature exists here, so a reader that builds the header which must
//! come next, and compares, accepts all that was written and nothing else.

use std::ops::Range;

/// Bytes of a local header up to the name.
pub(super) const LOCAL: usize = 30;
/// Bytes of the zip64 field behind the name: two 64-bit sizes.
pub(super) const EXTRA: usize = 20;
/// Bytes of an npy header: numpy leaves room for a shape of 21 digits and pads to 64, which gives this for each type here.
pub(super) const NPY: usize = 128;
/// Bytes of an entry of the central directory up to the name.
pub(super) const CENTRAL: usize = 46;
/// Bytes of the end record.
pub(super) const END: usize = 22;

/// Type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dtype {
    I64,
    F32,
    U8,
}

impl Dtype {
    /// As an npy header calls it.
    pub(super) const fn descr(self) -> &'static str {
        match self {
            Self::I64 => "<i8",
            Self::F32 => "<f4",
            Self::U8 => "|u1",
        }
    }

    /// Bytes of an element.
    pub(super) const fn bytes(self) -> usize {
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
pub(super) struct Member {
    /// Name in the archive, with `.npy`.
    pub file: String,
    pub dtype: Dtype,
}

impl Member {
    pub(super) fn new(name: &str, dtype: Dtype) -> Self {
        Self { file: format!("{name}.npy"), dtype }
    }

    /// Name of the array.
    pub(super) fn name(&self) -> &str {
        self.file.strip_suffix(".npy").unwrap_or(&self.file)
    }

    /// Bytes before the elements.
    pub(super) fn header(&self) -> usize {
        LOCAL + self.file.len() + EXTRA + NPY
    }

    /// What local header and central directory have alike: version, flags, method, time (the first that zip knows), CRC.
    fn common(&self, crc: u32) -> [u8; 14] {
        // Bit 11: the name is UTF-8.
        let flags: u16 = if self.file.is_ascii() { 0 } else { 1 << 11 };
        let mut bytes = [45, 0, 0, 0, 0, 0, 0, 0, 0x21, 0, 0, 0, 0, 0];
        bytes[2..4].copy_from_slice(&flags.to_le_bytes());
        bytes[10..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Local header up to the name.
    pub(super) fn local(&self, crc: u32) -> [u8; LOCAL] {
        let mut bytes = [0xff; LOCAL];
        bytes[..4].copy_from_slice(b"PK\x03\x04");
        bytes[4..18].copy_from_slice(&self.common(crc));
        bytes[26..28].copy_from_slice(&(self.file.len() as u16).to_le_bytes());
        bytes[28..].copy_from_slice(&(EXTRA as u16).to_le_bytes());
        bytes
    }

    /// Entry of the central directory up to the name.
    pub(super) fn central(&self, crc: u32, size: usize, offset: usize) -> [u8; CENTRAL] {
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
    pub(super) fn npy(&self, elements: usize) -> [u8; NPY] {
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
pub(super) fn extra(size: u64) -> [u8; EXTRA] {
    let mut bytes = [0; EXTRA];
    bytes[..4].copy_from_slice(&[1, 0, 16, 0]);
    bytes[4..12].copy_from_slice(&size.to_le_bytes());
    bytes[12..].copy_from_slice(&size.to_le_bytes());
    bytes
}

/// The end record of an archive.
pub(super) fn end_record(members: usize, directory: Range<usize>) -> [u8; END] {
    let mut bytes = [0; END];
    bytes[..4].copy_from_slice(b"PK\x05\x06");
    bytes[8..10].copy_from_slice(&(members as u16).to_le_bytes());
    bytes[10..12].copy_from_slice(&(members as u16).to_le_bytes());
    bytes[12..16].copy_from_slice(&(directory.len() as u32).to_le_bytes());
    bytes[16..20].copy_from_slice(&(directory.start as u32).to_le_bytes());
    bytes
}

/// Bytes of an archive of these members, each with so many elements, or so many on average.
pub(super) fn archive_bytes<'m>(members: impl Iterator<Item = (&'m Member, f64)>) -> f64 {
    let of_member = |(member, elements): (&Member, f64)| {
        (member.header() + CENTRAL + member.file.len()) as f64 + elements * member.dtype.bytes() as f64
    };
    members.map(of_member).sum::<f64>() + END as f64
}

/// Append an archive to `out`. `elements` appends those of the `i`-th member.
pub(super) fn write<'m>(
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
