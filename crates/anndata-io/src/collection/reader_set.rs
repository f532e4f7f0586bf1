use std::cell::Cell;

use crate::{AnnDataError, ArrayStore, ReadRows};

/// A reader for each store that one thread reads, opened when it is needed.
pub(crate) struct ReaderSet<'c> {
    stores: &'c [Box<dyn ArrayStore>],
    slots: Vec<ReaderSlot<'c>>,
    open: usize,
    max_open: usize,
    call: u64,
    /// Bytes that readers kept when they were last looked at, together, and the most that they may keep.
    bytes: u64,
    max_bytes: u64,
    /// Readers that were used in this call.
    used: Vec<usize>,
}

/// A store's reader, and what is known of its use.
#[derive(Default)]
struct ReaderSlot<'c> {
    reader: Option<Box<dyn ReadRows + 'c>>,
    /// The last call that used it.
    call: u64,
    /// What it kept when it was last looked at.
    bytes: u64,
    /// It was read from since it was last seen to be unchanged.
    touched: Cell<bool>,
}

impl<'c> ReaderSet<'c> {
    /// At most `kept` of them are open at a time, and one at least. Those that were not used for longest are closed until
    /// all together keep no more than `max_bytes` between calls.
    pub fn new(stores: &'c [Box<dyn ArrayStore>], max_open: usize, max_bytes: u64) -> Self {
        let slots = stores.iter().map(|_| ReaderSlot::default()).collect();
        Self { stores, slots, open: 0, max_open: max_open.max(1), call: 1, bytes: 0, max_bytes, used: Vec::new() }
    }

    /// A new call: what was used in earlier ones may be closed.
    ///
    /// # Errors
    /// The file of a reader that is closed is not what it was.
    pub fn next_call(&mut self) -> Result<(), AnnDataError> {
        self.call += 1;
        for store in self.used.drain(..) {
            let slot = &mut self.slots[store];
            let now = slot.reader.as_ref().map_or(0, |reader| reader.work_bytes());
            self.bytes = self.bytes - slot.bytes + now;
            slot.bytes = now;
        }
        while self.bytes > self.max_bytes && self.open > 1 && self.close_oldest()? {}
        Ok(())
    }

    /// The reader of a store for reading from it; `None` where as many as are kept are all in use in this call.
    pub fn get(&mut self, store: usize) -> Result<Option<&mut (dyn ReadRows + 'c)>, AnnDataError> {
        if self.slots[store].reader.is_none() {
            if self.open >= self.max_open && !self.close_oldest()? {
                return Ok(None);
            }
            self.slots[store].reader = Some(self.stores[store].reader()?);
            self.open += 1;
        }
        let slot = &mut self.slots[store];
        if slot.call != self.call {
            self.used.push(store);
        }
        slot.call = self.call;
        slot.touched.set(true);
        Ok(slot.reader.as_deref_mut())
    }

    /// Close the reader that was not used for longest; `false` if all were in this call.
    fn close_oldest(&mut self) -> Result<bool, AnnDataError> {
        let old = self.slots.iter_mut().filter(|slot| slot.reader.is_some() && slot.call < self.call);
        let Some(slot) = old.min_by_key(|slot| slot.call) else { return Ok(false) };
        let closed = slot.reader.take();
        self.open -= 1;
        self.bytes -= std::mem::take(&mut slot.bytes);
        if let Some(reader) = closed.filter(|_| slot.touched.replace(false)) {
            reader.unchanged()?;
        }
        Ok(true)
    }

    /// An error if a file that was read since this was last asked is another.
    pub fn unchanged(&self) -> Result<(), AnnDataError> {
        let touched = self.slots.iter().filter(|slot| slot.touched.replace(false));
        touched.filter_map(|slot| slot.reader.as_ref()).try_for_each(|reader| reader.unchanged())
    }

    pub fn work_bytes(&self) -> u64 {
        self.slots.iter().filter_map(|slot| slot.reader.as_ref()).map(|reader| reader.work_bytes()).sum()
    }
}
