use expctl_dist::{AllreduceTimes, Autocast, ProcessGroup, Reducer};
use expctl_record::{Mode, PerStage, Precision, Stage};
use tch::{Device, Kind, Tensor, no_grad};

use super::clock::Clock;
use super::{TrainError, Trainer};
use crate::activity::{Activity, Phase};
use crate::device::{DeviceError, DeviceLaps};
use crate::models::{ModelBatch, ModelInputs, Output, named_parameters, named_variables};
use crate::optimizer::Clipped;

/// What a step found out.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepResult {
    /// Loss of this rank's batch.
    pub loss: Option<f64>,
    /// Norm of the gradient before it was clipped; none where it was not.
    pub gradient_norm: Option<f64>,
    /// Time worked on each stage: by the host. On a device that is the time in which work was handed over, but for the all-reduce,
    /// which is the device's.
    pub busy: PerStage<u64>,
    /// Time that the step spent on each stage: on a device by its clock.
    pub exposed: PerStage<u64>,
    /// Time of the device's stream in each stage, and of its all-reduces; none where the device is the host.
    pub device: Option<PerStage<u64>>,
}

impl StepResult {
    /// A stage on the step's own thread is busy, and where the device is the host exposed alike.
    pub(super) fn add(&mut self, stage: Stage, ns: u64, exposed: bool) {
        self.busy[stage] += ns;
        if exposed {
            self.exposed[stage] += ns;
        }
    }
}

/// A step whose work has been handed over; on the host it is done.
#[derive(Debug)]
pub(crate) struct Handed {
    result: StepResult,
    /// What only the device knows; none on the host.
    there: Option<There>,
}

#[derive(Debug)]
struct There {
    loss: Tensor,
    clipped: Option<Clipped>,
    laps: DeviceLaps,
}

impl Trainer {
    /// One step on a batch of `epoch` with the `masks` that were made for it, if any; `activity` is told what it is at.
    /// Where gradients of several batches are accumulated, only the last of them is reduced, clipped and applied.
    ///
    /// A loss that is not finite is returned as it is: the gradient is then neither clipped nor applied where clipping
    /// would tell.
    ///
    /// # Errors
    /// [`TrainError::Gradient`] where the gradient to be clipped is not finite, though this rank's loss is; the model or
    /// libtorch refuses; a peer is gone.
    pub fn step(
        &mut self,
        batch: &impl ModelBatch,
        masks: &[Tensor],
        epoch: u64,
        group: &ProcessGroup,
        activity: &Activity,
    ) -> Result<StepResult, TrainError> {
        let laps = self.laps()?;
        let handed = self.hand_over(batch, masks, epoch, group, activity, laps)?;
        self.finish(handed, activity)
    }

    /// A clock of the device for the next step; none where it is the host.
    pub(crate) fn laps(&self) -> Result<Option<DeviceLaps>, TrainError> {
        Ok(self.gpu.map(DeviceLaps::start).transpose()?)
    }

    /// The first part of [`Trainer::step`]: hand all of its work over to the device, which `laps` follow. The host waits for the device
    /// here where SGD clips, where the loss is `mse_sinkhorn`, which computes with numbers of the predictions on the host, and for each
    /// tensor of a batch that is not page-locked.
    pub(crate) fn hand_over(
        &mut self,
        batch: &impl ModelBatch,
        masks: &[Tensor],
        epoch: u64,
        group: &ProcessGroup,
        activity: &Activity,
        laps: Option<DeviceLaps>,
    ) -> Result<Handed, TrainError> {
        self.shared.clear();
        self.begin_epoch(epoch);
        let part = self.accumulation.part(self.step);
        let mut result = StepResult::default();
        activity.phase(Phase::Transfer);
        let mut clock = Clock::start(Stage::Transfer, laps);
        let inputs = batch.inputs(masks, self.reads_graphs, self.device)?;
        clock.lap(&mut result)?;

        activity.phase(Phase::Forward);
        clock.enter(Stage::Forward);
        let backward = self.mode != Mode::Forward;
        if let Some(reducer) = self.reducer.as_mut().filter(|_| backward && part.closes) {
            // Once the ranks come together here, to put the buckets into order.
            activity.phase(Phase::Gather);
            reducer.prepare_forward()?;
            activity.phase(Phase::Forward);
        }
        let loss = self.loss(&inputs, epoch, group, activity)?;
        if self.gpu.is_none() {
            result.loss = Some(number(&loss)?);
        }
        clock.lap(&mut result)?;
        let mut clipped = None;
        if backward {
            activity.phase(Phase::Backward);
            clock.enter(Stage::Backward);
            let share = if part.batches == 1 { None } else { Some(loss.f_div_scalar(part.batches as f64)?) };
            self.backward(share.as_ref().unwrap_or(&loss), part.closes)?;
            activity.phase(Phase::Optimizer);
            let whole = clock.lap(&mut result)?;
            if self.gpu.is_none() {
                self.split_backward(&mut result, whole)?;
            }
            if part.closes {
                clipped = self.apply(&loss, &mut result, &mut clock, activity)?;
            }
        }
        self.step += 1;
        let there = clock.into_laps().map(|laps| There { loss: loss.detach(), clipped, laps });
        Ok(Handed { result, there })
    }

