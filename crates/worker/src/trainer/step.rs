//! One step: forward, backward, clipping, parameter update. On a GPU its work is launched first, and its results are read at the end.

use std::time::Instant;

use expctl_ledger::{PerStage, Stage};
use expctl_settings::{Mode, Precision, Train};
use tch::{Device, Kind, Tensor, no_grad};
use torch_dist::{AllreduceTimes, Autocast, ProfilerRange, Reducer};

use crate::activity::{Activity, Phase};
use crate::device::{DeviceError, DeviceTimer};
use crate::models::{ModelInputs, ModelOutput, StepContext, named_parameters, named_variables};
use crate::optimizer::ClippedGradient;
use crate::trainer::{TrainError, Trainer};

/// Loss and times of a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepResult {
    /// Loss of this rank's batch.
    pub loss: Option<f64>,
    /// Norm of the gradient before it was clipped; `None` where it was not.
    pub gradient_norm: Option<f64>,
    /// Time worked on each stage by the host, ns. On a device that is the time in which work was launched, but for the all-reduce, which is
    /// the device's.
    pub busy: PerStage<u64>,
    /// Time that the step spent on each stage, ns: on a device by its clock.
    pub exposed: PerStage<u64>,
    /// Time of the device's stream in each stage, and of its all-reduces, ns; `None` where the device is the host.
    pub device: Option<PerStage<u64>>,
}

impl StepResult {
    /// Add time of a stage on the step's own thread: busy, and where the device is the host exposed alike.
    fn add(&mut self, stage: Stage, ns: u64, exposed: bool) {
        self.busy[stage] += ns;
        if exposed {
            self.exposed[stage] += ns;
        }
    }
}

/// A step whose work has been launched; on the host it is done.
#[derive(Debug)]
pub struct LaunchedStep {
    result: StepResult,
    /// `None` on the host.
    on_device: Option<DeviceStep>,
}

/// The results of a step that only the device knows yet.
#[derive(Debug)]
struct DeviceStep {
    loss: Tensor,
    clipped: Option<ClippedGradient>,
    timer: DeviceTimer,
}

impl Trainer {
    /// One step on the batch of `context`. Where gradients of several batches are accumulated, only the last of them is reduced, clipped and
    /// applied.
    ///
    /// A loss that is not finite is returned as it is: the gradient is then neither clipped nor applied where clipping would tell.
    ///
    /// # Errors
    /// [`TrainError::Gradient`] where the gradient to be clipped is not finite, though this rank's loss is; the model or libtorch fails; a
    /// peer is gone.
    pub fn step(&mut self, context: &StepContext<'_>) -> Result<StepResult, TrainError> {
        let timer = self.start_device_timer()?;
        let launched = self.launch(context, timer)?;
        self.finish(launched, context.activity)
    }

    /// Start the device's timer for the next step; `None` where the device is the host.
    pub(crate) fn start_device_timer(&self) -> Result<Option<DeviceTimer>, TrainError> {
        Ok(self.gpu.map(DeviceTimer::start).transpose()?)
    }

    /// The first half of [`Trainer::step`]: launch all of its work, which `timer` times on the device. The host waits for the device here
    /// where SGD clips, where the loss is `mse_sinkhorn`, which computes with predictions on the host, and for each tensor of a batch that
    /// is not page-locked.
    pub(crate) fn launch(
        &mut self,
        context: &StepContext<'_>,
        timer: Option<DeviceTimer>,
    ) -> Result<LaunchedStep, TrainError> {
        let StepContext { batch, masks, epoch, activity, .. } = *context;
        self.peer_state.clear();
        self.begin_epoch(epoch);
        let group_position = self.accumulation.position(self.step);
        let mut result = StepResult::default();
        activity.set_phase(Phase::Transfer);
        let mut timer = StageTimer::start(Stage::Transfer, timer);
        let inputs = batch.inputs(masks, self.reads_graphs, self.device)?;
        timer.end_stage(&mut result)?;

        activity.set_phase(Phase::Forward);
        timer.begin_stage(Stage::Forward);
        let backward = self.mode != Mode::Forward;
        if let Some(reducer) = self.reducer.as_mut().filter(|_| backward && group_position.is_last) {
            // The ranks synchronise here once, to put the buckets into order.
            activity.set_phase(Phase::Gather);
            reducer.prepare_forward()?;
            activity.set_phase(Phase::Forward);
        }
        let loss = self.loss(&inputs, context)?;
        if self.gpu.is_none() {
            result.loss = Some(scalar(&loss)?);
        }
        timer.end_stage(&mut result)?;
        let mut clipped = None;
        if backward {
            activity.set_phase(Phase::Backward);
            timer.begin_stage(Stage::Backward);
            let batches = group_position.batches;
            let share = if batches == 1 { None } else { Some(loss.f_div_scalar(batches as f64)?) };
            self.backward(share.as_ref().unwrap_or(&loss), group_position.is_last)?;
            activity.set_phase(Phase::Optimizer);
            let whole = timer.end_stage(&mut result)?;
            if self.gpu.is_none() {
                self.split_backward(&mut result, whole)?;
            }
            if group_position.is_last {
                clipped = self.clip_and_update(&loss, &mut result, &mut timer, activity)?;
            }
        }
        self.step += 1;
        let on_device = timer.into_device_timer().map(|timer| DeviceStep { loss: loss.detach(), clipped, timer });
        Ok(LaunchedStep { result, on_device })
    }

