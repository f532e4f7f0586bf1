//! Reads strings of variable length without libhdf5, which looks up each of them under its lock. Their data set has a reference to each string:
//! its length, the address of a collection of the global heap, and the number of an object in it.
//! Invariant: strings are those that libhdf5 reads. What it would refuse, and what writers of AnnData do not write, is left to it.

use std::ops::Range;

use hdf5_metno::Dataset;

use crate::h5ad::array_layout::{OpenFile, REFERENCE_WORDS};
use crate::h5ad::file_driver::has_plain_addresses;
use crate::h5ad::global_heap::{HEAP_HEADER, HEAP_OBJECT_HEADER, HEAP_SIGNATURE, collection_bytes, walk_objects};
use crate::h5ad::values::ReadLimit;
use crate::names::PackedNames;
use crate::source::byte_source::{ByteSource, ReadRange, as_uninit};
use crate::source::coalesce::Coalescer;

/// Bytes of a collection, at least; most have no more.
const MIN_COLLECTION_BYTES: u64 = 4096;

/// Collections with at most this gap in the file are read together.
const MAX_GAP: u64 = 16 << 10;

/// Bytes of all collections and gaps that are read, at most: names of genes take some megabytes. A file that is mostly a hole has far more bytes
/// than it takes on the disk, so its size is no bound of memory.
const MAX_HEAP_BYTES: usize = 1 << 30;

/// The strings of a data set with one dimension; `None` if only libhdf5 can read them, or can say what is wrong.
pub(crate) fn read_variable_strings(open: &OpenFile<'_>, dataset: &Dataset, most: ReadLimit) -> Option<PackedNames> {
    let source = open.source;
    if !has_plain_addresses(source) {
        return None;
    }
    let stored = open.string_references(dataset)?;
    if stored.len / REFERENCE_WORDS > most.values as u64 || stored.len.saturating_mul(8) > most.bytes {
        return None;
    }
    let words: Vec<u64> = stored.read_whole(source).ok()?;
    let (references, _) = words.as_chunks::<{ REFERENCE_WORDS as usize }>();
    let heap = Heap::read(source, references.iter().map(StringReference::new))?;
    let (mut strings, mut last) = (PackedNames::default(), 0);
    for reference in references {
        strings.push(heap.string(&StringReference::new(reference), &mut last)?);
        // Many references to one object are no strings that a writer has written, and no reason to allocate memory.
        if strings.bytes() > heap.bytes.len() as u64 {
            return None;
        }
    }
    Some(strings)
}

/// A reference to a string.
struct StringReference {
    bytes: usize,
    /// Address of its collection; 0 for an empty string.
    collection: u64,
    object: usize,
}

impl StringReference {
    /// The length has 32 bits, the address 64 and the number of the object 32.
    fn new([low, high]: &[u64; REFERENCE_WORDS as usize]) -> Self {
        Self { bytes: *low as u32 as usize, collection: low >> 32 | high << 32, object: (high >> 32) as usize }
    }
}

/// The collections of the global heap that some references lead to.
struct Heap {
    /// Bytes that were read.
    bytes: Vec<u8>,
    /// Ascending by address.
    collections: Vec<HeapCollection>,
}

struct HeapCollection {
    address: u64,
    /// The objects by number, as ranges of [`Heap::bytes`]; empty at 0 if there is none.
    objects: Vec<Range<usize>>,
}

