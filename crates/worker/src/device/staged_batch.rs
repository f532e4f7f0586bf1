//! Batches that loader threads copy into page-locked memory and that are copied to the GPU ahead of their step.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use loader_core::{Batcher, Interval, Loaded, LoaderError, LoaderOptions, Reader, Stage};
use tch::{Device, Kind, TchError, Tensor};

use crate::device::{DeviceCopy, DeviceError, Gpu, Prefetcher, StagingBuffer};
use crate::models::{DirectBuilder, ModelBatch, ModelError, ModelInputs, PinnedCopyError, TensorBuilder};

/// Tensors of a batch start at multiples of this, bytes, as libtorch's own tensors do.
const ALIGNMENT: usize = 512;

/// The part of a batch that loader threads copy into page-locked memory, from which a GPU copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinMemory {
    /// Nothing.
    Off,
    /// The batch without the graphs of its samples, which the model does not read.
    Batch(Gpu),
    /// The batch with the graphs of its samples.
    BatchAndGraphs(Gpu),
}

/// Content of the page-locked copy of a batch.
#[derive(Clone, Copy, Debug)]
struct PinnedContent {
    bytes: usize,
    with_graphs: bool,
}

/// A batch, and with [`PinMemory`] on a page-locked copy of its model's inputs.
pub struct StagedBatch<T> {
    /// The batch.
    pub batch: T,
    /// Grows to the largest batch, and is reused together with the batch's own buffers.
    buffer: Option<StagingBuffer>,
    /// The content of `buffer`; `None` where it is not used.
    content: Option<PinnedContent>,
    copy: Option<DeviceCopy>,
    /// Bytes copied to the device.
    copied_bytes: Cell<u64>,
}

impl<T> StagedBatch<T> {
    /// A batch without a copy.
    pub fn new(batch: T) -> Self {
        Self { batch, buffer: None, content: None, copy: None, copied_bytes: Cell::new(0) }
    }

    /// Start to copy the batch to the device, where it is page-locked and its copy was not started before.
    pub fn prefetch(&mut self, prefetcher: &Prefetcher) -> Result<(), DeviceError> {
        if let (Some(buffer), Some(PinnedContent { bytes, .. }), None) = (&self.buffer, self.content, &self.copy)
            && bytes > 0
        {
            self.copy = Some(prefetcher.copy(buffer, bytes)?);
            self.copied_bytes.set(bytes as u64);
        }
        Ok(())
    }

    /// Bytes that were copied to the device so far.
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes.get()
    }

    /// Free the copy on the device, which the step that used it has waited for; returns the nanoseconds that the copy took, `None` for a
    /// batch that was not page-locked. To call on the step's thread: a loader thread would free the copy one batch later, and CUDA would
    /// give it a context on GPU 0 where it never chose a device.
    pub fn free_copy(&mut self) -> Result<Option<u64>, DeviceError> {
        let ns = self.copy.as_ref().map(DeviceCopy::ns).transpose()?;
        self.copy = None;
        Ok(ns)
    }

    /// Bytes of page-locked memory that belong to the batch.
    fn pinned_bytes(&self) -> u64 {
        self.buffer.as_ref().map_or(0, StagingBuffer::allocated_bytes)
    }
}

impl<T: ModelBatch> StagedBatch<T> {
    /// Copy what the model reads into page-locked memory, as `pin_memory` says.
    pub fn pin(&mut self, pin_memory: PinMemory) -> Result<(), ModelError> {
        let (gpu, with_graphs) = match pin_memory {
            PinMemory::Off => return Ok(()),
            PinMemory::Batch(gpu) => (gpu, false),
            PinMemory::BatchAndGraphs(gpu) => (gpu, true),
        };
        let mut sizes = SizePass(CopyLayout::default());
        self.batch.inputs_from(&[], with_graphs, &mut sizes)?;
        let bytes = sizes.0.end;
        if self.buffer.as_ref().is_none_or(|buffer| buffer.capacity() < bytes) {
            // The old one is freed first: both together may not fit.
            self.buffer = None;
            self.buffer = Some(StagingBuffer::new(gpu, bytes)?);
        }
        if let Some(buffer) = &mut self.buffer {
            let mut copies = CopyPass { memory: buffer.bytes_mut(), layout: CopyLayout::default() };
            self.batch.inputs_from(&[], with_graphs, &mut copies)?;
        }
        self.content = Some(PinnedContent { bytes, with_graphs });
        Ok(())
    }

