use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use loader_core::{Batcher, Interval, Loaded, LoaderError, LoaderOptions, Reader, Stage};
use tch::{Device, Kind, TchError, Tensor};

use super::feed::Arrival;
use super::gpu::Memory;
use super::{DeviceError, Feed, Gpu};
use crate::models::{Direct, ModelBatch, ModelError, ModelInputs, Place};

/// Parts of a batch start at multiples of this, as libtorch's own tensors do.
const ALIGNMENT: usize = 512;

/// What loader threads copy into page-locked memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PinOptions {
    /// The GPU that copies from it.
    pub gpu: Gpu,
    /// Whether the model reads the graph of each sample.
    pub with_graphs: bool,
}

/// What the page-locked copy of a batch has.
#[derive(Clone, Copy, Debug)]
struct Extent {
    bytes: usize,
    with_graphs: bool,
}

/// A batch, with a page-locked copy of what its model reads where that is wanted.
pub(crate) struct Staged<T> {
    /// The batch.
    pub batch: T,
    /// Grows to the largest batch, and goes round with the batch's own buffers.
    memory: Option<Memory>,
    /// What of this batch is in `memory`; none where that is not used.
    extent: Option<Extent>,
    arrival: Option<Arrival>,
    /// Bytes copied to the device.
    copied: Cell<u64>,
}

impl<T> Staged<T> {
    pub(super) fn of(batch: T) -> Self {
        Self { batch, memory: None, extent: None, arrival: None, copied: Cell::new(0) }
    }

    /// Begin to copy it to the device, where it is page-locked and was not sent yet.
    pub fn send(&mut self, feed: &Feed) -> Result<(), DeviceError> {
        if let (Some(memory), Some(Extent { bytes, .. }), None) = (&self.memory, self.extent, &self.arrival)
            && bytes > 0
        {
            self.arrival = Some(feed.send(memory, bytes)?);
            self.copied.set(bytes as u64);
        }
        Ok(())
    }

    /// Bytes that were copied to the device so far.
    pub fn copied(&self) -> u64 {
        self.copied.get()
    }

    /// Free the copy on the device, which the step that used it has waited for; returns the nanoseconds for which the device copied, none
    /// of a batch that was not page-locked. To call on the step's thread: a loader thread would free it one batch later, and where it never
    /// chose a device, CUDA would give it a context on GPU 0.
    pub fn landed(&mut self) -> Result<Option<u64>, DeviceError> {
        let ns = self.arrival.as_ref().map(Arrival::ns).transpose()?;
        self.arrival = None;
        Ok(ns)
    }

    /// Bytes of page-locked memory that go round with it.
    fn locked_bytes(&self) -> u64 {
        self.memory.as_ref().map_or(0, Memory::taken)
    }
}

impl<T: ModelBatch> Staged<T> {
    /// Copy what the model reads into page-locked memory.
    pub(super) fn pin(&mut self, options: PinOptions) -> Result<(), ModelError> {
        let PinOptions { gpu, with_graphs } = options;
        let mut measure = Measure(Cursor::default());
        self.batch.placed(&[], with_graphs, &mut measure)?;
        let bytes = measure.0.end;
        if self.memory.as_ref().is_none_or(|memory| memory.room() < bytes) {
            // The old one first: both together may not fit.
            self.memory = None;
            self.memory = Some(Memory::new(gpu, bytes)?);
        }
        if let Some(memory) = &mut self.memory {
            let mut fill = Fill { memory: memory.bytes_mut(), cursor: Cursor::default() };
            self.batch.placed(&[], with_graphs, &mut fill)?;
        }
        self.extent = Some(Extent { bytes, with_graphs });
        Ok(())
    }

