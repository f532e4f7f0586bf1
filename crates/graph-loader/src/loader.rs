use std::sync::Arc;
use std::time::Instant;

use expctl_record::{PerStage, Stage};

use super::{Build, Laps, Loaded, ReadRecord, Records};
use crate::PipelineError;
use crate::collate::{Assembler, Batch};
use crate::marks::Marks;
use crate::sampler::Schedule;
use crate::store::Sample;

/// Builds batches of graphs from records.
#[derive(Clone)]
pub struct BatchBuilder {
    records: Arc<dyn Records>,
    schedule: Arc<Schedule>,
    assembler: Assembler,
    clock: Instant,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    samples: Vec<Sample>,
    /// `None` if operations are not timed.
    marks: Option<Marks>,
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
            marks: None,
        }
    }

    /// The same, which also times the operations inside the stages *mask* and *collate*.
    #[must_use]
    pub fn timing_operations(self) -> Self {
        let marks = Marks::new(self.clock, self.assembler.edge_types());
        Self { marks: Some(marks), ..self }
    }
}

impl Build for BatchBuilder {
    type Batch = Batch;
    type Source = Arc<dyn Records>;
    type Reader<'s> = Box<dyn ReadRecord + 's>;

    fn source(&self) -> Arc<dyn Records> {
        Arc::clone(&self.records)
    }

    fn reader(source: &Arc<dyn Records>) -> Result<Self::Reader<'_>, PipelineError> {
        source.reader()
    }

    fn empty(&self) -> Batch {
        self.assembler.empty()
    }

    fn clock(&self) -> Instant {
        self.clock
    }

    fn bytes(batch: &Batch) -> u64 {
        batch.bytes()
    }

    /// Stage by stage over the whole batch, so each stage is one interval and timing costs six clock reads a batch; where operations are
    /// timed, another one for each of them.
    fn build(&mut self, reader: &mut Self::Reader<'_>, step: u64, mut batch: Batch) -> Result<Loaded, PipelineError> {
        let mut laps = Laps::start(self.clock);

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

        match &mut self.marks {
            None => self.assembler.mask(&self.samples, &self.bytes, &mut batch),
            Some(marks) => {
                marks.begin(Stage::Mask);
                self.assembler.mask_marked(&self.samples, &self.bytes, &mut batch, marks);
            }
        }
        laps.lap(Stage::Mask);

        match &mut self.marks {
            None => self.assembler.collate(&self.samples, &mut batch),
            Some(marks) => {
                marks.begin(Stage::Collate);
                self.assembler.collate_marked(&self.samples, &mut batch, marks);
            }
        }
        laps.lap(Stage::Collate);

        Ok(Loaded {
            batch,
            step,
            epoch: chosen.epoch,
            thread: None,
            bytes_read: self.bytes.len() as u64,
            work_bytes: self.bytes.capacity() as u64 + self.assembler.work_bytes(),
            intervals: laps.intervals(),
            operations: self.marks.as_mut().map(Marks::finish),
            exposed: PerStage::default(),
        })
    }
}