    /// The last part of [`Trainer::step`]: wait for the device, and learn what it found.
    pub(crate) fn finish(&mut self, handed: Handed, activity: &Activity) -> Result<StepResult, TrainError> {
        let Handed { mut result, there } = handed;
        let Some(There { loss, clipped, laps }) = there else { return Ok(result) };
        activity.phase(Phase::Device);
        let mut found = vec![loss.f_to_kind(Kind::Double)?];
        if let Some(Clipped { norm, .. }) = &clipped {
            found.push(norm.f_to_kind(Kind::Double)?);
        }
        // One copy of both; behind the last event of the laps.
        let found = Tensor::f_stack(&found, 0)?.f_to_device(Device::Cpu)?;
        result.loss = Some(found.f_double_value(&[0])?);
        let times = laps.times()?;
        for (stage, ns) in times.iter() {
            result.exposed[stage] += ns;
        }
        let allreduce = self.split_backward(&mut result, times[Stage::Backward])?;
        let mut device = times;
        device[Stage::Allreduce] = allreduce.busy_ns;
        device[Stage::Backward] = result.exposed[Stage::Backward];
        result.device = Some(device);
        if clipped.is_some() {
            let norm = found.f_double_value(&[1])?;
            result.gradient_norm = Some(norm);
            if !norm.is_finite() && result.loss.is_some_and(f64::is_finite) {
                return Err(TrainError::Gradient { step: self.step - 1, norm });
            }
        }
        Ok(result)
    }

    /// Take the exposed part of the all-reduce, its end, when only communication is left, out of a backward pass of `whole` ns.
    fn split_backward(&mut self, result: &mut StepResult, whole: u64) -> Result<AllreduceTimes, TrainError> {
        let taken = self.reducer.as_mut().map(Reducer::take_allreduce_times).transpose();
        let allreduce = taken.map_err(DeviceError::from)?.unwrap_or_default();
        let waited = allreduce.exposed_ns.min(whole);
        result.exposed[Stage::Backward] -= waited;
        result.exposed[Stage::Allreduce] += waited;
        if self.gpu.is_none() {
            result.busy[Stage::Backward] -= waited;
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
            // A reducer expects no gradients where it was not prepared, and leaves those that come where they add up.
            None => Ok(loss.f_backward().map_err(|e| DeviceError::from_tch("backward pass", &e))?),
        }
    }

