use std::sync::Arc;
use std::time::Instant;

use expctl_record::{PerStage, Stage};

use super::{Interval, ReadRecord, Records};
use crate::PipelineError;
use crate::collate::{Assembler, Batch};
use crate::sampler::Schedule;
use crate::store::Sample;

/// A batch with what it cost.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The batch. Give it back with `Loader::recycle`, so that its buffers are used again.
    pub batch: Batch,
    /// Number of the step it is for.
    pub step: u64,
    /// Epoch it belongs to.
    pub epoch: u64,
    /// Bytes taken from the store.
    pub bytes_read: u64,
    /// Bytes that its thread keeps beside the batch, to make the next one: raw records, and what the assembler works with.
    pub work_bytes: u64,
    /// When its thread worked on which stage.
    pub intervals: Vec<Interval>,
    /// Time for which the step waited, by stage.
    pub exposed: PerStage<u64>,
}

impl Loaded {
    /// Time worked on each stage.
    pub fn busy(&self) -> PerStage<u64> {
        let mut busy = PerStage::default();
        for i in &self.intervals {
            busy[i.stage] += i.end - i.start;
        }
        busy
    }
}

/// What all threads of a loader share.
#[derive(Clone)]
pub struct BatchBuilder {
    records: Arc<dyn Records>,
    schedule: Arc<Schedule>,
    assembler: Assembler,
    clock: Instant,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    samples: Vec<Sample>,
}

impl BatchBuilder {
    /// A builder of the batches of `schedule`.
    pub fn new(records: Arc<dyn Records>, schedule: Arc<Schedule>, assembler: Assembler) -> Self {
        Self {
            records,
            schedule,
            assembler,
            clock: Instant::now(),
            bytes: Vec::new(),
            ends: Vec::new(),
            samples: Vec::new(),
        }
    }

    /// The records, for making readers.
    pub fn records(&self) -> Arc<dyn Records> {
        Arc::clone(&self.records)
    }

    /// A batch without samples.
    pub fn empty(&self) -> Batch {
        self.assembler.empty()
    }

    /// Nanoseconds of the clock that intervals are in.
    pub fn now(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    /// Build the batch of `step` into the buffers of `batch`.
    ///
    /// Stage by stage over the whole batch, so each stage is one interval and timing costs six clock reads a batch.
    pub fn build(&mut self, reader: &mut dyn ReadRecord, step: u64, mut batch: Batch) -> Result<Loaded, PipelineError> {
        let mut laps = Laps { clock: self.clock, last: self.now(), intervals: Vec::with_capacity(5) };

        let chosen = self.schedule.batch(step);
        let indices = chosen.indices();
        laps.lap(Stage::Sample);

        self.bytes.clear();
        self.ends.clear();
        for &index in indices {
            reader.read(index, &mut self.bytes)?;
            self.ends.push(self.bytes.len());
        }
        reader.unchanged()?;
        laps.lap(Stage::Read);

        self.samples.resize_with(indices.len(), Sample::default);
        let mut start = 0;
        for ((&index, &end), sample) in indices.iter().zip(&self.ends).zip(&mut self.samples) {
            self.records.decode(index, &self.bytes, start..end, sample)?;
            start = end;
        }
        laps.lap(Stage::Decode);

        self.assembler.mask(&self.samples, &self.bytes, &mut batch);
        laps.lap(Stage::Mask);

        self.assembler.collate(&self.samples, &mut batch);
        laps.lap(Stage::Collate);

        Ok(Loaded {
            batch,
            step,
            epoch: chosen.epoch,
            bytes_read: self.bytes.len() as u64,
            work_bytes: self.bytes.capacity() as u64 + self.assembler.work_bytes(),
            intervals: laps.intervals,
            exposed: PerStage::default(),
        })
    }
}

/// A stopwatch whose laps are adjacent intervals.
struct Laps {
    clock: Instant,
    last: u64,
    intervals: Vec<Interval>,
}

impl Laps {
    fn lap(&mut self, stage: Stage) {
        let now = self.clock.elapsed().as_nanos() as u64;
        self.intervals.push(Interval { stage, start: self.last, end: now });
        self.last = now;
    }
}