    /// Its parts in the copy on the device. The parts have no names: that they are the ones that were copied shows in their sizes.
    fn arrived(
        &self,
        masks: &[Tensor],
        with_graphs: bool,
        arrival: &Arrival,
        extent: Extent,
    ) -> Result<ModelInputs<'_>, ModelError> {
        if with_graphs != extent.with_graphs {
            let [made, read] = [extent.with_graphs, with_graphs].map(|with| if with { "with" } else { "without" });
            return Err(ModelError::Locked(format!(
                "it was made {made} the graphs of its samples, and is read {read}"
            )));
        }
        let mut arrived = Arrived { memory: arrival.arrive()?, cursor: Cursor::default() };
        let inputs = self.batch.placed(masks, with_graphs, &mut arrived)?;
        let (made, read) = (extent.bytes, arrived.cursor.end);
        if made != read {
            return Err(ModelError::Locked(format!("it was made of {made} bytes, and {read} are read")));
        }
        Ok(inputs)
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
        if let (Some(arrival), Some(extent)) = (&self.arrival, self.extent) {
            return self.arrived(masks, with_graphs, arrival, extent);
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

/// Where the parts of a batch lie in its copy: one after another, those of no bytes nowhere.
#[derive(Debug, Default)]
struct Cursor {
    /// Behind the last part.
    end: usize,
}

impl Cursor {
    /// The next part, of `bytes` bytes.
    fn next(&mut self, bytes: usize) -> Range<usize> {
        if bytes == 0 {
            return self.end..self.end;
        }
        let start = self.end.next_multiple_of(ALIGNMENT);
        self.end = start + bytes;
        start..self.end
    }
}

/// Finds out how much room a batch takes.
struct Measure(Cursor);

impl Place for Measure {
    fn place(&mut self, bytes: &[u8], _: &[i64], _: Kind) -> Result<Tensor, TchError> {
        self.0.next(bytes.len());
        Ok(Tensor::new())
    }
}

/// Copies a batch into memory that has room for it.
struct Fill<'a> {
    memory: &'a mut [u8],
    cursor: Cursor,
}

impl Place for Fill<'_> {
    fn place(&mut self, bytes: &[u8], _: &[i64], _: Kind) -> Result<Tensor, TchError> {
        let part = self.cursor.next(bytes.len());
        if let Some(room) = self.memory.get_mut(part) {
            room.copy_from_slice(bytes);
        }
        Ok(Tensor::new())
    }
}

/// Finds the parts of a batch in the copy of what [`Fill`] wrote.
struct Arrived<'a> {
    memory: &'a Tensor,
    cursor: Cursor,
}

impl Place for Arrived<'_> {
    fn place(&mut self, bytes: &[u8], shape: &[i64], kind: Kind) -> Result<Tensor, TchError> {
        let part = self.cursor.next(bytes.len());
        if part.is_empty() {
            return Tensor::f_zeros(shape, (kind, self.memory.device()));
        }
        self.memory.f_narrow(0, part.start as i64, part.len() as i64)?.f_view_dtype(kind)?.f_view(shape)
    }
}

/// A builder whose threads copy each batch into page-locked memory, too, where that is wanted.
#[derive(Clone)]
pub(crate) struct Pinning<B> {
    builder: B,
    /// None where nothing is page-locked.
    options: Option<PinOptions>,
}

impl<B> Pinning<B> {
    pub fn new(builder: B, options: Option<PinOptions>) -> Self {
        Self { builder, options }
    }
}

impl<B: Batcher<Batch: ModelBatch>> Batcher for Pinning<B> {
    type Dataset = B::Dataset;
    type Batch = Staged<B::Batch>;
    type Error = B::Error;

    fn dataset(&self) -> Arc<B::Dataset> {
        self.builder.dataset()
    }

    fn empty(&self) -> Self::Batch {
        Staged::of(self.builder.empty())
    }

    fn clock(&self) -> Instant {
        self.builder.clock()
    }

    /// With the page-locked memory, which each batch has for itself.
    fn bytes(batch: &Self::Batch) -> u64 {
        B::bytes(&batch.batch) + batch.locked_bytes()
    }

    fn starting(&mut self, options: &LoaderOptions) {
        self.builder.starting(options);
    }

    fn stop(&self, from: u64) {
        self.builder.stop(from);
    }

    fn build(
        &mut self,
        reader: &mut Reader<'_, Self>,
        step: u64,
        batch: Self::Batch,
    ) -> Result<Loaded<Self::Batch>, B::Error> {
        let memory = batch.memory;
        let loaded = self.builder.build(reader, step, batch.batch)?;
        let Loaded { batch, step, epoch, thread, bytes_read, work_bytes, mut intervals, operations, exposed } = loaded;
        let mut batch = Staged { memory, ..Staged::of(batch) };
        if let Some(options) = self.options {
            let start = self.now();
            let room = |e: ModelError| LoaderError::Other(format!("cannot lock the memory of a batch: {e}").into());
            batch.pin(options).map_err(room)?;
            intervals.push(Interval { stage: Stage::Pin, start, end: self.now(), busy: true });
        }
        Ok(Loaded { batch, step, epoch, thread, bytes_read, work_bytes, intervals, operations, exposed })
    }
}

