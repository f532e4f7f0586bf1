/// How many batches a loader holds, and whether it may begin another one.
///
/// Invariants, where there is a limit: no more batches are held than fit beside what the threads work with, if all are as
/// large as the largest so far, spare buffers included, but one always is; until that size is known it is one. A step is
/// never left waiting for memory: what it waits for may be begun if nothing is under way, whatever the step itself still
/// holds.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    /// Bytes; none is no limit.
    limit: Option<u64>,
    /// Threads, each of which keeps what it works with.
    threads: u64,
    /// Bytes of the largest batch that was built.
    largest: Option<u64>,
    /// The most bytes that a thread has kept beside batches.
    work: u64,
    /// Batches that are being built.
    making: u64,
    /// Built, not delivered.
    ready: u64,
    /// Delivered, not given back.
    in_step: u64,
    waiting: bool,
    reported: bool,
}

/// The limit leaves room for fewer batches than would be loaded ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reduced {
    /// Batches that fit.
    pub batches: u64,
    /// Bytes of the largest of them.
    pub largest: u64,
    /// Bytes that the threads keep beside them.
    pub work: u64,
}

impl Buffer {
    /// At most `limit` bytes, of which each of `threads` threads takes what it works with; 0 is no limit.
    pub fn new(limit: u64, threads: u64) -> Self {
        let limit = (limit > 0).then_some(limit);
        Self {
            limit,
            threads,
            largest: None,
            work: 0,
            making: 0,
            ready: 0,
            in_step: 0,
            waiting: false,
            reported: false,
        }
    }

    /// Batches that fit.
    fn capacity(&self) -> u64 {
        match (self.limit, self.largest) {
            (None, _) => u64::MAX,
            (Some(_), None) => 1,
            (Some(limit), Some(largest)) => (limit.saturating_sub(self.threads * self.work) / largest.max(1)).max(1),
        }
    }

    fn held(&self) -> u64 {
        self.making + self.ready + self.in_step
    }

    /// How many of `spare` buffers are to be dropped.
    pub fn surplus(&self, spare: usize) -> usize {
        let room = self.capacity().saturating_sub(self.held());
        spare.saturating_sub(usize::try_from(room).unwrap_or(usize::MAX))
    }

    /// Whether a batch may be begun while there are `spare` buffers, of which it takes one.
    pub fn may_begin(&self, spare: usize) -> bool {
        self.held().saturating_add(spare.max(1) as u64) <= self.capacity()
            || (self.waiting && self.making + self.ready == 0)
    }

    pub fn begin(&mut self) {
        self.making += 1;
    }

    /// A batch of this size was built, by a thread that keeps `work` bytes beside it. Says once if the limit keeps the loader
    /// from having `wanted` batches.
    pub fn built(&mut self, bytes: u64, work: u64, wanted: u64) -> Option<Reduced> {
        self.making = self.making.saturating_sub(1);
        self.ready += 1;
        let largest = self.largest.map_or(bytes, |largest| largest.max(bytes));
        self.largest = Some(largest);
        self.work = self.work.max(work);
        let batches = self.capacity();
        let report = batches < wanted && !self.reported;
        self.reported |= report;
        report.then_some(Reduced { batches, largest, work: self.threads * self.work })
    }

    pub fn failed(&mut self) {
        self.making = self.making.saturating_sub(1);
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
        let mut buffer = Buffer::new(350, 2);
        assert!(buffer.may_begin(0));
        buffer.begin();
        assert!(!buffer.may_begin(0), "the size is not known yet");
        assert_eq!(buffer.built(100, 0, 9), Some(Reduced { batches: 3, largest: 100, work: 0 }));
        buffer.begin();
        assert!(buffer.may_begin(0));
        buffer.begin();
        assert!(!buffer.may_begin(0), "three of 100 are held");
        assert_eq!(buffer.built(120, 0, 9), None, "said once");
        assert!(!buffer.may_begin(0), "two of 120 fit, three are held");
    }

    #[test]
    fn a_batch_beyond_the_limit_runs_alone_and_keeps_its_buffer() {
        let mut buffer = Buffer::new(50, 1);
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
        let mut buffer = Buffer::new(500, 2);
        buffer.begin();
        assert_eq!(buffer.built(100, 60, 9), Some(Reduced { batches: 3, largest: 100, work: 120 }));
        buffer.begin();
        buffer.begin();
        assert!(!buffer.may_begin(0), "three of 100 are held beside 120");
        // Where it takes all room, one batch is held all the same.
        buffer.built(100, 1000, 9);
        assert_eq!(buffer.capacity(), 1);
    }

    #[test]
    fn spare_buffers_count_and_a_waiting_step_comes_first() {
        let mut buffer = Buffer::new(200, 1);
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
