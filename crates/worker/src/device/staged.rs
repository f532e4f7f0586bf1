use std::cell::Cell;
use std::time::Instant;

use expctl_dist::{DistError, Pinned};
use expctl_pipeline::PipelineError;
use expctl_pipeline::loader::{Build, Interval, Loaded, LoaderOptions};
use expctl_record::Stage;
use tch::{Device, Kind, TchError, Tensor};

use super::Feed;
use super::feed::Arrival;
use crate::models::{Direct, ModelBatch, ModelError, ModelInputs, Place};

/// Parts of a batch start at multiples of this, as libtorch's own tensors do.
const ALIGNMENT: usize = 512;

fn aligned(place: usize) -> usize {
    place.next_multiple_of(ALIGNMENT)
}

/// A batch, with a page-locked copy of what its model reads where that is wanted.
pub(crate) struct Staged<T> {
    /// The batch.
    pub batch: T,
    /// Grows to the largest batch, and goes round with the batch's own buffers.
    memory: Option<Pinned>,
    /// Bytes of `memory` that this batch has; 0 where it is not used.
    bytes: usize,
    arrival: Option<Arrival>,
    /// Bytes copied to the device.
    copied: Cell<u64>,
}

impl<T> Staged<T> {
    pub(super) fn of(batch: T) -> Self {
        Self { batch, memory: None, bytes: 0, arrival: None, copied: Cell::new(0) }
    }

    /// Begin to copy it to the device, where it is page-locked and was not sent yet.
    pub fn send(&mut self, feed: &Feed) -> Result<(), DistError> {
        if let (Some(memory), None) = (&self.memory, &self.arrival)
            && self.bytes > 0
        {
            self.arrival = Some(feed.send(memory, self.bytes)?);
            self.copied.set(self.bytes as u64);
        }
        Ok(())
    }

    /// Bytes that were copied to the device so far.
    pub fn copied(&self) -> u64 {
        self.copied.get()
    }
}

impl<T: ModelBatch> Staged<T> {
    /// Copy what the model reads into page-locked memory.
    pub(super) fn pin(&mut self, with_graphs: bool) -> Result<(), ModelError> {
        let mut measure = Measure(0);
        self.batch.placed(&[], with_graphs, &mut measure)?;
        let bytes = measure.0;
        if self.memory.as_ref().is_none_or(|memory| memory.len() < bytes) {
            // The old one first: both together may not fit.
            self.memory = None;
            self.memory = Some(Pinned::new(bytes)?);
        }
        if let Some(memory) = &mut self.memory {
            self.batch.placed(&[], with_graphs, &mut Fill { memory: memory.bytes_mut(), end: 0 })?;
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl<T: ModelBatch> ModelBatch for Staged<T> {
    fn placed(
        &self,
        masks: &[Tensor],
        with_graphs: bool,
        place: &mut dyn Place,
    ) -> Result<ModelInputs<'_>, ModelError> {
        self.batch.placed(masks, with_graphs, place)
    }

    fn inputs(&self, masks: &[Tensor], with_graphs: bool, device: Device) -> Result<ModelInputs<'_>, ModelError> {
        if let Some(arrival) = &self.arrival {
            let memory = arrival.arrive()?;
            return self.placed(masks, with_graphs, &mut Arrived { memory, end: 0 });
        }
        let mut direct = Direct::to(device);
        let inputs = self.batch.placed(masks, with_graphs, &mut direct)?;
        self.copied.set(self.copied.get() + direct.copied);
        Ok(inputs)
    }

    fn samples(&self) -> u64 {
        self.batch.samples()
    }
}

/// Finds out how much room a batch takes.
struct Measure(usize);

impl Place for Measure {
    fn place(&mut self, bytes: &[u8], _: &[i64], _: Kind) -> Result<Tensor, TchError> {
        self.0 = aligned(self.0) + bytes.len();
        Ok(Tensor::new())
    }
}

/// Copies a batch into memory that has room for it.
struct Fill<'a> {
    memory: &'a mut [u8],
    end: usize,
}

