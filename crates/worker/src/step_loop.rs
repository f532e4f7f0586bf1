//! The steps of a rank, each recorded when it is done.

use std::time::Instant;

use expctl_datasets::{ledger_operations, ledger_times};
use expctl_ledger::{Journal, PerStage, Stage, StepRecord, is_measured, trace_rows};
use loader_core::{Batcher, Loaded, Loader, StageTimes};
use torch_dist::ProfilerRange;

use crate::activity::Phase;
use crate::checkpoint::Checkpointer;
use crate::device::{DeviceError, DeviceTimer, Gpu, LeakOnFailure, PinningBuilder, Prefetcher, StagedBatch};
use crate::emulation::EmulatedAccelerator;
use crate::error::RankError;
use crate::models::{ModelBatch, StepContext};
use crate::profile::StepProfiler;
use crate::session::Session;
use crate::source::StepMasks;
use crate::state::all_finite;
use crate::trainer::Trainer;
use crate::training_run::{EpochOutcome, TrainingRun};

/// The steps of a rank. Invariant: all time between the first and the last step is in one of them, except the end of an epoch, the start
/// of a profiler and the writing of its trace.
pub struct StepLoop<'a, B: Batcher<Batch: ModelBatch, Error: Into<RankError>>> {
    pub session: Session<'a>,
    /// `None` where steps change no state.
    pub checkpointer: Option<&'a Checkpointer>,
    pub loader: Loader<PinningBuilder<B>>,
    /// The batch of the next step, whose copy to the device has been started.
    pub prefetched: Option<Loaded<StagedBatch<B::Batch>>>,
    /// `None` where batches are not copied ahead: the device is the host, or they are not page-locked.
    pub prefetcher: Option<Prefetcher>,
    /// `None` where the device is the host.
    pub gpu: Option<Gpu>,
    /// `None` where the loader makes all masks.
    pub masks: Option<StepMasks<B::Batch>>,
    pub work: StepWork<'a>,
    /// `None` where this rank records no profile.
    pub profiler: Option<StepProfiler<'a>>,
    pub journal: &'a mut Journal,
}

/// What a step does with its batch.
pub enum StepWork<'a> {
    /// Nothing.
    Load,
    /// Waits, as it would for an accelerator.
    Emulate(EmulatedAccelerator),
    /// Computes a model.
    Compute(&'a mut Trainer, Box<TrainingRun>),
}

impl StepWork<'_> {
    /// The model's side of the step; `None` where no model is computed.
    fn model(&mut self) -> Option<(&mut Trainer, &mut TrainingRun)> {
        match self {
            Self::Compute(trainer, training) => Some((trainer, training)),
            Self::Load | Self::Emulate(_) => None,
        }
    }
}

/// Times of a step so far, ns.
#[derive(Default)]
struct StepCost {
    busy: PerStage<u64>,
    exposed: PerStage<u64>,
    /// `None` where the device is the host.
    device: Option<PerStage<u64>>,
    /// Time for which the device copied the batch; `None` where it did not, or the host waited for the copy.
    copy_ns: Option<u64>,
}

impl StepCost {
    /// Add the time since `from` of a stage on the step's own thread: busy and exposed alike.
    fn add_host_time(&mut self, stage: Stage, from: Instant) {
        let ns = from.elapsed().as_nanos() as u64;
        self.busy[stage] += ns;
        self.exposed[stage] += ns;
    }

    /// End a stage: the time since `from`, and the work launched on the device since the timer's last end, belong to `stage`. The time of
    /// the device is exposed, and added when the step is over.
    fn end_stage(&mut self, stage: Stage, from: Instant, timer: Option<&mut DeviceTimer>) -> Result<(), DeviceError> {
        match timer {
            None => self.add_host_time(stage, from),
            Some(timer) => {
                timer.end_stage(stage)?;
                self.busy[stage] += from.elapsed().as_nanos() as u64;
            }
        }
        Ok(())
    }

    fn add(&mut self, busy: &PerStage<u64>, exposed: &PerStage<u64>) {
        for (stage, ns) in busy.iter() {
            self.busy[stage] += ns;
            self.exposed[stage] += exposed[stage];
        }
    }
}

