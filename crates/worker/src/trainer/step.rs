//! [`Trainer::step`]: transfer, forward, backward, clipping and parameter update on one batch, with the time of each stage.
//!
//! A step has two halves. [`Trainer::launch`] does its work on the host, or launches it on a GPU; [`Trainer::finish`]
//! waits for the GPU and reads loss, gradient norm and times. Between them the host can prepare the next batch.
//!
//! *The device is the host* means here that the rank trains on the CPU.

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

/// Loss and times of a step. [`PerStage`] has the stages that a trainer knows, transfer to other; those of the loader are 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepResult {
    /// Loss of this rank's batch.
    pub loss: Option<f64>,
    /// Norm of the gradient before it was clipped; `None` where it was not.
    pub gradient_norm: Option<f64>,
    /// Time that the host worked on each stage, ns: with a GPU, the time to launch the work. The all-reduce is different:
    /// it is the time in which at least one bucket of gradients was in flight, on a GPU by the GPU's clock.
    pub busy: PerStage<u64>,
    /// Time that each stage adds to the step, ns; on a GPU by its clock. Of the all-reduce, only the end that no other
    /// work of the backward pass hides.
    pub exposed: PerStage<u64>,
    /// Time of the work of each stage by the GPU's clock, ns: as `exposed`, but with the whole time of the all-reduce.
    /// `None` where the device is the host.
    pub device: Option<PerStage<u64>>,
}

impl StepResult {
    /// Add time that the step's own thread spent on a stage: to `busy`, and to `exposed` if `exposed` is set.
    pub fn add(&mut self, stage: Stage, ns: u64, exposed: bool) {
        self.busy[stage] += ns;
        if exposed {
            self.exposed[stage] += ns;
        }
    }
}

/// A step between its two halves: on a GPU its work has been launched; on the host it is done.
#[derive(Debug)]
pub struct LaunchedStep {
    /// What is known so far: on the host everything.
    result: StepResult,
    /// `None` where the device is the host.
    on_device: Option<DeviceStep>,
}

/// The results of a step that the GPU has not computed yet.
#[derive(Debug)]
struct DeviceStep {
    /// Scalar on the GPU.
    loss: Tensor,
    /// `None` where nothing was clipped, or the host has read the norm already.
    clipped: Option<ClippedGradient>,
    timer: DeviceTimer,
}

impl Trainer {
    /// One step on the batch of `context`. Where the gradients of several batches are accumulated, the last of these
    /// batches averages the sum over the ranks, clips it and updates the parameters; the others only add to it.
    ///
    /// A loss that is infinite or NaN is no error here: it is returned, and the caller reports it. With clipping, the
    /// parameters are not updated if the norm of the gradient is not finite either.
    ///
    /// # Errors
    /// [`TrainError::Gradient`] if the norm of the gradient to be clipped is not finite although this rank's loss is; the
    /// model or libtorch fails; a peer is gone.
    pub fn step(&mut self, context: &StepContext<'_>) -> Result<StepResult, TrainError> {
        let timer = self.start_device_timer()?;
        let launched = self.launch(context, timer)?;
        self.finish(launched, context.activity)
    }

    /// Start the GPU's timer for the next step. `None` where the device is the host.
    ///
    /// # Errors
    /// The GPU fails.
    pub(crate) fn start_device_timer(&self) -> Result<Option<DeviceTimer>, TrainError> {
        Ok(self.gpu.map(DeviceTimer::start).transpose()?)
    }