    /// Clip the gradient and step the parameters by it, where the mode does. What was clipped on a device is returned for later.
    fn apply(
        &mut self,
        loss: &Tensor,
        result: &mut StepResult,
        clock: &mut Clock,
        activity: &Activity,
    ) -> Result<Option<Clipped>, TrainError> {
        let steps = self.mode.steps_parameters();
        let (mut sound, mut clipped) = (true, None);
        if steps && self.clip_norm > 0.0 {
            clock.enter(Stage::Clip);
            if self.gpu.is_some() {
                clipped = self.optimizer.clip_there(self.clip_norm)?;
            }
            if clipped.is_none() {
                if self.gpu.is_some() {
                    // The host waits, for gradients that the other ranks have a part in.
                    activity.phase(Phase::Device);
                }
                let norm = self.optimizer.clip_grad_norm(self.clip_norm)?;
                result.gradient_norm = Some(norm);
                sound = norm.is_finite();
                activity.phase(Phase::Optimizer);
            }
            clock.lap(result)?;
        }
        clock.enter(if steps { Stage::Optimizer } else { Stage::Other });
        if steps && sound {
            self.optimizer.step(clipped.as_ref().map(|clipped| &clipped.overflow))?;
        }
        self.optimizer.zero_grad();
        clock.lap(result)?;
        if let Some(norm) = result.gradient_norm.filter(|_| !sound) {
            // On a device nobody has asked for the loss yet; the host has just waited for the norm, and waits no longer for this.
            let loss = result.loss.map_or_else(|| number(loss), Ok)?;
            // A loss that is not finite is the better thing to tell; whoever records the step does.
            if loss.is_finite() {
                return Err(TrainError::Gradient { step: self.step, norm });
            }
        }
        Ok(clipped)
    }

    /// What the network makes of a batch; the prediction is float32 whatever it was computed in.
    pub(super) fn forward(&self, inputs: &ModelInputs<'_>, reconstruct: bool) -> Result<Output, TrainError> {
        let _region = (self.precision == Precision::Bf16Mixed).then(|| Autocast::bf16(self.device));
        let Output { prediction, reconstruction } = self.network.forward(inputs, reconstruct)?;
        Ok(Output { prediction: prediction.f_to_kind(Kind::Float)?, reconstruction })
    }

    fn loss(
        &mut self,
        inputs: &ModelInputs<'_>,
        epoch: u64,
        group: &ProcessGroup,
        activity: &Activity,
    ) -> Result<Tensor, TrainError> {
        if self.mode == Mode::ZeroLoss {
            return self.zero_loss();
        }
        let output = self.forward(inputs, self.objective.reconstructs())?;
        let labels = self.labels.scaled(inputs.labels()?)?;
        Ok(self.objective.of(&output, &labels, epoch, group, activity)?)
    }

    /// 0, as a function of every parameter.
    fn zero_loss(&self) -> Result<Tensor, TrainError> {
        let mut loss = Tensor::f_zeros([], (Kind::Float, self.device))?;
        for (_, parameter) in named_parameters(&self.vs) {
            loss += parameter.f_sum(Kind::Float)? * 0.0;
        }
        Ok(loss)
    }

    /// A backward pass that changes no parameter, to call once before the first step after a checkpoint. The reducer puts
    /// its buckets into the order in which the first one made the gradients, and with more than two ranks the order
    /// decides in which sequence they are added up: all steps behind the checkpoint had that order when it was written.
    /// A single rank has no reducer, and nothing to do here.
    ///
    /// # Errors
    /// As with [`Trainer::step`].
    pub fn settle(
        &mut self,
        batch: &impl ModelBatch,
        masks: &[Tensor],
        epoch: u64,
        group: &ProcessGroup,
        activity: &Activity,
    ) -> Result<(), TrainError> {
        let Some(reducer) = &mut self.reducer else { return Ok(()) };
        activity.phase(Phase::Gather);
        reducer.prepare_forward()?;
        activity.phase(Phase::Forward);
        // The batch comes again, as a step: neither the loss nor a buffer of the model must remember it twice.
        let memory = self.objective.memory().cloned();
        let buffers: Vec<(Tensor, Tensor)> = named_variables(&self.vs)
            .into_iter()
            .filter(|(_, tensor)| !tensor.requires_grad())
            .map(|(_, tensor)| (tensor.copy(), tensor))
            .collect();
        let inputs = batch.inputs(masks, self.reads_graphs, self.device)?;
        let loss = self.loss(&inputs, epoch, group, activity)?;
        activity.phase(Phase::Backward);
        self.backward(&loss, true)?;
        self.optimizer.zero_grad();
        for (kept, mut buffer) in buffers {
            no_grad(|| buffer.f_copy_(&kept))?;
        }
        if let (Some(kept), Some(memory)) = (memory, self.objective.memory_mut()) {
            *memory = kept;
        }
        Ok(())
    }
}

/// The value of a scalar.
fn number(loss: &Tensor) -> Result<f64, TrainError> {
    Ok(loss.f_to_kind(Kind::Double)?.f_double_value(&[])?)
}