impl<B: Batcher<Batch: ModelBatch, Error: Into<RankError>>> StepLoop<'_, B> {
    /// All steps from `first`, and the end of the loader.
    ///
    /// # Errors
    /// A batch cannot be loaded or stepped on, a peer is gone, or the rank was asked to stop.
    pub fn run(self, first: u64) -> Result<(), RankError> {
        let on_gpu = self.gpu.is_some();
        let mut steps = LeakOnFailure::new(self, on_gpu);
        let result = steps.run_and_finish(first);
        steps.drop_after(&result);
        result
    }

    fn run_and_finish(&mut self, first: u64) -> Result<(), RankError> {
        let end = self.run_steps(first)?;
        if let Some(profiler) = &mut self.profiler {
            profiler.finish(end, &self.loader)?;
        }
        self.session.activity.enter(Phase::End);
        let keeps_state = self.session.settings().keeps_state();
        if let Some((trainer, _)) = self.work.model().filter(|_| keeps_state) {
            // No later loss shows whether the last update left finite parameters.
            all_finite(&trainer.state())?;
        }
        Ok(())
    }

    /// Returns the step behind the last one.
    fn run_steps(&mut self, first: u64) -> Result<u64, RankError> {
        let settings = self.session.settings();
        let steps = settings.measure.warmup + settings.measure.steps;
        let begin = Instant::now();
        if let Some(metrics) = self.session.metrics {
            metrics.loop_began(begin);
        }
        let now = || begin.elapsed().as_nanos() as u64;
        let mut previous_end = 0;
        if let Some(checkpointer) = self.checkpointer {
            checkpointer.begin(first);
        }
        for step in first..steps {
            if let Some(profiler) = &mut self.profiler
                && profiler.before_step(step, &self.loader)?
            {
                previous_end = now();
            }
            let range = self.profiler.as_mut().and_then(|profiler| profiler.open_step(step));
            let mut cost = StepCost::default();
            self.stop_or_checkpoint(step, &mut cost)?;
            self.session.activity.begin_step(step);
            let start_ns = previous_end;
            let load_range = ProfilerRange::open(trace_rows::LOAD);
            let mut loaded = LeakOnFailure::new(self.next_batch(step)?, self.gpu.is_some());
            drop(load_range);
            if let Some(prefetcher) = &self.prefetcher {
                loaded.batch.prefetch(prefetcher)?;
            }
            if let Some(profiler) = &mut self.profiler {
                profiler.record_batch(step, &loaded);
            }
            cost.add(&ledger_times(&loaded.busy()), &ledger_times(&loaded.exposed));
            let loss = self.compute(step, first, &loaded, &mut cost)?;
            let (samples, bytes_batch) = (loaded.batch.samples(), B::bytes(&loaded.batch.batch));
            let (epoch, bytes_read, bytes_to_device) = (loaded.epoch, loaded.bytes_read, loaded.batch.copied_bytes());
            let from = Instant::now();
            let other_range = ProfilerRange::open(Stage::Other.name());
            let operations = loaded.operations.as_ref().map_or_else(Vec::new, ledger_operations);
            cost.copy_ns = loaded.batch.free_copy()?;
            // Frees the batch where the loader has no room for a spare one.
            self.loader.recycle(loaded.into_inner().batch);
            drop(other_range);
            cost.add_host_time(Stage::Other, from);
            let end = now();
            drop(range);
            if let (Some(profiler), Some((trainer, _))) = (&mut self.profiler, self.work.model()) {
                profiler.record_buckets(step, trainer.reducer());
            }
            previous_end = end;
            self.journal.append(&StepRecord {
                step,
                epoch,
                measured: is_measured(step, first, settings.measure.warmup),
                start_ns,
                wall_ns: end - start_ns,
                samples,
                bytes_read,
                bytes_batch,
                bytes_to_device,
                loss: loss.filter(|l| l.is_finite()),
                busy: cost.busy,
                exposed: cost.exposed,
                device: cost.device,
                copy_ns: cost.copy_ns,
                operations,
            })?;
            self.session.last_words.step_done();
            if let Some(loss) = loss.filter(|l| !l.is_finite()) {
                return Err(RankError::LossNotFinite { step, loss });
            }
            let Some((trainer, training)) = self.work.model() else { continue };
            training.record_loss(loss.unwrap_or_default(), samples);
            if training.ends_epoch(step) {
                let outcome = training.end_epoch(step, trainer, &self.session)?;
                previous_end = now();
                if outcome == EpochOutcome::Stop {
                    return Ok(step + 1);
                }
            }
        }
        Ok(steps)
    }

    /// Write a checkpoint in front of `step` if one is due; fail if the rank was asked to stop or a peer is gone.
    fn stop_or_checkpoint(&mut self, step: u64, cost: &mut StepCost) -> Result<(), RankError> {
        let monitor = self.session.monitor;
        let mut stop = self.session.is_stopped();
        if let Some(lost) = monitor.lost_rank().filter(|_| !stop) {
            return Err(RankError::PeerLost(lost));
        }
        if let (Some(checkpointer), Some((trainer, training))) = (self.checkpointer, self.work.model()) {
            let from = Instant::now();
            let range = ProfilerRange::open(Stage::Other.name());
            let written = checkpointer.write_if_due(step, trainer, training, &self.session, self.journal)?;
            drop(range);
            // A stop waits for the checkpoint, but not for one that cannot come any more.
            stop &= written || !checkpointer.on_stop || monitor.lost_rank().is_some();
            if written {
                cost.add_host_time(Stage::Other, from);
            }
        }
        if stop { Err(RankError::Interrupted) } else { Ok(()) }
    }

    /// The batch of `step`.
    fn next_batch(&mut self, step: u64) -> Result<Loaded<StagedBatch<B::Batch>>, RankError> {
        match self.prefetched.take() {
            Some(loaded) => Ok(loaded),
            None => self.loader.next_batch().ok_or(RankError::NoBatch(step))?.map_err(Into::into),
        }
    }

    /// While the device works: start to copy the next batch, if the loader has it. The step waited for nothing.
    fn prefetch_next(
        loader: &mut Loader<PinningBuilder<B>>,
        prefetched: &mut Option<Loaded<StagedBatch<B::Batch>>>,
        prefetcher: Option<&Prefetcher>,
    ) -> Result<(), RankError> {
        let Some(prefetcher) = prefetcher.filter(|_| loader.is_ready()) else { return Ok(()) };
        if let Some(next) = loader.next_batch() {
            let next = Loaded { exposed: StageTimes::default(), ..next.map_err(Into::into)? };
            let mut next = LeakOnFailure::new(next, true);
            next.batch.prefetch(prefetcher)?;
            *prefetched = Some(next.into_inner());
        }
        Ok(())
    }

    /// Make the masks, and step on a batch; returns the loss, if a model has one.
    fn compute(
        &mut self,
        step: u64,
        first: u64,
        loaded: &Loaded<StagedBatch<B::Batch>>,
        cost: &mut StepCost,
    ) -> Result<Option<f64>, RankError> {
        let Session { activity, group, .. } = self.session;
        // The masks stay until the step is over, as a model that reads them would need it.
        let mut masks = Vec::new();
        let mut timer = None;
        if let Some(make_masks) = &self.masks {
            activity.set_phase(Phase::Mask);
            let from = Instant::now();
            let range = ProfilerRange::open(Stage::Mask.name());
            timer = self.gpu.map(DeviceTimer::start).transpose()?;
            masks = make_masks(&loaded.batch.batch)?;
            drop(range);
            cost.end_stage(Stage::Mask, from, timer.as_mut())?;
        }
        let mut loss = None;
        let context = StepContext { batch: &loaded.batch, masks: &masks, epoch: loaded.epoch, group, activity };
        if let StepWork::Emulate(accelerator) = &mut self.work {
            if timer.is_none() {
                timer = self.gpu.map(DeviceTimer::start).transpose()?;
            }
            let started = accelerator.start(step, &context, timer.take())?;
            Self::prefetch_next(&mut self.loader, &mut self.prefetched, self.prefetcher.as_ref())?;
            let result = accelerator.finish(started, &context)?;
            cost.add(&result.busy, &result.exposed);
            cost.device = result.device;
        }
        if let Some((trainer, _)) = self.work.model() {
            if timer.is_none() {
                timer = trainer.start_device_timer()?;
            }
            if step == first {
                let from = Instant::now();
                let range = ProfilerRange::open(Stage::Other.name());
                activity.set_phase(Phase::Forward);
                trainer.check_forward(&loaded.batch, &masks)?;
                if first > 0 {
                    trainer.order_buckets(&context)?;
                }
                drop(range);
                cost.end_stage(Stage::Other, from, timer.as_mut())?;
            }
            let launched = trainer.launch(&context, timer.take())?;
            Self::prefetch_next(&mut self.loader, &mut self.prefetched, self.prefetcher.as_ref())?;
            let result = trainer.finish(launched, activity)?;
            cost.add(&result.busy, &result.exposed);
            (cost.device, loss) = (result.device, result.loss);
        }
        if let Some(timer) = timer {
            // Without a model nothing else waits for the masks.
            timer.synchronize()?;
            let times = timer.times()?;
            cost.add(&PerStage::default(), &times);
            cost.device = Some(times);
        }
        activity.set_phase(Phase::Record);
        if !masks.is_empty() {
            let from = Instant::now();
            let range = ProfilerRange::open(Stage::Mask.name());
            drop(masks);
            drop(range);
            // Freeing their memory is part of what masks cost.
            cost.add_host_time(Stage::Mask, from);
        }
        Ok(loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_does_is_exposed_by_its_own_clock_alone() {
        let from = Instant::now();
        let mut timer = DeviceTimer::start(Gpu::Host).unwrap();
        let mut cost = StepCost::default();
        std::thread::sleep(std::time::Duration::from_millis(1));
        cost.end_stage(Stage::Other, from, Some(&mut timer)).unwrap();
        let busy = cost.busy[Stage::Other];
        assert!(busy >= 1_000_000 && cost.exposed[Stage::Other] == 0);
        cost.add(&PerStage::default(), &timer.times().unwrap());
        assert!((1..=busy).contains(&cost.exposed[Stage::Other]) && cost.busy[Stage::Other] == busy);
        let mut cost = StepCost::default();
        cost.end_stage(Stage::Other, from, None).unwrap();
        assert!(cost.busy[Stage::Other] > 0 && cost.exposed[Stage::Other] == cost.busy[Stage::Other]);
    }
}
