//! `value_locations` walks the B+ tree of an LMDB file and finds where each value lies, so that records are then read without liblmdb.
//! Invariant: no number of the file is trusted. Each page is entered at most once, so a damaged file is an error and never an endless walk.

use crate::GraphError;
use crate::error::{LmdbError, PageError};
use crate::lmdb::{NO_PAGE, PAGE_HEADER, StoreFile};

/// Flags of pages.
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const OVERFLOW: u16 = 0x04;
/// Flag of a node whose value lies in overflow pages.
const BIG: u16 = 0x01;
/// Bytes of a node before its key.
const NODE_HEADER: usize = 8;
/// liblmdb cannot go deeper.
const DEEPEST: u16 = 32;

/// Location of a value in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueLocation {
    /// Position of its first byte in the file.
    pub offset: u64,
    /// Its length.
    pub bytes: u32,
    /// Whether it lies in overflow pages, whose header is the [`PAGE_HEADER`] bytes before it.
    pub big: bool,
}

impl ValueLocation {
    /// Check the header of the value's overflow pages.
    ///
    /// # Errors
    /// The page is not the first of a value, or has too few pages.
    pub fn check(&self, header: &[u8; PAGE_HEADER], page_size: u32) -> Result<(), LmdbError> {
        let page = (self.offset - PAGE_HEADER as u64) / u64::from(page_size);
        let page = Page { bytes: header, number: page };
        if page.u64_at(0) != page.number || page.u16_at(10) & OVERFLOW == 0 {
            return Err(page.error(PageError::NotFirst));
        }
        let pages = page.u32_at(12);
        if u64::from(pages) < overflow_pages(self.bytes, page_size) {
            return Err(page.error(PageError::ShortValue { bytes: self.bytes, pages }));
        }
        Ok(())
    }
}

/// Locations of the values of keys 0, 1, 2, …, from a walk over the whole tree in which no number is believed.
///
/// # Errors
/// A page or node that cannot be, or keys other than the decimal numbers from 0 on.
pub fn value_locations(file: &StoreFile) -> Result<Vec<ValueLocation>, GraphError> {
    let failed = |problem: LmdbError| problem.of_store(file.folder());
    let meta = &file.meta;
    let mut found = Vec::new();
    let mut seen = PageSet::new(file.pages());
    let mut bytes = vec![0; meta.page_size as usize];
    if meta.depth > DEEPEST || (meta.root == NO_PAGE) != (meta.depth == 0) {
        return Err(failed(LmdbError::Root { levels: meta.depth, root: meta.root }));
    }
    let mut open = Vec::new();
    if meta.root != NO_PAGE {
        open.push((meta.root, meta.depth));
    }
    while let Some((number, level)) = open.pop() {
        if number < 2 || !seen.insert(number, 1) {
            return Err(failed(LmdbError::PagePointer { page: number, pages: file.pages() }));
        }
        file.read(number * u64::from(meta.page_size), &mut bytes)?;
        let page = Page { bytes: &bytes, number };
        let nodes = page.nodes(if level == 1 { LEAF } else { BRANCH }).map_err(failed)?;
        if level > 1 {
            // The first child is looked at first, so that keys are met in their order.
            for i in (0..nodes).rev() {
                open.push((page.node(i).map_err(failed)?.child(), level - 1));
            }
            continue;
        }
        for i in 0..nodes {
            found.push(page.node(i).and_then(|node| node.value(&mut seen)).map_err(failed)?);
        }
    }
    if found.len() as u64 != meta.entries {
        return Err(failed(LmdbError::KeyCount { found: found.len() as u64, expected: meta.entries }));
    }
    found.sort_unstable_by_key(|(key, _)| *key);
    if let Some((missing, (key, _))) = (0..).zip(&found).find(|(i, (key, _))| i != key) {
        return Err(failed(LmdbError::MissingKey { key: *key, missing }));
    }
    Ok(found.into_iter().map(|(_, location)| location).collect())
}

/// Pages of a value, the first of which has a header.
fn overflow_pages(bytes: u32, page_size: u32) -> u64 {
    (PAGE_HEADER as u64 + u64::from(bytes)).div_ceil(u64::from(page_size)).max(1)
}

/// A page, or the header of one.
struct Page<'b> {
    bytes: &'b [u8],
    number: u64,
}