impl Heap {
    /// Reads the collections, in a few large pieces where they lie together; `None` if one is unusual.
    fn read(source: &ByteSource, references: impl Iterator<Item = StringReference>) -> Option<Self> {
        let mut addresses: Vec<u64> = Vec::new();
        for StringReference { collection, .. } in references {
            if collection > 0 && addresses.last() != Some(&collection) {
                addresses.push(collection);
            }
        }
        addresses.sort_unstable();
        addresses.dedup();
        let mut reads = Vec::new();
        let mut coalescer = Coalescer::new(&mut reads, MAX_GAP);
        let mut starts = Vec::with_capacity(addresses.len());
        for address in &addresses {
            if address.checked_add(MIN_COLLECTION_BYTES).is_none_or(|end| end > source.bytes()) {
                return None;
            }
            starts.push(coalescer.add(*address, MIN_COLLECTION_BYTES));
        }
        let len = reads.last().map_or(0, ReadRange::buffer_end);
        if len > MAX_HEAP_BYTES {
            return None;
        }
        let mut bytes: Vec<u8> = vec![0; len];
        source.read_all(&reads, as_uninit(&mut bytes)).ok()?;
        let mut collections = Vec::with_capacity(addresses.len());
        for (address, mut start) in addresses.into_iter().zip(starts) {
            let header = bytes[start..].first_chunk::<HEAP_HEADER>()?;
            if !header.starts_with(HEAP_SIGNATURE) {
                return None;
            }
            let len = collection_bytes(header, address, source.bytes())?;
            if (len as u64) < MIN_COLLECTION_BYTES {
                return None;
            }
            if len as u64 > MIN_COLLECTION_BYTES {
                start = bytes.len();
                if start.saturating_add(len) > MAX_HEAP_BYTES {
                    return None;
                }
                source.append_to(address, len, &mut bytes).ok()?;
            }
            collections.push(HeapCollection { address, objects: objects_of(&bytes[start..start + len], start)? });
        }
        Some(Self { bytes, collections })
    }

    /// The string that a reference leads to; `None` if there is none of its length, or if it has a NUL, at which libhdf5 would end it. `last` is
    /// the collection of the last string.
    fn string(&self, reference: &StringReference, last: &mut usize) -> Option<&[u8]> {
        if reference.collection == 0 {
            return Some(&[]);
        }
        if self.collections.get(*last).is_none_or(|collection| collection.address != reference.collection) {
            let found = self.collections.binary_search_by_key(&reference.collection, |collection| collection.address);
            *last = found.ok()?;
        }
        let range = self.collections[*last].objects.get(reference.object)?;
        let string = &self.bytes[range.clone()];
        let is_string = range.start > 0 && string.len() == reference.bytes && !string.contains(&0);
        is_string.then_some(string)
    }
}

