/// What can be read at positions.
pub(super) trait ReadAt {
    /// Fill `into` from `offset` on; false if that cannot be done.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> bool;
}

/// What a collection of HDF5's global heap begins with: signature, version and three reserved bytes.
pub(super) const SIGNATURE: &[u8] = b"GCOL\x01\0\0\0";

/// Bytes before the first object: signature, version, reserved, size.
const HEADER: usize = 16;
/// Bytes before the content of an object: number, references, reserved, size.
const OBJECT: usize = 16;
/// More text than in one collection of any file.
const LARGEST: u64 = 1 << 30;

/// Walk through the collection of texts at `address` as the library will: an object that takes no bytes has it go round for
/// ever (H5HG__cache_heap_deserialize). Of a file whose sizes have 8 bytes, which is checked when it is opened.
///
/// Source: HDF5 File Format Specification, III.E.
pub(super) fn check(file: &impl ReadAt, address: u64, end: u64) -> bool {
    let mut header = [0; HEADER];
    if !file.read_at(address, &mut header) {
        return false;
    }
    let size = u64::from_le_bytes(size_at(&header));
    if size < HEADER as u64 || size > LARGEST || address.checked_add(size).is_none_or(|past| past > end) {
        return false;
    }
    let mut all = vec![0; size as usize];
    file.read_at(address, &mut all) && ends(&all)
}

/// Going from object to object comes to the end.
fn ends(all: &[u8]) -> bool {
    let mut rest = all.get(HEADER..).unwrap_or_default();
    while let Some(object) = rest.get(..OBJECT) {
        let size = u64::from_le_bytes(size_at(object));
        // Object 0 is what is free, and its size is that of all of it.
        let takes = match u16::from_le_bytes([object[0], object[1]]) {
            0 => Some(size),
            _ => size.checked_next_multiple_of(8).and_then(|size| size.checked_add(OBJECT as u64)),
        };
        match takes.and_then(|takes| usize::try_from(takes).ok()).filter(|takes| *takes > 0) {
            Some(takes) if takes <= rest.len() => rest = &rest[takes..],
            _ => return false,
        }
    }
    true
}

/// The size in a header of a collection or an object.
fn size_at(header: &[u8]) -> [u8; 8] {
    let mut size = [0; 8];
    size.copy_from_slice(&header[8..16]);
    size
}

#[cfg(test)]
mod tests {
    use super::ends;

    fn collection(objects: &[(u16, u64, usize)]) -> Vec<u8> {
        let mut all = vec![0; 16];
        for (number, size, bytes) in objects {
            all.extend(number.to_le_bytes());
            all.extend([0; 6]);
            all.extend(size.to_le_bytes());
            all.extend(vec![0; *bytes]);
        }
        all
    }

    #[test]
    fn what_has_no_end_is_refused() {
        assert!(ends(&collection(&[(1, 5, 8), (2, 8, 8), (0, 40, 24)])));
        assert!(ends(&collection(&[(1, 5, 8)])), "no free space");
        assert!(!ends(&collection(&[(1, 5, 8), (0, 0, 24)])), "free space of no bytes");
        assert!(!ends(&collection(&[(1, u64::MAX - 15, 8)])), "a size that wraps to nothing");
        assert!(!ends(&collection(&[(1, 50, 8)])), "beyond the end");
    }
}