impl<'b> Page<'b> {
    fn u16_at(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn u32_at(&self, at: usize) -> u32 {
        u32::from(self.u16_at(at)) | u32::from(self.u16_at(at + 2)) << 16
    }

    fn u64_at(&self, at: usize) -> u64 {
        u64::from(self.u32_at(at)) | u64::from(self.u32_at(at + 4)) << 32
    }

    #[cold]
    fn error(&self, problem: PageError) -> LmdbError {
        LmdbError::Page { page: self.number, problem }
    }

    /// Number of nodes of a page of this kind.
    fn nodes(&self, kind: u16) -> Result<usize, LmdbError> {
        let flags = self.u16_at(10);
        if self.u64_at(0) != self.number {
            return Err(self.error(PageError::Number { found: self.u64_at(0) }));
        }
        if flags & 0x6f != kind {
            return Err(self.error(PageError::Flags { found: flags, expected: kind }));
        }
        let (lower, upper) = (usize::from(self.u16_at(12)), usize::from(self.u16_at(14)));
        if lower < PAGE_HEADER || lower % 2 != 0 || lower > upper || upper > self.bytes.len() {
            return Err(self.error(PageError::FreeSpace { lower, upper }));
        }
        match (lower - PAGE_HEADER) / 2 {
            0 => Err(self.error(PageError::Empty)),
            nodes => Ok(nodes),
        }
    }

    /// The `i`-th node. Its header and key lie within the page.
    fn node(&self, i: usize) -> Result<PageNode<'_, 'b>, LmdbError> {
        let at = usize::from(self.u16_at(PAGE_HEADER + 2 * i));
        let end = |header: usize| at.checked_add(header).filter(|end| *end <= self.bytes.len());
        let inside = at >= usize::from(self.u16_at(14)) && end(NODE_HEADER).is_some();
        let key_end = if inside { end(NODE_HEADER + usize::from(self.u16_at(at + 6))) } else { None };
        match key_end {
            Some(key_end) => Ok(PageNode { page: self, at, key_end }),
            None => Err(self.error(PageError::Node { node: i, offset: at })),
        }
    }
}

/// A node of a page: a key with the child page or the value of it.
struct PageNode<'p, 'b> {
    page: &'p Page<'b>,
    at: usize,
    key_end: usize,
}

impl PageNode<'_, '_> {
    fn flags(&self) -> u16 {
        self.page.u16_at(self.at + 4)
    }

    /// Page that a node of a branch points to: 48 bits, the upper ones where a leaf's node has its flags.
    fn child(&self) -> u64 {
        u64::from(self.page.u32_at(self.at)) | u64::from(self.flags()) << 32
    }

    /// Key and location of the value of a leaf's node. Pages of the value are entered in `seen`.
    fn value(&self, seen: &mut PageSet) -> Result<(u64, ValueLocation), LmdbError> {
        let (number, page_size) = (self.page.number, self.page.bytes.len());
        let key = &self.page.bytes[self.at + NODE_HEADER..self.key_end];
        let key = index_of(key).ok_or_else(|| LmdbError::Key { key: key.escape_ascii().to_string() })?;
        let bytes = self.page.u32_at(self.at);
        match self.flags() {
            0 if self.key_end + bytes as usize <= page_size => {
                let offset = number * page_size as u64 + self.key_end as u64;
                Ok((key, ValueLocation { offset, bytes, big: false }))
            }
            BIG if self.key_end + 8 <= page_size => {
                let first = self.page.u64_at(self.key_end);
                if first < 2 || !seen.insert(first, overflow_pages(bytes, page_size as u32)) {
                    return Err(LmdbError::OverflowPages { key, bytes, page: first });
                }
                // Within the file, so this does not overflow.
                Ok((key, ValueLocation { offset: first * page_size as u64 + PAGE_HEADER as u64, bytes, big: true }))
            }
            0 | BIG => Err(self.page.error(PageError::Value { key })),
            flags => Err(self.page.error(PageError::NodeFlags { key, flags })),
        }
    }
}

/// The number of a decimal key without leading zeros.
fn index_of(key: &[u8]) -> Option<u64> {
    let plain = !key.is_empty() && key.iter().all(u8::is_ascii_digit) && (key.len() == 1 || key[0] != b'0');
    if plain { std::str::from_utf8(key).ok()?.parse().ok() } else { None }
}

/// Pages of a file that have been met, a bit each.
struct PageSet {
    bits: Vec<u64>,
    pages: u64,
}

impl PageSet {
    /// The empty set over `0..pages`.
    pub fn new(pages: u64) -> Self {
        Self { bits: vec![0; pages.div_ceil(64) as usize], pages }
    }

    /// Enter `count` pages from `first` on; false if one of them is not in the file or has been entered before.
    fn insert(&mut self, first: u64, count: u64) -> bool {
        let Some(end) = first.checked_add(count).filter(|end| *end <= self.pages) else {
            return false;
        };
        let mut page = first;
        while page < end {
            // All that fall into one word at once: a value may have hundreds of pages.
            let (word, bit) = ((page / 64) as usize, page % 64);
            let n = (64 - bit).min(end - page);
            let mask = (u64::MAX >> (64 - n)) << bit;
            if self.bits[word] & mask != 0 {
                return false;
            }
            self.bits[word] |= mask;
            page += n;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_entered_once_and_none_outside() {
        let mut set = PageSet::new(200);
        assert!(set.insert(3, 150) && set.insert(0, 3) && set.insert(199, 1));
        assert!(!set.insert(152, 2), "152 was there");
        for (first, count) in [(199, 1), (200, 1), (198, 3), (u64::MAX, 2)] {
            assert!(!set.insert(first, count), "{first} {count}");
        }
    }
}
