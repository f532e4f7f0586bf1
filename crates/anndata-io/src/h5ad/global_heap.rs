//! Collections of the global heap of an HDF5 file, which holds strings of variable length: a header, and one object behind another.
//! Invariant: a walk through a collection ends, whatever its bytes are.
//!
//! Source: HDF5 File Format Specification, III.E. Lengths in the file have 8 bytes, which is checked when it is opened.

use std::ops::Range;

/// Start of a collection: signature and version. Of the three reserved bytes behind it libhdf5 takes any.
pub(crate) const HEAP_SIGNATURE: &[u8] = b"GCOL\x01";
/// Size of the header of a collection: signature, version, reserved, size.
pub(crate) const HEAP_HEADER: usize = 16;
/// Size of the header of an object: number, reference count, reserved, size.
pub(crate) const HEAP_OBJECT_HEADER: usize = 16;
/// Upper bound of the size of a collection.
const MAX_COLLECTION_BYTES: u64 = 1 << 30;

/// Size of the collection at `address` of a file of `file_bytes` bytes, from its header; `None` if it cannot be there.
pub(crate) fn collection_bytes(header: &[u8; HEAP_HEADER], address: u64, file_bytes: u64) -> Option<usize> {
    let bytes = u64::from_le_bytes(size_field(header));
    let is_inside = address.checked_add(bytes).is_some_and(|end| end <= file_bytes);
    ((HEAP_HEADER as u64..=MAX_COLLECTION_BYTES).contains(&bytes) && is_inside).then_some(bytes as usize)
}

/// Walks through the objects of a collection as libhdf5 does, and passes the number of each and the range of its bytes to `found`. Object 0 is
/// the free space, whose range includes its header. Returns the number of bytes behind the last object, less than a header; `None` if an object
/// reaches beyond the end, or has no bytes: on an object of size 0 libhdf5 loops forever (H5HG__cache_heap_deserialize).
pub(crate) fn walk_objects(collection: &[u8], mut found: impl FnMut(u16, Range<usize>)) -> Option<usize> {
    let mut start = HEAP_HEADER;
    loop {
        let rest = collection.get(start..).unwrap_or_default();
        let Some(header) = rest.get(..HEAP_OBJECT_HEADER) else { return Some(rest.len()) };
        let (number, size) = (u16::from_le_bytes([header[0], header[1]]), u64::from_le_bytes(size_field(header)));
        let takes = match number {
            0 => Some(size),
            _ => size.checked_next_multiple_of(8).and_then(|size| size.checked_add(HEAP_OBJECT_HEADER as u64)),
        };
        match takes.and_then(|takes| usize::try_from(takes).ok()).filter(|takes| *takes > 0) {
            Some(takes) if takes <= rest.len() => {
                let first = if number == 0 { start } else { start + HEAP_OBJECT_HEADER };
                found(number, first..first + size as usize);
                start += takes;
            }
            _ => return None,
        }
    }
}

/// Size field of the header of a collection or an object.
fn size_field(header: &[u8]) -> [u8; 8] {
    let mut size = [0; 8];
    size.copy_from_slice(&header[8..16]);
    size
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let ends = |objects: &[(u16, u64, usize)]| walk_objects(&collection(objects), |_, _| ()).is_some();
        assert!(ends(&[(1, 5, 8), (2, 8, 8), (0, 40, 24)]));
        assert!(ends(&[(1, 5, 8)]), "no free space");
        assert!(!ends(&[(1, 5, 8), (0, 0, 24)]), "free space of no bytes");
        assert!(!ends(&[(1, u64::MAX - 15, 8)]), "a size that wraps to nothing");
        assert!(!ends(&[(1, 50, 8)]), "beyond the end");
    }

    #[test]
    fn objects_are_where_the_walk_says() {
        let mut found = Vec::new();
        let all = collection(&[(3, 5, 8), (1, 0, 0), (0, 24, 8), (2, 8, 8)]);
        assert_eq!(walk_objects(&all, |number, range| found.push((number, range))), Some(0));
        assert_eq!(found, [(3, 32..37), (1, 56..56), (0, 56..80), (2, 96..104)]);
        assert_eq!(walk_objects(&[&all[..], &[7; 9]].concat(), |_, _| ()), Some(9));
    }

    #[test]
    fn a_collection_lies_inside_its_file() {
        let header = |bytes: u64| -> [u8; HEAP_HEADER] {
            let mut header = [0; HEAP_HEADER];
            header[8..].copy_from_slice(&bytes.to_le_bytes());
            header
        };
        assert_eq!(collection_bytes(&header(4096), 100, 4196), Some(4096));
        assert_eq!(collection_bytes(&header(4096), 101, 4196), None);
        assert_eq!(collection_bytes(&header(4096), u64::MAX, u64::MAX), None);
        assert_eq!(collection_bytes(&header(15), 0, 4196), None);
        assert_eq!(collection_bytes(&header(1 << 31), 0, 1 << 40), None);
    }
}
