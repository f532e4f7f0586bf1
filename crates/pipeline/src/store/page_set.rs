/// Pages of a file that have been met, a bit each.
pub(super) struct PageSet {
    bits: Vec<u64>,
    pages: u64,
}

impl PageSet {
    /// None of `0..pages`.
    pub(super) fn new(pages: u64) -> Self {
        Self { bits: vec![0; pages.div_ceil(64) as usize], pages }
    }

    /// Enter `count` pages from `first` on; false if one of them is not in the file or has been entered before.
    pub(super) fn insert(&mut self, first: u64, count: u64) -> bool {
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