impl Place for Fill<'_> {
    fn place(&mut self, bytes: &[u8], _: &[i64], _: Kind) -> Result<Tensor, TchError> {
        let start = aligned(self.end);
        self.end = start + bytes.len();
        if let Some(room) = self.memory.get_mut(start..self.end) {
            room.copy_from_slice(bytes);
        }
        Ok(Tensor::new())
    }
}

/// Finds the parts of a batch in the copy of what [`Fill`] wrote.
struct Arrived<'a> {
    memory: &'a Tensor,
    end: usize,
}

impl Place for Arrived<'_> {
    fn place(&mut self, bytes: &[u8], shape: &[i64], kind: Kind) -> Result<Tensor, TchError> {
        if bytes.is_empty() {
            return Tensor::f_zeros(shape, (kind, self.memory.device()));
        }
        let start = aligned(self.end);
        self.end = start + bytes.len();
        self.memory.f_narrow(0, start as i64, bytes.len() as i64)?.f_view_dtype(kind)?.f_view(shape)
    }
}

/// A builder whose threads copy each batch into page-locked memory, too, where that is wanted.
#[derive(Clone)]
pub(crate) struct Pinning<B> {
    builder: B,
    /// Whether models read the graph of each sample; none where nothing is pinned.
    with_graphs: Option<bool>,
}

impl<B> Pinning<B> {
    pub fn new(builder: B, with_graphs: Option<bool>) -> Self {
        Self { builder, with_graphs }
    }
}

impl<B: Build<Batch: ModelBatch>> Build for Pinning<B> {
    type Batch = Staged<B::Batch>;
    type Source = B::Source;
    type Reader<'s> = B::Reader<'s>;

    fn source(&self) -> Self::Source {
        self.builder.source()
    }

    fn reader(source: &Self::Source) -> Result<Self::Reader<'_>, PipelineError> {
        B::reader(source)
    }

    fn empty(&self) -> Self::Batch {
        Staged::of(self.builder.empty())
    }

    fn clock(&self) -> Instant {
        self.builder.clock()
    }

    fn bytes(batch: &Self::Batch) -> u64 {
        B::bytes(&batch.batch)
    }

    fn starting(&mut self, options: &LoaderOptions) {
        self.builder.starting(options);
    }

    fn stop(&self, from: u64) {
        self.builder.stop(from);
    }

    fn build(
        &mut self,
        reader: &mut Self::Reader<'_>,
        step: u64,
        batch: Self::Batch,
    ) -> Result<Loaded<Self::Batch>, PipelineError> {
        let memory = batch.memory;
        let loaded = self.builder.build(reader, step, batch.batch)?;
        let Loaded { batch, step, epoch, thread, bytes_read, mut work_bytes, mut intervals, exposed } = loaded;
        let mut batch = Staged { memory, ..Staged::of(batch) };
        if let Some(with_graphs) = self.with_graphs {
            let start = self.now();
            let room = |e: ModelError| PipelineError::Invalid(format!("cannot lock the memory of a batch: {e}"));
            batch.pin(with_graphs).map_err(room)?;
            intervals.push(Interval { stage: Stage::Pin, start, end: self.now(), busy: true });
            work_bytes += batch.bytes as u64;
        }
        Ok(Loaded { batch, step, epoch, thread, bytes_read, work_bytes, intervals, exposed })
    }
}

#[cfg(test)]
mod tests {
    use expctl_pipeline::array::{ArrayBatch, Values};
    use expctl_pipeline::collate::{Batch, Common, Edges, Graphs, Layout};

    use super::*;

    /// Memory of the host in the place of both the page-locked one and the device's.
    fn copied(batch: &impl ModelBatch, with_graphs: bool) -> (Vec<u8>, usize) {
        let mut measure = Measure(0);
        batch.placed(&[], with_graphs, &mut measure).unwrap();
        let mut memory = vec![0xEEu8; measure.0];
        let mut fill = Fill { memory: &mut memory, end: 0 };
        batch.placed(&[], with_graphs, &mut fill).unwrap();
        (memory, measure.0)
    }

    fn same(a: &Tensor, b: &Tensor) {
        assert!(a.kind() == b.kind() && a.size() == b.size() && a.equal(b), "{a:?} {b:?}");
    }

