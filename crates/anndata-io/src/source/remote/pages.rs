use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::service::lock;

/// Bytes of a page: what says where things lie is small and lies together.
pub(super) const PAGE: u64 = 128 << 10;

/// Pages that are kept, of all objects together.
const KEPT: usize = 256;

/// Pages of objects that were read lately by what reads a little here and there: the HDF5 library, footers.
#[derive(Debug, Default)]
pub(super) struct Pages(Mutex<Kept>);

type Page = (Arc<[u8]>, u64);

#[derive(Debug, Default)]
struct Kept {
    /// By object and page: bytes, and when they were used last.
    pages: HashMap<(u64, u64), Page>,
    /// Goes up with every use.
    now: u64,
}

impl Pages {
    pub(super) fn get(&self, object: u64, page: u64) -> Option<Arc<[u8]>> {
        let mut kept = lock(&self.0);
        kept.now += 1;
        let now = kept.now;
        let (bytes, used) = kept.pages.get_mut(&(object, page))?;
        *used = now;
        Some(Arc::clone(bytes))
    }

    pub(super) fn has(&self, object: u64, page: u64) -> bool {
        lock(&self.0).pages.contains_key(&(object, page))
    }

    pub(super) fn put(&self, object: u64, page: u64, bytes: Arc<[u8]>) {
        let mut kept = lock(&self.0);
        kept.now += 1;
        let now = kept.now;
        kept.pages.insert((object, page), (bytes, now));
        while kept.pages.len() > KEPT {
            let oldest = kept.pages.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| *key);
            oldest.and_then(|key| kept.pages.remove(&key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_go_first() {
        let pages = Pages::default();
        for page in 0..KEPT as u64 {
            pages.put(0, page, Arc::from([page as u8]));
        }
        assert_eq!(pages.get(0, 0).as_deref(), Some(&[0][..]));
        pages.put(1, 0, Arc::from([9]));
        assert!(pages.has(0, 0) && !pages.has(0, 1) && pages.has(1, 0));
        assert_eq!(lock(&pages.0).pages.len(), KEPT);
    }
}
