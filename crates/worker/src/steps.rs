use std::time::Instant;

use expctl_datasets::{ledger_operations, ledger_times};
use expctl_dist::Range;
use expctl_record::{Journal, PerStage, Stage, StepRecord, is_measured, trace_rows};
use loader_core::{Batcher, Loaded, Loader, StageTimes};

use crate::activity::Phase;
use crate::checkpoints::Checkpoints;
use crate::device::{DeviceError, DeviceLaps, Feed, Gpu, LeakOnFailure, Pinning, Staged};
use crate::models::ModelBatch;
use crate::profile::StepProfiler;
use crate::session::Session;
use crate::source::StepMasks;
use crate::stop::Stop;
use crate::trainer::{ADVICE, Trainer, all_finite};
use crate::training::{TrainingRun, Verdict};

/// The steps of a rank, each recorded when it is done. Invariant: all time between the first and the last step is in one of
/// them, except what is spent at the end of an epoch, and on starting a profiler and writing what it recorded.
pub(crate) struct Steps<'a, B: Batcher<Batch: ModelBatch, Error: Into<Stop>>> {
    pub(crate) session: Session<'a>,
    /// None where steps change nothing that could be kept.
    pub(crate) checkpoints: Option<&'a Checkpoints<'a>>,
    pub(crate) loader: Loader<Pinning<B>>,
    /// Of the next step, on its way to the device already.
    pub(crate) upcoming: Option<Loaded<Staged<B::Batch>>>,
    /// None where batches are not sent ahead: the device is the host, or they are not page-locked.
    pub(crate) feed: Option<Feed>,
    /// None where the device is the host.
    pub(crate) gpu: Option<Gpu>,
    /// None where the loader makes all masks.
    pub(crate) masks: Option<StepMasks<B::Batch>>,
    /// None in data mode.
    pub(crate) model: Option<(&'a mut Trainer, TrainingRun)>,
    /// None where this rank records nothing.
    pub(crate) profiler: Option<StepProfiler<'a>>,
    pub(crate) journal: &'a mut Journal,
}

/// What a step cost so far.
#[derive(Default)]
struct Cost {
    busy: PerStage<u64>,
    exposed: PerStage<u64>,
    /// None where the device is the host.
    device: Option<PerStage<u64>>,
    /// Time for which the device copied the batch; none where it did not, or the host waited for the copy.
    copy_ns: Option<u64>,
}

impl Cost {
    /// A stage on the step's own thread is busy and exposed alike.
    fn both(&mut self, stage: Stage, from: Instant) {
        let ns = from.elapsed().as_nanos() as u64;
        self.busy[stage] += ns;
        self.exposed[stage] += ns;
    }

