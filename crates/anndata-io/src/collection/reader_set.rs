use std::cell::Cell;

use crate::{AnnDataError, ArrayStore, ReadRows};

/// The open readers of one thread, at most one for each store.
pub(crate) struct ReaderSet<'c> {
    stores: &'c [Box<dyn ArrayStore>],
    slots: Vec<ReaderSlot<'c>>,
    open: usize,
    max_open: usize,
    call: u64,
    /// Bytes that the readers keep together, when they were last measured, and their limit.
    bytes: u64,
    max_bytes: u64,
    /// Readers that were used in this call.
    used: Vec<usize>,
}

/// A reader, and its use.
#[derive(Default)]
struct ReaderSlot<'c> {
    reader: Option<Box<dyn ReadRows + 'c>>,
    /// The last call that used it.
    call: u64,
    /// Bytes that it kept when it was last measured.
    bytes: u64,
    /// Whether it was read from since it was last checked to be unchanged.
    touched: Cell<bool>,
}

impl<'c> ReaderSet<'c> {
    /// At most `max_open` readers are open at a time, and at least one. The least recently used ones are closed until all
    /// together keep at most `max_bytes` between calls.
    pub fn new(stores: &'c [Box<dyn ArrayStore>], max_open: usize, max_bytes: u64) -> Self {
        let slots = stores.iter().map(|_| ReaderSlot::default()).collect();
        Self { stores, slots, open: 0, max_open: max_open.max(1), call: 1, bytes: 0, max_bytes, used: Vec::new() }
    }

    /// Begins a call: readers of earlier calls may be closed.
    ///
    /// # Errors
    /// The file of a closed reader has changed.
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

    /// The reader of a store; `None` if the maximum number of readers is in use in this call.
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

    /// Closes the least recently used reader; `false` if all are in use in this call.
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

    /// Fails if a file that was read since the last check has changed.
    pub fn unchanged(&self) -> Result<(), AnnDataError> {
        let touched = self.slots.iter().filter(|slot| slot.touched.replace(false));
        touched.filter_map(|slot| slot.reader.as_ref()).try_for_each(|reader| reader.unchanged())
    }

    pub fn work_bytes(&self) -> u64 {
        self.slots.iter().filter_map(|slot| slot.reader.as_ref()).map(|reader| reader.work_bytes()).sum()
    }
}
