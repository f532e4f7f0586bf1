use expctl_dist::{Autocast, DistError, ProcessGroup, Reducer};
use expctl_record::{Mode, PerStage, Precision, Stage};
use tch::{Kind, Tensor, no_grad};

use super::clock::Clock;
use super::{TrainError, Trainer};
use crate::activity::{Activity, Phase};
use crate::models::{ModelBatch, ModelInputs, Output, named_parameters, named_variables};

/// What a step found out.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepResult {
    /// Loss of this rank's batch.
    pub loss: Option<f64>,
    /// Norm of the gradient before it was clipped; none where it was not.
    pub gradient_norm: Option<f64>,
    /// Time worked on each stage.
    pub busy: PerStage<u64>,
    /// Time that the step spent on each stage.
    pub exposed: PerStage<u64>,
}

impl StepResult {
    /// A stage on the step's own thread is busy and exposed alike.
    fn both(&mut self, stage: Stage, ns: u64) {
        self.busy[stage] += ns;
        self.exposed[stage] += ns;
    }
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
        self.shared.clear();
        self.begin_epoch(epoch);
        let part = self.accumulation.part(self.step);
        let mut result = StepResult::default();
        activity.phase(Phase::Transfer);
        let mut clock = Clock::start(Stage::Transfer);
        let inputs = batch.inputs(masks, self.reads_graphs, self.device)?;
        result.both(Stage::Transfer, clock.lap());

        activity.phase(Phase::Forward);
        clock.enter(Stage::Forward);
        let backward = self.mode != Mode::Forward;
        if let Some(reducer) = self.reducer.as_mut().filter(|_| backward && part.closes) {
            reducer.prepare_forward()?;
        }
        let loss = self.loss(&inputs, epoch, group, activity)?;
        result.loss = Some(loss.f_to_kind(Kind::Double)?.f_double_value(&[])?);
        result.both(Stage::Forward, clock.lap());
        if !backward {
            self.step += 1;
            return Ok(result);
        }

        activity.phase(Phase::Backward);
        clock.enter(Stage::Backward);
        let loss = if part.batches == 1 { loss } else { loss.f_div_scalar(part.batches as f64)? };
        self.backward(&loss, part.closes)?;
        activity.phase(Phase::Optimizer);
        let whole = clock.lap();
        let allreduce = self.reducer.as_mut().map(Reducer::take_allreduce_times).unwrap_or_default();
        // The end of the backward pass, when only communication is left, is the exposed part of the all-reduce.
        let waited = allreduce.exposed_ns.min(whole);
        result.both(Stage::Backward, whole - waited);
        result.busy[Stage::Allreduce] = allreduce.busy_ns;
        result.exposed[Stage::Allreduce] = waited;
        if part.closes {
            self.apply(&mut result, &mut clock)?;
        }
        self.step += 1;
        Ok(result)
    }

    /// The backward pass; with `reduce`, gradients are the mean over the ranks when it is over.
    fn backward(&mut self, loss: &Tensor, reduce: bool) -> Result<(), DistError> {
        match self.reducer.as_mut().filter(|_| reduce) {
            Some(reducer) => {
                reducer.prepare_backward(&[loss])?;
                reducer.backward(loss)
            }
            // A reducer expects no gradients where it was not prepared, and leaves those that come where they add up.
            None => loss.f_backward().map_err(|e| DistError::from_tch("backward pass", &e)),
        }
    }

    /// Clip the gradient and step the parameters by it, where the mode does.
    fn apply(&mut self, result: &mut StepResult, clock: &mut Clock) -> Result<(), TrainError> {
        let steps = self.mode.steps_parameters();
        let mut sound = true;
        if steps && self.clip_norm > 0.0 {
            clock.enter(Stage::Clip);
            let norm = self.optimizer.clip_grad_norm(self.clip_norm)?;
            result.gradient_norm = Some(norm);
            sound = norm.is_finite();
            result.both(Stage::Clip, clock.lap());
        }
        let last = if steps { Stage::Optimizer } else { Stage::Other };
        clock.enter(last);
        if steps && sound {
            self.optimizer.step()?;
        }
        self.optimizer.zero_grad();
        result.both(last, clock.lap());
        match result.gradient_norm {
            // A loss that is not finite is the better thing to tell; whoever records the step does.
            Some(norm) if !sound && result.loss.is_some_and(f64::is_finite) => {
                Err(TrainError::Gradient { step: self.step, norm })
            }
            _ => Ok(()),
        }
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
        reducer.prepare_forward()?;
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