/// The objects of a collection, which begins at byte `start` of [`Heap::bytes`]; `None` if libhdf5 would refuse it, or if an object has no usual
/// number. Number 0 is the free space, which is no string.
fn objects_of(collection: &[u8], start: usize) -> Option<Vec<Range<usize>>> {
    let mut objects: Vec<Range<usize>> = vec![Range::default()];
    let (mut is_usual, mut free) = (true, None);
    let rest = walk_objects(collection, |number, range| match usize::from(number) {
        0 => is_usual &= free.replace(range.len()).is_none(),
        number if number > collection.len() / HEAP_OBJECT_HEADER => is_usual = false,
        number => {
            if number >= objects.len() {
                objects.resize(number + 1, Range::default());
            }
            is_usual &= objects[number].start == 0;
            objects[number] = start + range.start..start + range.end;
        }
    })?;
    // What is too short for a header is free space, too.
    is_usual &= rest == 0 || free.replace(rest).is_none();
    is_usual &= free.is_none_or(|bytes| bytes.is_multiple_of(8));
    is_usual.then_some(objects)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hdf5_metno::types::VarLenUnicode;
    use proptest::prelude::*;

    use super::*;
    use crate::annotation::column::ColumnValues;
    use crate::annotation::frame::FrameError;
    use crate::h5ad::file_driver::{open_hdf5, open_with_library};
    use crate::h5ad::values::read_values;

    const MOST: ReadLimit = ReadLimit { values: 1 << 20, bytes: 1 << 24 };

    /// A file with strings: contiguous, or in chunks of so many that may be compressed.
    fn write(path: &Path, strings: &[String], chunk: Option<(usize, bool)>) {
        let strings: Vec<VarLenUnicode> = strings.iter().map(|string| string.parse().unwrap()).collect();
        let file = hdf5_metno::FileBuilder::new().with_fapl(|list| list.file_locking(false)).create(path).unwrap();
        let builder = file.new_dataset_builder();
        let builder = match chunk {
            None => builder.no_chunk(),
            Some((chunk, false)) => builder.chunk(chunk.min(strings.len())),
            Some((chunk, true)) => builder.chunk(chunk.min(strings.len())).shuffle().deflate(4),
        };
        builder.with_data(&strings[..]).create("names").unwrap();
    }

    /// What libhdf5 reads, and what is read without it; `None` if the file cannot be opened.
    fn read(path: &Path) -> Option<(Result<ColumnValues, FrameError>, Option<PackedNames>)> {
        let source = open_hdf5(path).ok()?;
        let open = OpenFile::new(&source).ok()?;
        let dataset = open_with_library(path).ok()?.dataset("names").ok()?;
        Some((read_values(&dataset, None, MOST), read_variable_strings(&open, &dataset, MOST)))
    }

    fn some_string() -> impl Strategy<Value = String> {
        prop_oneof![20 => "[a-zA-Z0-9α-ω]{1,30}", 1 => Just(String::new()), 1 => (1..9000_usize).prop_map(|n| "x".repeat(n))]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        /// Strings are those that were written, however they lie in the file.
        #[test]
        fn strings_are_those_that_were_written(
            strings in prop::collection::vec(some_string(), 1..600), chunk in prop::option::of((1..700_usize, any::<bool>())),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.h5");
            write(&path, &strings, chunk);
            let (of_library, packed) = read(&path).unwrap();
            let ColumnValues::Text(of_library) = of_library.unwrap() else { panic!() };
            prop_assert_eq!(&of_library, &strings);
            prop_assert_eq!(packed.unwrap().to_strings().unwrap(), strings);
        }
    }

    /// Of each string there is one reference, so that all together are no larger than what was read of the file.
    #[test]
    fn many_references_to_one_string_are_left_to_libhdf5() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.h5");
        let strings = vec!["x".repeat(500); 200];
        write(&path, &strings, None);
        let at = open_with_library(&path).unwrap().dataset("names").unwrap().offset().unwrap() as usize;
        let mut bytes = std::fs::read(&path).unwrap();
        for string in 1..strings.len() {
            bytes.copy_within(at..at + 16, at + 16 * string);
        }
        std::fs::write(&path, bytes).unwrap();
        let (of_library, packed) = read(&path).unwrap();
        let ColumnValues::Text(of_library) = of_library.unwrap() else { panic!() };
        assert_eq!(of_library, strings);
        assert!(packed.is_none());
    }

    /// Whatever is wrong with the heap or with the references, libhdf5 reads the same, or is left to say what is wrong.
    #[test]
    fn damage_is_left_to_libhdf5() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.h5");
        let strings: Vec<String> = (0..150).map(|number| format!("gene {number}")).collect();
        write(&path, &strings, None);
        let whole = std::fs::read(&path).unwrap();
        let heaps = (0..whole.len() - 8).filter(|start| whole[*start..].starts_with(HEAP_SIGNATURE));
        // A reference has the length of the string, that of "gene 0" here, and the address of its collection behind it.
        let reference = |heap: usize| [&6_u32.to_le_bytes()[..], &(heap as u64).to_le_bytes()].concat();
        let find = |bytes: Vec<u8>| (0..whole.len()).find(|start| whole[*start..].starts_with(&bytes));
        let references = heaps.clone().find_map(|heap| find(reference(heap))).unwrap();
        let near = heaps.flat_map(|start| start..start + 200).chain(references..references + 64);
        let (mut read_without, mut left) = (0, 0);
        for at in near {
            for bit in [0, 3, 7] {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                std::fs::write(&path, changed).unwrap();
                let Some((of_library, packed)) = read(&path) else { continue };
                match packed.and_then(|packed| packed.to_strings()) {
                    None => left += 1,
                    Some(packed) => {
                        let ColumnValues::Text(of_library) = of_library.unwrap() else { panic!() };
                        assert_eq!(packed, of_library, "bit {bit} of byte {at}");
                        read_without += 1;
                    }
                }
            }
        }
        assert!(read_without > 100 && left > 100, "{read_without} {left}");
    }
}