    /// The tensors of the batch as views of its copy on the device. Tensors have no names there: that they are the ones that were copied
    /// shows in their sizes.
    fn inputs_of_copy(
        &self,
        masks: &[Tensor],
        with_graphs: bool,
        copy: &DeviceCopy,
        content: PinnedContent,
    ) -> Result<ModelInputs<'_>, ModelError> {
        if with_graphs != content.with_graphs {
            return Err(PinnedCopyError::Graphs { copied: content.with_graphs }.into());
        }
        let mut views = ViewPass { memory: copy.tensor()?, layout: CopyLayout::default() };
        let inputs = self.batch.inputs_from(masks, with_graphs, &mut views)?;
        let (copied, read) = (content.bytes, views.layout.end);
        if copied != read {
            return Err(PinnedCopyError::Bytes { copied, read }.into());
        }
        Ok(inputs)
    }
}

impl<T: ModelBatch> ModelBatch for StagedBatch<T> {
    fn inputs_from(
        &self,
        masks: &[Tensor],
        with_graphs: bool,
        builder: &mut dyn TensorBuilder,
    ) -> Result<ModelInputs<'_>, ModelError> {
        self.batch.inputs_from(masks, with_graphs, builder)
    }

    fn inputs(&self, masks: &[Tensor], with_graphs: bool, device: Device) -> Result<ModelInputs<'_>, ModelError> {
        if let (Some(copy), Some(content)) = (&self.copy, self.content) {
            return self.inputs_of_copy(masks, with_graphs, copy, content);
        }
        let mut direct = DirectBuilder::new(device);
        let inputs = self.batch.inputs_from(masks, with_graphs, &mut direct)?;
        self.copied_bytes.set(self.copied_bytes.get() + direct.copied_bytes);
        Ok(inputs)
    }

    fn samples(&self) -> u64 {
        self.batch.samples()
    }
}

/// Byte ranges of the tensors of a batch in its copy: one behind another, each aligned; empty tensors take no place.
#[derive(Debug, Default)]
struct CopyLayout {
    /// End of the last tensor.
    end: usize,
}

impl CopyLayout {
    /// The range of the next tensor, of `bytes` bytes.
    fn next(&mut self, bytes: usize) -> Range<usize> {
        if bytes == 0 {
            return self.end..self.end;
        }
        let start = self.end.next_multiple_of(ALIGNMENT);
        self.end = start + bytes;
        start..self.end
    }
}

/// Sums up the bytes that the copy of a batch needs.
struct SizePass(CopyLayout);

impl TensorBuilder for SizePass {
    fn build(&mut self, bytes: &[u8], _: &[i64], _: Kind) -> Result<Tensor, TchError> {
        self.0.next(bytes.len());
        Ok(Tensor::new())
    }
}

/// Copies a batch into memory that is large enough for it.
struct CopyPass<'a> {
    memory: &'a mut [u8],
    layout: CopyLayout,
}

impl TensorBuilder for CopyPass<'_> {
    fn build(&mut self, bytes: &[u8], _: &[i64], _: Kind) -> Result<Tensor, TchError> {
        let range = self.layout.next(bytes.len());
        if let Some(target) = self.memory.get_mut(range) {
            target.copy_from_slice(bytes);
        }
        Ok(Tensor::new())
    }
}

/// Makes tensors that are views of a copy of the memory that [`CopyPass`] wrote.
struct ViewPass<'a> {
    memory: &'a Tensor,
    layout: CopyLayout,
}

impl TensorBuilder for ViewPass<'_> {
    fn build(&mut self, bytes: &[u8], shape: &[i64], kind: Kind) -> Result<Tensor, TchError> {
        let range = self.layout.next(bytes.len());
        if range.is_empty() {
            return Tensor::f_zeros(shape, (kind, self.memory.device()));
        }
        self.memory.f_narrow(0, range.start as i64, range.len() as i64)?.f_view_dtype(kind)?.f_view(shape)
    }
}