    #[test]
    fn the_parts_of_a_batch_of_graphs_are_found_again() {
        let common = Common {
            genes: vec![4, 2, 7],
            gene_sample: vec![0, 0, 1],
            gene_ptr: vec![0, 2, 3],
            labels: vec![0.5, -1.25],
            p_values: vec![0.1, 0.2],
        };
        let mut graphs = Graphs::default();
        graphs.genes.kept = vec![1, 0, 1];
        graphs.genes.batch = vec![0, 0, 1];
        graphs.edges.push(Edges { edge_index: vec![0, 1, 2, 3, 4, 5], mask: vec![1, 0, 1], ..Edges::default() });
        // Without masks, and without edges: parts of no bytes.
        graphs.edges.push(Edges { edge_index: vec![7, 8], ..Edges::default() });
        graphs.edges.push(Edges::default());
        let batch = Batch { common, layout: Layout::Graphs(Box::new(graphs)) };
        let (memory, bytes) = copied(&batch, true);
        assert_eq!(bytes, 8 * ALIGNMENT + 8, "nine parts that are not empty, the last of 8 bytes");
        let there = Tensor::from_slice(&memory);
        let ModelInputs::Samples(expected) = batch.inputs(&[], true, Device::Cpu).unwrap() else { unreachable!() };
        // The second time with masks that the step made for two of the three types.
        let made = [Tensor::from_slice(&[false, true, true]), Tensor::from_slice(&[true])];
        for made in [&made[..0], &made[..]] {
            let mut arrived = Arrived { memory: &there, end: 0 };
            let ModelInputs::Samples(found) = batch.placed(made, true, &mut arrived).unwrap() else { unreachable!() };
            same(&found.genes, &expected.genes);
            same(&found.gene_sample, &expected.gene_sample);
            same(&found.gene_ptr, &expected.gene_ptr);
            same(&found.labels, &expected.labels);
            let (found, expected) = (found.graphs.unwrap(), expected.graphs.as_ref().unwrap());
            same(&found.kept, &expected.kept);
            same(&found.batch, &expected.batch);
            assert_eq!((found.kept_genes, found.edges.len()), (2, 3));
            for (i, (a, b)) in found.edges.iter().zip(&expected.edges).enumerate() {
                same(&a.edge_index, &b.edge_index);
                same(&a.mask, made.get(i).unwrap_or(&b.mask));
            }
        }
    }

    #[test]
    fn the_parts_of_rows_are_found_again() {
        let values = Values::Sparse { crow: vec![0, 1, 3], col: vec![2, 0, 1], values: vec![7.0, 1.0, 2.0] };
        let rows = ArrayBatch { rows: vec![4, 9], columns: 3, values, labels: vec![vec![1, -1]] };
        let (memory, _) = copied(&rows, false);
        let there = Tensor::from_slice(&memory);
        let mut arrived = Arrived { memory: &there, end: 0 };
        let ModelInputs::Rows(found) = rows.placed(&[], false, &mut arrived).unwrap() else { unreachable!() };
        let ModelInputs::Rows(expected) = rows.inputs(&[], false, Device::Cpu).unwrap() else { unreachable!() };
        same(&found.classes.unwrap(), &expected.classes.unwrap());
        let parts = |values| match values {
            crate::models::array::ValueInputs::Sparse { crow, col, values } => [crow, col, values],
            crate::models::array::ValueInputs::Dense(_) => unreachable!(),
        };
        for (a, b) in parts(found.values).iter().zip(&parts(expected.values)) {
            same(a, b);
        }
    }

    #[test]
    fn a_batch_that_was_not_pinned_is_used_as_it_lies() {
        let rows = ArrayBatch { rows: vec![4], columns: 2, values: Values::Dense(vec![1.0, 2.0]), labels: Vec::new() };
        let staged = Staged::of(rows);
        let ModelInputs::Rows(inputs) = staged.inputs(&[], false, Device::Cpu).unwrap() else { unreachable!() };
        assert_eq!((inputs.batch_size, staged.copied(), staged.samples()), (1, 0, 1));
    }
}