    /// The second half of [`Trainer::step`]: wait for the device, and read its results.
    pub(crate) fn finish(&mut self, launched: LaunchedStep, activity: &Activity) -> Result<StepResult, TrainError> {
        let LaunchedStep { mut result, on_device } = launched;
        let Some(DeviceStep { loss, clipped, timer }) = on_device else { return Ok(result) };
        activity.set_phase(Phase::Device);
        let mut scalars = vec![loss.f_to_kind(Kind::Double)?];
        if let Some(ClippedGradient { norm, .. }) = &clipped {
            scalars.push(norm.f_to_kind(Kind::Double)?);
        }
        // One copy of both, behind the last event of the timer.
        let scalars = Tensor::f_stack(&scalars, 0)?.f_to_device(Device::Cpu)?;
        result.loss = Some(scalars.f_double_value(&[0])?);
        let times = timer.times()?;
        for (stage, ns) in times.iter() {
            result.exposed[stage] += ns;
        }
        let allreduce = self.split_backward(&mut result, times[Stage::Backward])?;
        let mut device = times;
        device[Stage::Allreduce] = allreduce.busy_ns;
        device[Stage::Backward] = result.exposed[Stage::Backward];
        result.device = Some(device);
        if clipped.is_some() {
            let norm = scalars.f_double_value(&[1])?;
            result.gradient_norm = Some(norm);
            if !norm.is_finite() && result.loss.is_some_and(f64::is_finite) {
                return Err(TrainError::Gradient { step: self.step - 1, norm });
            }
        }
        Ok(result)
    }

    /// Split a backward pass of `whole` ns: its end, where only communication is left, is the exposed part of the all-reduce.
    fn split_backward(&mut self, result: &mut StepResult, whole: u64) -> Result<AllreduceTimes, TrainError> {
        let taken = self.reducer.as_mut().map(Reducer::take_allreduce_times).transpose();
        let allreduce = taken.map_err(DeviceError::from)?.unwrap_or_default();
        let exposed = allreduce.exposed_ns.min(whole);
        result.exposed[Stage::Backward] -= exposed;
        result.exposed[Stage::Allreduce] += exposed;
        if self.gpu.is_none() {
            result.busy[Stage::Backward] -= exposed;
        }
        result.busy[Stage::Allreduce] = allreduce.busy_ns;
        Ok(allreduce)
    }

    /// The backward pass; with `reduce`, gradients are the mean over the ranks when it is over.
    fn backward(&mut self, loss: &Tensor, reduce: bool) -> Result<(), TrainError> {
        match self.reducer.as_mut().filter(|_| reduce) {
            Some(reducer) => {
                reducer.prepare_backward(&[loss])?;
                Ok(reducer.backward(loss)?)
            }
            // A reducer expects no gradients where it was not prepared, and lets those that come add up.
            None => Ok(loss.f_backward().map_err(|e| DeviceError::from_tch("backward pass", &e))?),
        }
    }

    /// Clip the gradient and update the parameters by it, where the mode does. Returns the norm of a gradient that was clipped on a device,
    /// for [`Trainer::finish`] to read.
    fn clip_and_update(
        &mut self,
        loss: &Tensor,
        result: &mut StepResult,
        timer: &mut StageTimer,
        activity: &Activity,
    ) -> Result<Option<ClippedGradient>, TrainError> {
        let updates = self.mode.steps_parameters();
        let (mut is_finite, mut clipped) = (true, None);
        if updates && self.clip_norm > 0.0 {
            timer.begin_stage(Stage::Clip);
            if self.gpu.is_some() {
                clipped = self.optimizer.clip_grad_norm_async(self.clip_norm)?;
            }
            if clipped.is_none() {
                if self.gpu.is_some() {
                    // The host waits, for gradients that the other ranks have a part in.
                    activity.set_phase(Phase::Device);
                }
                let norm = self.optimizer.clip_grad_norm(self.clip_norm)?;
                result.gradient_norm = Some(norm);
                is_finite = norm.is_finite();
                activity.set_phase(Phase::Optimizer);
            }
            timer.end_stage(result)?;
        }
        timer.begin_stage(if updates { Stage::Optimizer } else { Stage::Other });
        if updates && is_finite {
            self.optimizer.step(clipped.as_ref().map(|clipped| &clipped.overflow))?;
        }
        self.optimizer.zero_grad();
        timer.end_stage(result)?;
        if let Some(norm) = result.gradient_norm.filter(|_| !is_finite) {
            // On a device the loss has not been read yet; the host has just waited for the norm, and waits no longer for this.
            let loss = result.loss.map_or_else(|| scalar(loss), Ok)?;
            // A loss that is not finite says more than the gradient; the caller that records the step reports it.
            if loss.is_finite() {
                return Err(TrainError::Gradient { step: self.step, norm });
            }
        }
        Ok(clipped)
    }

