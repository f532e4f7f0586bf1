//! `MemoryBudget` decides for a `Loader`, from the sizes of earlier batches, whether a thread may begin another one. It only counts; the loader calls
//! it under its lock.

/// Counts the batches that a loader holds, and decides whether another one may be begun.
///
/// Invariants under a limit: all batches, spare buffers included, fit beside the scratch memory of the threads if each batch
/// is as large as the largest so far. One batch is always allowed; until the first size is known, no more than one. A step
/// never waits for memory for ever: the batch that it waits for may be begun if no other is being built, whatever the step
/// itself still holds.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    /// Bytes; `None` is no limit.
    limit: Option<u64>,
    threads: u64,
    /// Bytes of the largest batch so far.
    largest: Option<u64>,
    /// Maximum bytes of scratch memory of a thread so far.
    scratch: u64,
    /// Batches that are being built.
    building: u64,
    /// Batches built and not delivered.
    ready: u64,
    /// Batches delivered and not given back.
    in_step: u64,
    /// The step waits for a batch.
    waiting: bool,
    reported: bool,
}

/// The limit leaves room for fewer batches than would be loaded ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FewerBatches {
    /// Batches that fit.
    pub batches: u64,
    /// Bytes of the largest of them.
    pub largest: u64,
    /// Bytes of scratch memory of all threads.
    pub scratch: u64,
}

impl MemoryBudget {
    /// A budget of `limit` bytes, scratch memory of `threads` threads included; 0 is no limit.
    pub fn new(limit: u64, threads: u64) -> Self {
        let limit = (limit > 0).then_some(limit);
        Self {
            limit,
            threads,
            largest: None,
            scratch: 0,
            building: 0,
            ready: 0,
            in_step: 0,
            waiting: false,
            reported: false,
        }
    }

    /// Bytes of the largest batch so far; `None` before the first.
    pub fn largest(&self) -> Option<u64> {
        self.largest
    }

    /// Batches that fit.
    fn capacity(&self) -> u64 {
        match (self.limit, self.largest) {
            (None, _) => u64::MAX,
            (Some(_), None) => 1,
            (Some(limit), Some(largest)) => (limit.saturating_sub(self.threads * self.scratch) / largest.max(1)).max(1),
        }
    }

    /// Batches that exist, spare buffers not counted.
    fn held(&self) -> u64 {
        self.building + self.ready + self.in_step
    }

    /// How many of `spare` buffers must be dropped.
    pub fn surplus(&self, spare: usize) -> usize {
        let room = self.capacity().saturating_sub(self.held());
        spare.saturating_sub(usize::try_from(room).unwrap_or(usize::MAX))
    }

    /// Whether a batch may be begun while there are `spare` buffers, of which it takes one.
    pub fn may_begin(&self, spare: usize) -> bool {
        self.held().saturating_add(spare.max(1) as u64) <= self.capacity()
            || (self.waiting && self.building + self.ready == 0)
    }

    pub fn begin(&mut self) {
        self.building += 1;
    }

    /// A batch of `bytes` bytes was built by a thread with `scratch` bytes of scratch memory. Returns, once, that the limit
    /// leaves room for fewer than `wanted` batches.
    pub fn built(&mut self, bytes: u64, scratch: u64, wanted: u64) -> Option<FewerBatches> {
        self.building = self.building.saturating_sub(1);
        self.ready += 1;
        let largest = self.largest.map_or(bytes, |largest| largest.max(bytes));
        self.largest = Some(largest);
        self.scratch = self.scratch.max(scratch);
        let batches = self.capacity();
        let report = batches < wanted && !self.reported;
        self.reported |= report;
        report.then_some(FewerBatches { batches, largest, scratch: self.threads * self.scratch })
    }

    pub fn failed(&mut self) {
        self.building = self.building.saturating_sub(1);
    }

    pub fn delivered(&mut self) {
        self.ready = self.ready.saturating_sub(1);
        self.in_step += 1;
    }

    pub fn given_back(&mut self) {
        self.in_step = self.in_step.saturating_sub(1);
    }

    /// The step waits for a batch, or does so no longer.
    pub fn wait(&mut self, waiting: bool) {
        self.waiting = waiting;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_until_the_size_is_known_then_as_many_as_fit() {
        let mut buffer = MemoryBudget::new(350, 2);
        assert!(buffer.may_begin(0));
        buffer.begin();
        assert!(!buffer.may_begin(0), "the size is not known yet");
        assert_eq!(buffer.built(100, 0, 9), Some(FewerBatches { batches: 3, largest: 100, scratch: 0 }));
        buffer.begin();
        assert!(buffer.may_begin(0));
        buffer.begin();
        assert!(!buffer.may_begin(0), "three of 100 are held");
        assert_eq!(buffer.built(120, 0, 9), None, "said once");
        assert!(!buffer.may_begin(0), "two of 120 fit, three are held");
    }

    #[test]
    fn a_batch_beyond_the_limit_runs_alone_and_keeps_its_buffer() {
        let mut buffer = MemoryBudget::new(50, 1);
        buffer.begin();
        buffer.built(100, 0, 1);
        assert!(!buffer.may_begin(0));
        buffer.delivered();
        assert!(!buffer.may_begin(0));
        buffer.given_back();
        assert_eq!(buffer.surplus(1), 0);
        assert!(buffer.may_begin(1));
    }

    #[test]
    fn what_threads_work_with_takes_room_from_batches() {
        let mut buffer = MemoryBudget::new(500, 2);
        buffer.begin();
        assert_eq!(buffer.built(100, 60, 9), Some(FewerBatches { batches: 3, largest: 100, scratch: 120 }));
        buffer.begin();
        buffer.begin();
        assert!(!buffer.may_begin(0), "three of 100 are held beside 120");
        // Where it takes all room, one batch is held all the same.
        buffer.built(100, 1000, 9);
        assert_eq!(buffer.capacity(), 1);
    }

    #[test]
    fn spare_buffers_count_and_a_waiting_step_comes_first() {
        let mut buffer = MemoryBudget::new(200, 1);
        buffer.begin();
        buffer.built(100, 0, 1);
        buffer.delivered();
        assert_eq!((buffer.surplus(1), buffer.surplus(2)), (0, 1));
        assert!(buffer.may_begin(1));
        buffer.begin();
        buffer.built(100, 0, 1);
        buffer.delivered();
        // Both are in the step, which asks for a third.
        assert!(!buffer.may_begin(0));
        buffer.wait(true);
        assert!(buffer.may_begin(0));
    }
}