    /// What was done since `from`, and given to the device since the last of its `laps`, is of `stage`. What the device takes for it
    /// is exposed, and told when the step is over.
    fn lap(&mut self, stage: Stage, from: Instant, laps: Option<&mut DeviceLaps>) -> Result<(), DeviceError> {
        match laps {
            None => self.both(stage, from),
            Some(laps) => {
                laps.lap(stage)?;
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

impl<B: Batcher<Batch: ModelBatch, Error: Into<Stop>>> Steps<'_, B> {
    /// All steps from `first`, and the end of the loader.
    pub(crate) fn run(self, first: u64) -> Result<(), Stop> {
        let on_gpu = self.gpu.is_some();
        let mut steps = LeakOnFailure::new(self, on_gpu);
        let result = steps.run_to_the_end(first);
        steps.drop_after(&result);
        result
    }

    fn run_to_the_end(&mut self, first: u64) -> Result<(), Stop> {
        let end = self.all(first)?;
        if let Some(profiler) = &mut self.profiler {
            profiler.finish(end, &self.loader)?;
        }
        self.session.activity.enter(Phase::End);
        if let Some((trainer, _)) = self.model.as_ref().filter(|_| self.session.settings().keeps_state()) {
            // No loss comes after the last step to show what it made of the parameters.
            all_finite(&trainer.state())?;
        }
        Ok(())
    }

    /// Returns the step behind the last one.
    fn all(&mut self, first: u64) -> Result<u64, Stop> {
        let settings = self.session.settings();
        let steps = settings.measure.warmup + settings.measure.steps;
        let begin = Instant::now();
        if let Some(sampler) = self.session.sampler {
            sampler.loop_began(begin);
        }
        let now = || begin.elapsed().as_nanos() as u64;
        let mut previous_end = 0;
        if let Some(checkpoints) = self.checkpoints {
            checkpoints.begin(first);
        }
        for step in first..steps {
            if let Some(profiler) = &mut self.profiler
                && profiler.arrive(step, &self.loader)?
            {
                previous_end = now();
            }
            let range = self.profiler.as_mut().and_then(|profiler| profiler.step(step));
            let mut cost = Cost::default();
            self.arrive(step, &mut cost)?;
            self.session.activity.step(step);
            let start_ns = previous_end;
            let waiting = Range::open(trace_rows::LOAD);
            let mut loaded = LeakOnFailure::new(self.next(step)?, self.gpu.is_some());
            drop(waiting);
            if let Some(feed) = &self.feed {
                loaded.batch.send(feed)?;
            }
            if let Some(profiler) = &mut self.profiler {
                profiler.loaded(step, &loaded);
            }
            cost.add(&ledger_times(&loaded.busy()), &ledger_times(&loaded.exposed));
            let loss = self.use_batch(step, first, &loaded, &mut cost)?;
            let (samples, bytes_batch) = (loaded.batch.samples(), B::bytes(&loaded.batch.batch));
            let (epoch, bytes_read, bytes_to_device) = (loaded.epoch, loaded.bytes_read, loaded.batch.copied());
            let from = Instant::now();
            let other = Range::open(Stage::Other.name());
            let operations = loaded.operations.as_ref().map_or_else(Vec::new, ledger_operations);
            cost.copy_ns = loaded.batch.landed()?;
            // Frees the batch where the loader has no room for a spare one.
            self.loader.recycle(loaded.into_inner().batch);
            drop(other);
            cost.both(Stage::Other, from);
            let end = now();
            drop(range);
            if let (Some(profiler), Some((trainer, _))) = (&mut self.profiler, &self.model) {
                profiler.reduced(step, trainer.reducer());
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
            if let Some(value) = loss.filter(|l| !l.is_finite()) {
                return Err(Stop::Invalid(format!("the loss of step {step} is {value}. {ADVICE}")));
            }
            let Some((trainer, training)) = &mut self.model else { continue };
            training.stepped(loss.unwrap_or_default(), samples);
            if training.ends_epoch(step) {
                let verdict = training.end_epoch(step, trainer, &self.session)?;
                previous_end = now();
                if verdict == Verdict::Over {
                    return Ok(step + 1);
                }
            }
        }
        Ok(steps)
    }

    /// In front of `step`: end if that is asked for or a peer is gone, make a checkpoint if it is due.
    fn arrive(&mut self, step: u64, cost: &mut Cost) -> Result<(), Stop> {
        let monitor = self.session.monitor;
        let mut stop = self.session.stopped();
        if let Some(loss) = monitor.loss().filter(|_| !stop) {
            return Err(Stop::PeerLost(loss));
        }
        if let (Some(checkpoints), Some((trainer, training))) = (self.checkpoints, &mut self.model) {
            let from = Instant::now();
            let range = Range::open(Stage::Other.name());
            let made = checkpoints.arrive(step, trainer, training, &self.session, self.journal)?;
            drop(range);
            // A stop waits for the checkpoint, but not for one that cannot come any more.
            stop &= made || !checkpoints.keep_on_stop() || monitor.loss().is_some();
            if made {
                cost.both(Stage::Other, from);
            }
        }
        if stop { Err(Stop::Interrupted) } else { Ok(()) }
    }

    /// The batch of `step`.
    fn next(&mut self, step: u64) -> Result<Loaded<Staged<B::Batch>>, Stop> {
        match self.upcoming.take() {
            Some(loaded) => Ok(loaded),
            None => {
                let next =
                    self.loader.next_batch().ok_or_else(|| Stop::Invalid(format!("no batch for step {step}")))?;
                next.map_err(Into::into)
            }
        }
    }

    /// While the device works: the next batch, if it is there, sets out for it. It waited for nobody.
    fn send_next(
        loader: &mut Loader<Pinning<B>>,
        upcoming: &mut Option<Loaded<Staged<B::Batch>>>,
        feed: Option<&Feed>,
    ) -> Result<(), Stop> {
        let Some(feed) = feed.filter(|_| loader.is_ready()) else { return Ok(()) };
        if let Some(next) = loader.next_batch() {
            let next = Loaded { exposed: StageTimes::default(), ..next.map_err(Into::into)? };
            let mut next = LeakOnFailure::new(next, true);
            next.batch.send(feed)?;
            *upcoming = Some(next.into_inner());
        }
        Ok(())
    }

    /// Masks and model; returns the loss.
    fn use_batch(
        &mut self,
        step: u64,
        first: u64,
        loaded: &Loaded<Staged<B::Batch>>,
        cost: &mut Cost,
    ) -> Result<Option<f64>, Stop> {
        let Session { activity, group, .. } = self.session;
        // They stay until the step is over, as a model that reads them would need it.
        let mut made = Vec::new();
        let mut laps = None;
        if let Some(masks) = &self.masks {
            activity.phase(Phase::Mask);
            let from = Instant::now();
            let range = Range::open(Stage::Mask.name());
            laps = self.gpu.map(DeviceLaps::start).transpose()?;
            made = masks(&loaded.batch.batch)?;
            drop(range);
            cost.lap(Stage::Mask, from, laps.as_mut())?;
        }
        let mut loss = None;
        if let Some((trainer, _)) = &mut self.model {
            let epoch = loaded.epoch;
            if laps.is_none() {
                laps = trainer.laps()?;
            }
            if step == first {
                let from = Instant::now();
                let range = Range::open(Stage::Other.name());
                activity.phase(Phase::Forward);
                trainer.try_forward(&loaded.batch, &made)?;
                if first > 0 {
                    trainer.settle(&loaded.batch, &made, epoch, group, activity)?;
                }
                drop(range);
                cost.lap(Stage::Other, from, laps.as_mut())?;
            }
            let handed = trainer.hand_over(&loaded.batch, &made, epoch, group, activity, laps.take())?;
            Self::send_next(&mut self.loader, &mut self.upcoming, self.feed.as_ref())?;
            let result = trainer.finish(handed, activity)?;
            cost.add(&result.busy, &result.exposed);
            (cost.device, loss) = (result.device, result.loss);
        }
        if let Some(laps) = laps {
            // Without a model nobody else waits for the masks.
            laps.wait()?;
            let times = laps.times()?;
            cost.add(&PerStage::default(), &times);
            cost.device = Some(times);
        }
        activity.phase(Phase::Record);
        if !made.is_empty() {
            let from = Instant::now();
            let range = Range::open(Stage::Mask.name());
            drop(made);
            drop(range);
            // To give their memory back is part of what they cost.
            cost.both(Stage::Mask, from);
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
        let mut laps = DeviceLaps::start(Gpu::Host).unwrap();
        let mut cost = Cost::default();
        std::thread::sleep(std::time::Duration::from_millis(1));
        cost.lap(Stage::Other, from, Some(&mut laps)).unwrap();
        let busy = cost.busy[Stage::Other];
        assert!(busy >= 1_000_000 && cost.exposed[Stage::Other] == 0);
        cost.add(&PerStage::default(), &laps.times().unwrap());
        assert!((1..=busy).contains(&cost.exposed[Stage::Other]) && cost.busy[Stage::Other] == busy);
        let mut cost = Cost::default();
        cost.lap(Stage::Other, from, None).unwrap();
        assert!(cost.busy[Stage::Other] > 0 && cost.exposed[Stage::Other] == cost.busy[Stage::Other]);
    }
}