    /// The first half of [`Trainer::step`]: launch all of its work, which `timer` times on the GPU.
    ///
    /// The host waits for the GPU in here only where it has to: where SGD clips, with the loss `mse_sinkhorn`, which
    /// computes with predictions on the host, and for the copy of each tensor of a batch that is not page-locked.
    ///
    /// # Errors
    /// As with [`Trainer::step`].
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
        let has_backward = self.mode != Mode::Forward;
        if let Some(reducer) = self.reducer.as_mut().filter(|_| has_backward && group_position.is_last) {
            // After the first backward pass the ranks synchronise here, once, to agree on the order of the gradient buckets.
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
        if has_backward {
            activity.set_phase(Phase::Backward);
            timer.begin_stage(Stage::Backward);
            // The gradients of a group of batches add up: with this divisor, to those of their mean loss.
            let batches = group_position.batches;
            let scaled_loss = if batches == 1 { None } else { Some(loss.f_div_scalar(batches as f64)?) };
            self.backward(scaled_loss.as_ref().unwrap_or(&loss), group_position.is_last)?;
            activity.set_phase(Phase::Optimizer);
            let backward_ns = timer.end_stage(&mut result)?;
            if self.gpu.is_none() {
                self.split_backward(&mut result, backward_ns)?;
            }
            if group_position.is_last {
                clipped = self.clip_and_update(&loss, &mut result, &mut timer, activity)?;
            }
        }
        self.step += 1;
        let on_device = timer.into_device_timer().map(|timer| DeviceStep { loss: loss.detach(), clipped, timer });
        Ok(LaunchedStep { result, on_device })
    }

