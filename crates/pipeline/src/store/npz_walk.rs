use std::ops::Range;

use super::npz::{CENTRAL, END, LOCAL, Member, NPY, end_record, extra};

/// Walks through the members of an archive. It compares CRCs with each other, not with the elements, which would cost more
/// than reading them: `expctl data verify` looks for damage on the disk.
pub(super) struct Walk<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Walk<'b> {
    /// Start at the front of an archive.
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Where the elements of the next member lie, which must be `member`; they are whole.
    ///
    /// # Errors
    /// Another member, one that is not stored as savez does, another type or number of dimensions, or the archive's end.
    pub(super) fn next(&mut self, member: &Member) -> Result<Range<usize>, String> {
        let rest = &self.bytes[self.at..];
        let (Some(local), Some(header)) = (Local::read(rest, member), rest.get(..member.header())) else {
            return Err(format!("the record ends at {} within the header", self.bytes.len()));
        };
        let (head, npy) = header.split_at(member.header() - NPY);
        let (fixed, behind) = head.split_at(LOCAL);
        let (name, zip64) = behind.split_at(member.file.len());
        if fixed != member.local(local.crc) || name != member.file.as_bytes() || zip64 != extra(local.size) {
            return Err(format!("byte {} begins no stored zip member of this name", self.at));
        }
        let within = rest.len() - head.len();
        let Some(bytes) = usize::try_from(local.size).ok().filter(|size| (NPY..=within).contains(size)) else {
            return Err(format!("{} bytes, but the record has {within} from there on", local.size));
        };
        let elements = (bytes - NPY) / member.dtype.bytes();
        if !(bytes - NPY).is_multiple_of(member.dtype.bytes()) || npy != member.npy(elements) {
            let descr = member.dtype.descr();
            return Err(format!("{} bytes with no npy header of {descr} of that length", bytes - NPY));
        }
        let start = self.at + member.header();
        self.at = start + bytes - NPY;
        Ok(start..self.at)
    }

    /// Check that nothing but the central directory of `members`, all of which have been walked through, is left.
    ///
    /// # Errors
    /// It is another one, or bytes follow it.
    pub(super) fn finish<'m>(self, members: impl Iterator<Item = &'m Member>) -> Result<(), String> {
        let wrong = |at: usize| format!("the zip directory is not that of the arrays at byte {at}");
        let (mut at, mut offset, mut count) = (self.at, 0, 0);
        for member in members {
            let local = Local::read(&self.bytes[offset..], member).ok_or_else(|| wrong(at))?;
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
            return Err(format!("{} bytes behind the last array and the zip directory", end.len() - END));
        }
        Ok(())
    }
}

/// What differs between local headers of one member.
struct Local {
    crc: u32,
    size: u64,
}

impl Local {
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
    use crate::store::npz::{Dtype, write};

    fn example() -> (Vec<Member>, Vec<u8>) {
        let members = vec![
            Member::new("gene/perturbation_indices", Dtype::I64),
            Member::new("a", Dtype::F32),
            Member::new("m", Dtype::U8),
        ];
        let mut out = b"before".to_vec();
        write(members.iter(), &mut out, |i, out| match i {
            0 => [3_i64, 4, 5].iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes())),
            1 => out.extend_from_slice(&1.5_f32.to_le_bytes()),
            _ => out.resize(out.len() + 100_000, 1),
        });
        (members, out.split_off(6))
    }

    fn walk(members: &[Member], bytes: &[u8]) -> Result<Vec<Range<usize>>, String> {
        let mut walk = Walk::new(bytes);
        let found = members.iter().map(|member| walk.next(member)).collect::<Result<Vec<_>, _>>()?;
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
        assert!(walk(&members, &more).unwrap_err().starts_with("3 bytes behind the last"));
        assert!(walk(&members[..2], &good).unwrap_err().contains("directory"));
    }
}