    /// The output of the network for a batch; the prediction is float32 whatever it was computed in.
    pub(super) fn forward(&self, inputs: &ModelInputs<'_>, reconstruct: bool) -> Result<ModelOutput, TrainError> {
        let _region = (self.precision == Precision::Bf16Mixed).then(|| Autocast::bf16(self.device));
        let ModelOutput { prediction, reconstruction } = self.network.forward(inputs, reconstruct)?;
        Ok(ModelOutput { prediction: prediction.f_to_kind(Kind::Float)?, reconstruction })
    }

    fn loss(&mut self, inputs: &ModelInputs<'_>, context: &StepContext<'_>) -> Result<Tensor, TrainError> {
        if self.mode == Mode::ZeroLoss {
            return self.zero_loss();
        }
        let output = self.forward(inputs, self.objective.reconstructs())?;
        let labels = self.labels.scaled(inputs.labels()?)?;
        Ok(self.objective.loss(&output, &labels, context)?)
    }

    /// 0, as a function of every parameter.
    fn zero_loss(&self) -> Result<Tensor, TrainError> {
        let mut loss = Tensor::f_zeros([], (Kind::Float, self.device))?;
        for (_, parameter) in named_parameters(&self.vs) {
            loss += parameter.f_sum(Kind::Float)? * 0.0;
        }
        Ok(loss)
    }

    /// A backward pass that changes no parameter, to call once before the first step after a checkpoint. The reducer puts its buckets into
    /// the order in which the first backward pass made the gradients, and with more than two ranks the order decides in which sequence they
    /// are added up: all steps behind the checkpoint had that order when it was written. A single rank has no reducer, and nothing to do.
    ///
    /// # Errors
    /// As with [`Trainer::step`].
    pub fn order_buckets(&mut self, context: &StepContext<'_>) -> Result<(), TrainError> {
        let StepContext { batch, masks, activity, .. } = *context;
        let Some(reducer) = &mut self.reducer else { return Ok(()) };
        activity.set_phase(Phase::Gather);
        reducer.prepare_forward()?;
        activity.set_phase(Phase::Forward);
        // The batch comes again, as a step: neither the replay buffer nor a buffer of the model must see it twice.
        let replay_buffer = self.objective.replay_buffer().cloned();
        let model_buffers: Vec<(Tensor, Tensor)> = named_variables(&self.vs)
            .into_iter()
            .filter(|(_, tensor)| !tensor.requires_grad())
            .map(|(_, tensor)| (tensor.copy(), tensor))
            .collect();
        let inputs = batch.inputs(masks, self.reads_graphs, self.device)?;
        let loss = self.loss(&inputs, context)?;
        activity.set_phase(Phase::Backward);
        self.backward(&loss, true)?;
        self.optimizer.zero_grad();
        for (before, mut buffer) in model_buffers {
            no_grad(|| buffer.f_copy_(&before))?;
        }
        if let (Some(before), Some(buffer)) = (replay_buffer, self.objective.replay_buffer_mut()) {
            *buffer = before;
        }
        Ok(())
    }
}

/// The value of a scalar tensor.
fn scalar(tensor: &Tensor) -> Result<f64, TrainError> {
    Ok(tensor.f_to_kind(Kind::Double)?.f_double_value(&[])?)
}

/// A stopwatch of adjacent stages: each is a range of the profiler that may be running, and is timed on the device's stream where there is
/// one.
struct StageTimer {
    since: Instant,
    stage: Stage,
    range: Option<ProfilerRange>,
    device_timer: Option<DeviceTimer>,
}

impl StageTimer {
    /// The first stage begins.
    fn start(stage: Stage, device_timer: Option<DeviceTimer>) -> Self {
        Self { since: Instant::now(), stage, range: Some(ProfilerRange::open(stage.name())), device_timer }
    }