    /// The second half of [`Trainer::step`]: wait for the GPU, and read its results. To call before the next
    /// [`Trainer::launch`].
    ///
    /// # Errors
    /// As with [`Trainer::step`].
    pub(crate) fn finish(&mut self, launched: LaunchedStep, activity: &Activity) -> Result<StepResult, TrainError> {
        let LaunchedStep { mut result, on_device } = launched;
        let Some(DeviceStep { loss, clipped, timer }) = on_device else { return Ok(result) };
        activity.set_phase(Phase::Device);
        let mut scalars = vec![loss.f_to_kind(Kind::Double)?];
        if let Some(ClippedGradient { norm, .. }) = &clipped {
            scalars.push(norm.f_to_kind(Kind::Double)?);
        }
        // Loss and norm in one copy. It is launched after the last event of the timer: once it is done, all events are, too.
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
                // `launch` has counted the step already.
                return Err(TrainError::Gradient { step: self.step - 1, norm });
            }
        }
        Ok(result)
    }

    /// Split a backward pass of `backward_ns` ns between the stages backward and allreduce: its end, in which nothing but
    /// communication is left, is the exposed time of the all-reduce. Returns the times of the all-reduce: zeros without
    /// other ranks, and where this batch reduced nothing.
    fn split_backward(&mut self, result: &mut StepResult, backward_ns: u64) -> Result<AllreduceTimes, TrainError> {
        let taken = self.reducer.as_mut().map(Reducer::take_allreduce_times).transpose();
        let allreduce = taken.map_err(DeviceError::from)?.unwrap_or_default();
        let exposed = allreduce.exposed_ns.min(backward_ns);
        result.exposed[Stage::Backward] -= exposed;
        result.exposed[Stage::Allreduce] += exposed;
        if self.gpu.is_none() {
            result.busy[Stage::Backward] -= exposed;
        }
        result.busy[Stage::Allreduce] = allreduce.busy_ns;
        Ok(allreduce)
    }

    /// The backward pass. With `reduce`, each gradient is then the mean over the ranks; without, it is this rank's own,
    /// added to that of the earlier batches of the group.
    fn backward(&mut self, loss: &Tensor, reduce: bool) -> Result<(), TrainError> {
        match self.reducer.as_mut().filter(|_| reduce) {
            Some(reducer) => {
                reducer.prepare_backward(&[loss])?;
                Ok(reducer.backward(loss)?)
            }
            // A reducer that was not prepared ignores the gradients, and libtorch adds them to those that are there.
            None => Ok(loss.f_backward().map_err(|e| DeviceError::from_tch("backward pass", &e))?),
        }
    }

    /// Clip the gradient and update the parameters by it, if the mode updates them; then drop the gradients. Returns the
    /// norm of a gradient that was clipped on the GPU without waiting, which [`Trainer::finish`] reads; a norm that the
    /// host has read is in `result`.
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
                    // The host waits for the GPU, and so for the other ranks, whose gradients are in the mean.
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
            // On a GPU the loss has not been read yet. The host has just waited for the norm, so reading the loss takes no
            // further wait.
            let loss = result.loss.map_or_else(|| scalar(loss), Ok)?;
            // A loss that is not finite says more than the gradient: the caller, which records the step, reports it.
            if loss.is_finite() {
                return Err(TrainError::Gradient { step: self.step, norm });
            }
        }
        Ok(clipped)
    }

    /// The output of the network for a batch. The prediction is float32, also where it was computed in bfloat16.
    /// `reconstruct` also asks for the reconstruction.
    ///
    /// # Errors
    /// The model or libtorch fails.
    pub(super) fn forward(&self, inputs: &ModelInputs<'_>, reconstruct: bool) -> Result<ModelOutput, TrainError> {
        // Autocast ends when this is dropped.
        let _autocast = (self.precision == Precision::Bf16Mixed).then(|| Autocast::bf16(self.device));
        let ModelOutput { prediction, reconstruction } = self.network.forward(inputs, reconstruct)?;
        Ok(ModelOutput { prediction: prediction.f_to_kind(Kind::Float)?, reconstruction })
    }

    /// The loss of a batch, a scalar on the device.
    fn loss(&mut self, inputs: &ModelInputs<'_>, context: &StepContext<'_>) -> Result<Tensor, TrainError> {
        if self.mode == Mode::ZeroLoss {
            return self.zero_loss();
        }
        let output = self.forward(inputs, self.objective.reconstructs())?;
        let labels = self.labels.scaled(inputs.labels()?)?;
        Ok(self.objective.loss(&output, &labels, context)?)
    }

    /// A loss that is always 0 and depends on every parameter, so that each gets a gradient (of zeros) and the rest of the
    /// step is complete.
    fn zero_loss(&self) -> Result<Tensor, TrainError> {
        let mut loss = Tensor::f_zeros([], (Kind::Float, self.device))?;
        for (_, parameter) in named_parameters(&self.vs) {
            loss += parameter.f_sum(Kind::Float)? * 0.0;
        }
        Ok(loss)
    }

    /// A forward and a backward pass that change no state, to call once before the first step after a checkpoint. Steps
    /// then give the same parameters, bit for bit, as in the attempt that wrote the checkpoint.
    ///
    /// Why: the reducer sorts its buckets by the order in which the first backward pass made the gradients. With more than
    /// two ranks, the buckets decide in which sequence the gradients of the ranks are added up, and so how the sums are
    /// rounded. The attempt that wrote the checkpoint had sorted buckets by then. A single rank has no reducer, and
    /// nothing to do.
    ///
    /// # Errors
    /// As with [`Trainer::step`].
    pub fn order_buckets(&mut self, context: &StepContext<'_>) -> Result<(), TrainError> {
        let StepContext { batch, masks, activity, .. } = *context;
        let Some(reducer) = &mut self.reducer else { return Ok(()) };
        activity.set_phase(Phase::Gather);
        reducer.prepare_forward()?;
        activity.set_phase(Phase::Forward);
        // The first step uses the same batch again. It must not count twice in the replay buffer or in a buffer of the
        // model (as of batch norm): they are restored below.
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

/// The value of a tensor with one element, copied to the host.
fn scalar(tensor: &Tensor) -> Result<f64, TrainError> {
    Ok(tensor.f_to_kind(Kind::Double)?.f_double_value(&[])?)
}

/// Times the stages of a step, which follow each other without gaps: by the host's clock, and with a GPU also by the
/// GPU's. Each stage is a range in the trace of a profiler, if one runs.
struct StageTimer {
    /// Start of the current stage.
    since: Instant,
    stage: Stage,
    range: Option<ProfilerRange>,
    /// `None` where the device is the host.
    device_timer: Option<DeviceTimer>,
}

impl StageTimer {
    /// Start the first stage.
    fn start(stage: Stage, device_timer: Option<DeviceTimer>) -> Self {
        Self { since: Instant::now(), stage, range: Some(ProfilerRange::open(stage.name())), device_timer }
    }

    /// Name the current stage, which began when the last one ended.
    fn begin_stage(&mut self, stage: Stage) {
        // Two statements, because the last range must end before the next one opens: it would be nested in it.
        self.range = None;
        self.range = Some(ProfilerRange::open(stage.name()));
        self.stage = stage;
    }

    /// End the current stage and add its time to `result`: to `busy`, and where the device is the host also to `exposed`.
    /// Returns the time by the host's clock, ns. The next stage begins.
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

    /// The timer of the GPU; `None` where the device is the host.
    fn into_device_timer(self) -> Option<DeviceTimer> {
        self.device_timer
    }
}

/// Gradient accumulation: which batches form a group, whose gradients make one step of the optimizer. A *step* here is one
/// batch.
///
/// The first group of an epoch starts with its first batch. The last group ends with the epoch, so it may be smaller; its
/// gradients are averaged over the batches that it has. Invariant: the groups follow from the settings and the step alone,
/// so all ranks have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GradientAccumulation {
    /// An epoch, and the number of batches in a group from that epoch on. Ascending by epoch. Before the first pair it is 1.
    pairs: Vec<(u64, u64)>,
    /// Number of batches of an epoch on each rank; `u64::MAX` where that is unknown.
    epoch_batches: u64,
    /// Epoch of step 0.
    first_epoch: u64,
}