/// A builder whose threads also copy each batch into page-locked memory, as [`PinMemory`] says.
#[derive(Clone)]
pub struct PinningBuilder<B> {
    builder: B,
    pin_memory: PinMemory,
}

impl<B> PinningBuilder<B> {
    /// Wrap `builder`.
    pub fn new(builder: B, pin_memory: PinMemory) -> Self {
        Self { builder, pin_memory }
    }
}

impl<B: Batcher<Batch: ModelBatch>> Batcher for PinningBuilder<B> {
    type Dataset = B::Dataset;
    type Batch = StagedBatch<B::Batch>;
    type Error = B::Error;

    fn dataset(&self) -> Arc<B::Dataset> {
        self.builder.dataset()
    }

    fn empty(&self) -> Self::Batch {
        StagedBatch::new(self.builder.empty())
    }

    fn clock(&self) -> Instant {
        self.builder.clock()
    }

    /// With the page-locked memory, of which each batch has its own.
    fn bytes(batch: &Self::Batch) -> u64 {
        B::bytes(&batch.batch) + batch.pinned_bytes()
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
        let buffer = batch.buffer;
        let loaded = self.builder.build(reader, step, batch.batch)?;
        let Loaded { batch, step, epoch, thread, bytes_read, work_bytes, mut intervals, operations, exposed } = loaded;
        let mut batch = StagedBatch { buffer, ..StagedBatch::new(batch) };
        if self.pin_memory != PinMemory::Off {
            let start = self.now();
            let failed = |e: ModelError| LoaderError::Other(format!("cannot lock the memory of a batch: {e}").into());
            batch.pin(self.pin_memory).map_err(failed)?;
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

    /// Page-locked and copied, for a model that reads the graphs or not.
    fn staged<T: ModelBatch>(batch: T, with_graphs: bool) -> StagedBatch<T> {
        let mut staged = StagedBatch::new(batch);
        staged
            .pin(if with_graphs { PinMemory::BatchAndGraphs(Gpu::Host) } else { PinMemory::Batch(Gpu::Host) })
            .unwrap();
        staged.prefetch(&Prefetcher::new(Gpu::Host).unwrap()).unwrap();
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
        let there = staged(batch.clone(), true);
        assert_eq!(
            there.copied_bytes(),
            (8 * ALIGNMENT + 8) as u64,
            "nine parts that are not empty, the last of 8 bytes"
        );
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
        let there = staged(rows.clone(), false);
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
        let refusal = |staged: &StagedBatch<Batch>, with_graphs| {
            staged.inputs(&[], with_graphs, Device::Cpu).unwrap_err().to_string()
        };
        for pinned in [true, false] {
            let staged = staged(with_graphs(), pinned);
            assert!(staged.inputs(&[], pinned, Device::Cpu).is_ok());
            let message = refusal(&staged, !pinned);
            assert!(message.contains("graphs of its samples, and is read with"), "{message}");
        }
        // Changed behind the copy: its labels are fewer.
        let mut staged = staged(with_graphs(), true);
        staged.batch.common.labels.pop();
        let message = refusal(&staged, true);
        assert!(message.ends_with("it was made of 4104 bytes, and 4100 are read"), "{message}");
    }

    #[test]
    fn the_copy_on_the_device_is_timed_and_freed_behind_the_step() {
        let mut staged = staged(with_graphs(), true);
        // 4,104 bytes are locked as 8,192.
        assert_eq!((staged.copied_bytes(), staged.pinned_bytes()), (4104, 8192));
        assert!(staged.free_copy().unwrap().is_some_and(|ns| ns > 0) && staged.copy.is_none());
        assert_eq!((staged.free_copy().unwrap(), staged.copied_bytes()), (None, 4104));
    }

    #[test]
    fn a_batch_that_was_not_pinned_is_used_as_it_lies() {
        let rows =
            CellBatch { rows: vec![4], columns: 2, values: CellValues::Dense(vec![1.0, 2.0]), labels: Vec::new() };
        let staged = StagedBatch::new(rows);
        let ModelInputs::Rows(inputs) = staged.inputs(&[], false, Device::Cpu).unwrap() else { unreachable!() };
        assert_eq!((inputs.batch_size, staged.copied_bytes(), staged.samples()), (1, 0, 1));
    }
}