    /// Name the stage that has begun.
    fn begin_stage(&mut self, stage: Stage) {
        // One range ends before the next begins: ranges nest.
        self.range = None;
        self.range = Some(ProfilerRange::open(stage.name()));
        self.stage = stage;
    }

    /// Add the time since the start or the last end to its stage in `result`: busy, and where the device is the host exposed. Returns the
    /// nanoseconds; the next stage begins.
    fn end_stage(&mut self, result: &mut StepResult) -> Result<u64, TrainError> {
        self.range = None;
        if let Some(timer) = &mut self.device_timer {
            timer.end_stage(self.stage)?;
        }
        let now = Instant::now();
        let ns = now.duration_since(self.since).as_nanos() as u64;
        self.since = now;
        result.add(self.stage, ns, self.device_timer.is_none());
        Ok(ns)
    }

    /// The timer of the device; `None` where it is the host.
    fn into_device_timer(self) -> Option<DeviceTimer> {
        self.device_timer
    }
}

/// Groups of batches whose gradients are accumulated into one step of the optimizer.
///
/// Groups start at the first batch of an epoch, and an epoch's end closes the last group, which may then be smaller: its gradients are
/// averaged over the batches that it has. Invariant: groups are a function of the settings and the step, so that every rank knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GradientAccumulation {
    /// Epoch, and batches of a group from that epoch on; ascending.
    pairs: Vec<(u64, u64)>,
    /// Batches of an epoch on each rank; the maximum where that is unknown.
    epoch_batches: u64,
    /// Epoch of step 0.
    first_epoch: u64,
}

/// Position of a batch in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPosition {
    /// Batches of the group.
    pub batches: u64,
    /// The batch is the last one of the group.
    pub is_last: bool,
}

impl GradientAccumulation {
    /// The groups of the settings `train`, without an end of epochs until [`Self::set_epochs`].
    pub fn new(train: &Train) -> Self {
        let pairs = Train::accumulation_pairs(&train.accumulation).unwrap_or_default();
        Self { pairs, epoch_batches: u64::MAX, first_epoch: 0 }
    }

    /// Step 0 is the first batch of `first_epoch`, and each epoch has `epoch_batches`.
    pub fn set_epochs(&mut self, first_epoch: u64, epoch_batches: u64) {
        (self.first_epoch, self.epoch_batches) = (first_epoch, epoch_batches.max(1));
    }

    fn batches_in(&self, epoch: u64) -> u64 {
        self.pairs.iter().rev().find(|(from, _)| *from <= epoch).map_or(1, |(_, batches)| *batches)
    }

    /// Position of the batch of `step`.
    pub fn position(&self, step: u64) -> GroupPosition {
        let (epoch, in_epoch) = (self.first_epoch + step / self.epoch_batches, step % self.epoch_batches);
        let group_size = self.batches_in(epoch);
        let start = in_epoch - in_epoch % group_size;
        let batches = group_size.min(self.epoch_batches - start);
        GroupPosition { batches, is_last: in_epoch + 1 == start + batches }
    }

    /// The first step from `step` on that starts a group: in front of it there are no accumulated gradients.
    pub fn next_boundary(&self, step: u64) -> u64 {
        if step == 0 {
            return 0;
        }
        let mut boundary = step;
        while !self.position(boundary - 1).is_last {
            boundary += 1;
        }
        boundary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accumulation(pairs: &[(u64, u64)], first_epoch: u64, epoch_batches: u64) -> GradientAccumulation {
        GradientAccumulation { pairs: pairs.to_vec(), epoch_batches, first_epoch }
    }

    #[test]
    fn without_it_every_batch_is_a_step() {
        let none = accumulation(&[], 0, u64::MAX);
        assert!((0..10).all(|step| none.position(step) == GroupPosition { batches: 1, is_last: true }
            && none.next_boundary(step) == step));
    }

    #[test]
    fn an_epoch_closes_its_last_group() {
        // Five batches an epoch; one each in epoch 0, three from epoch 1 on.
        let groups = accumulation(&[(0, 1), (1, 3)], 0, 5);
        let parts: Vec<(u64, bool)> = (0..10).map(|s| groups.position(s)).map(|p| (p.batches, p.is_last)).collect();
        let expected = [(1, true); 5].into_iter();
        let expected = expected.chain([(3, false), (3, false), (3, true), (2, false), (2, true)]);
        assert_eq!(parts, expected.collect::<Vec<_>>());
        let boundaries: Vec<u64> = (0..=10).map(|step| groups.next_boundary(step)).collect();
        assert_eq!(boundaries, [0, 1, 2, 3, 4, 5, 8, 8, 8, 10, 10]);
        // A run that goes on in epoch 1.
        assert_eq!(accumulation(&[(0, 1), (1, 3)], 1, 5).position(0), GroupPosition { batches: 3, is_last: false });
    }
}