/// Position of a batch in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPosition {
    /// Number of batches in the group.
    pub batches: u64,
    /// Whether the batch is the last one of the group.
    pub is_last: bool,
}

impl GradientAccumulation {
    /// The groups of the settings `train`. No epoch ends before [`Self::set_epochs`] was called.
    pub fn new(train: &Train) -> Self {
        let pairs = Train::accumulation_pairs(&train.accumulation).unwrap_or_default();
        Self { pairs, epoch_batches: u64::MAX, first_epoch: 0 }
    }

    /// Step 0 is the first batch of `first_epoch`, and each epoch has `epoch_batches` batches on each rank.
    pub fn set_epochs(&mut self, first_epoch: u64, epoch_batches: u64) {
        (self.first_epoch, self.epoch_batches) = (first_epoch, epoch_batches.max(1));
    }

    /// Number of batches in a group of `epoch`, if the epoch does not end before.
    fn group_size(&self, epoch: u64) -> u64 {
        self.pairs.iter().rev().find(|(from, _)| *from <= epoch).map_or(1, |(_, batches)| *batches)
    }

    /// Position of the batch of `step`.
    pub fn position(&self, step: u64) -> GroupPosition {
        let (epoch, in_epoch) = (self.first_epoch + step / self.epoch_batches, step % self.epoch_batches);
        let group_size = self.group_size(epoch);
        let start = in_epoch - in_epoch % group_size;
        let batches = group_size.min(self.epoch_batches - start);
        GroupPosition { batches, is_last: in_epoch + 1 == start + batches }
    }

    /// The first step, `step` or a later one, that starts a group. Before it there are no accumulated gradients, so a
    /// checkpoint needs none.
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
    fn without_accumulation_every_batch_is_a_step() {
        let none = accumulation(&[], 0, u64::MAX);
        assert!((0..10).all(|step| none.position(step) == GroupPosition { batches: 1, is_last: true }
            && none.next_boundary(step) == step));
    }

    #[test]
    fn an_epoch_closes_its_last_group() {
        // Five batches an epoch; one each in epoch 0, three from epoch 1 on.
        let groups = accumulation(&[(0, 1), (1, 3)], 0, 5);
        let found: Vec<(u64, bool)> = (0..10).map(|s| groups.position(s)).map(|p| (p.batches, p.is_last)).collect();
        let expected = [(1, true); 5].into_iter();
        let expected = expected.chain([(3, false), (3, false), (3, true), (2, false), (2, true)]);
        assert_eq!(found, expected.collect::<Vec<_>>());
        let boundaries: Vec<u64> = (0..=10).map(|step| groups.next_boundary(step)).collect();
        assert_eq!(boundaries, [0, 1, 2, 3, 4, 5, 8, 8, 8, 10, 10]);
        // A run that starts in epoch 1, as after the checkpoint of another run.
        assert_eq!(accumulation(&[(0, 1), (1, 3)], 1, 5).position(0), GroupPosition { batches: 3, is_last: false });
    }
}