#[cfg(test)]
mod tests {
    use cell_loader::{CellBatch, CellValues};
    use graph_loader::{Batch, Common, Edges, Graphs, Layout};

    use super::*;

    /// Page-locked and sent, for a model that reads the graphs or not.
    fn sent<T: ModelBatch>(batch: T, with_graphs: bool) -> Staged<T> {
        let mut staged = Staged::of(batch);
        staged.pin(PinOptions { gpu: Gpu::Host, with_graphs }).unwrap();
        staged.send(&Feed::new(Gpu::Host).unwrap()).unwrap();
        staged
    }

    fn same(a: &Tensor, b: &Tensor) {
        assert!(a.kind() == b.kind() && a.size() == b.size() && a.equal(b), "{a:?} {b:?}");
    }

    /// Two samples with three edge types.
    fn with_graphs() -> Batch {
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
        Batch { common, layout: Layout::Graphs(Box::new(graphs)) }
    }

    #[test]
    fn the_parts_of_a_batch_of_graphs_are_found_again() {
        let batch = with_graphs();
        let there = sent(batch.clone(), true);
        assert_eq!(there.copied(), (8 * ALIGNMENT + 8) as u64, "nine parts that are not empty, the last of 8 bytes");
        let ModelInputs::Samples(expected) = batch.inputs(&[], true, Device::Cpu).unwrap() else { unreachable!() };
        // The second time with masks that the step made for two of the three types.
        let made = [Tensor::from_slice(&[false, true, true]), Tensor::from_slice(&[true])];
        for made in [&made[..0], &made[..]] {
            let ModelInputs::Samples(found) = there.inputs(made, true, Device::Cpu).unwrap() else { unreachable!() };
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
        let values = CellValues::Sparse { crow: vec![0, 1, 3], col: vec![2, 0, 1], values: vec![7.0, 1.0, 2.0] };
        let rows = CellBatch { rows: vec![4, 9], columns: 3, values, labels: vec![vec![1, -1]] };
        let there = sent(rows.clone(), false);
        let ModelInputs::Rows(found) = there.inputs(&[], false, Device::Cpu).unwrap() else { unreachable!() };
        let ModelInputs::Rows(expected) = rows.inputs(&[], false, Device::Cpu).unwrap() else { unreachable!() };
        same(&found.classes.unwrap(), &expected.classes.unwrap());
        let parts = |values| match values {
            crate::models::array::ValueInputs::Sparse { crow, col, values } => [crow, col, values],
            _ => unreachable!(),
        };
        for (a, b) in parts(found.values).iter().zip(&parts(expected.values)) {
            same(a, b);
        }
    }

    #[test]
    fn a_batch_that_was_pinned_for_another_model_is_refused() {
        let refusal =
            |staged: &Staged<Batch>, with_graphs| staged.inputs(&[], with_graphs, Device::Cpu).unwrap_err().to_string();
        for pinned in [true, false] {
            let staged = sent(with_graphs(), pinned);
            assert!(staged.inputs(&[], pinned, Device::Cpu).is_ok());
            let message = refusal(&staged, !pinned);
            assert!(message.contains("graphs of its samples, and is read with"), "{message}");
        }
        // Changed behind the copy: its labels are fewer.
        let mut staged = sent(with_graphs(), true);
        staged.batch.common.labels.pop();
        let message = refusal(&staged, true);
        assert!(message.ends_with("it was made of 4104 bytes, and 4100 are read"), "{message}");
    }

    #[test]
    fn the_copy_on_the_device_is_timed_and_freed_behind_the_step() {
        let mut staged = sent(with_graphs(), true);
        // 4,104 bytes are locked as 8,192.
        assert_eq!((staged.copied(), staged.locked_bytes()), (4104, 8192));
        assert!(staged.landed().unwrap().is_some_and(|ns| ns > 0) && staged.arrival.is_none());
        assert_eq!((staged.landed().unwrap(), staged.copied()), (None, 4104));
    }

    #[test]
    fn a_batch_that_was_not_pinned_is_used_as_it_lies() {
        let rows =
            CellBatch { rows: vec![4], columns: 2, values: CellValues::Dense(vec![1.0, 2.0]), labels: Vec::new() };
        let staged = Staged::of(rows);
        let ModelInputs::Rows(inputs) = staged.inputs(&[], false, Device::Cpu).unwrap() else { unreachable!() };
        assert_eq!((inputs.batch_size, staged.copied(), staged.samples()), (1, 0, 1));
    }
}
