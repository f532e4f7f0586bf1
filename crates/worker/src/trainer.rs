//! The model side of a step. Invariant: the data mode owns no model and costs nothing here.

mod learning;

use std::collections::BTreeMap;
use std::time::Instant;

use expctl_dist::{AllreduceWatch, DistError, ProcessGroup, Reducer, ReducerOptions};
use expctl_pipeline::collate::Batch;
use expctl_pipeline::graph::CellGraph;
use expctl_record::{Mode, PerStage, Settings, Stage};
use tch::{Device, Kind, Tensor, nn};

use crate::activity::{Activity, Phase};
use crate::losses::Objective;
use crate::models::{Inputs, ModelError, Network, named_parameters, named_variables, parameters_digest};
use crate::optimizer::Optimizer;

/// Why a model cannot be set up or stepped.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The model refused.
    #[error("{0}")]
    Model(#[from] ModelError),
    /// A collective, or an operation around it, failed.
    #[error("{0}")]
    Dist(#[from] DistError),
    /// An operation of libtorch failed.
    #[error("{0}")]
    Torch(#[from] tch::TchError),
}

/// A model with what trains it.
pub struct Trainer {
    mode: Mode,
    vs: nn::VarStore,
    device: Device,
    network: Network,
    reads_graphs: bool,
    objective: Objective,
    optimizer: Optimizer,
    reducer: Reducer,
    clip_norm: f64,
}

/// What a step found out.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepResult {
    /// Loss of this rank's batch.
    pub loss: Option<f64>,
    /// Time worked on each stage.
    pub busy: PerStage<u64>,
    /// Time that the step spent on each stage.
    pub exposed: PerStage<u64>,
}

impl Trainer {
    /// Model, optimizer and reducer as `settings` say. All ranks start from rank 0's parameters.
    pub fn new(settings: &Settings, graph: &CellGraph, group: &ProcessGroup) -> Result<Self, TrainError> {
        let model = &settings.model;
        tch::manual_seed(model.seed as i64);
        let device = Device::Cpu;
        let vs = nn::VarStore::new(device);
        let network = Network::new(settings, graph, &vs.root())?;
        let train = &settings.train;
        let objective = Objective::new(settings);
        let optimizer = Optimizer::new(train, &vs)?;
        // Without reconstruction its heads get no gradient.
        let options = ReducerOptions {
            find_unused: train.mode != Mode::ZeroLoss && network.leaves_out(&objective),
            ..ReducerOptions::default()
        };
        let reducer = Reducer::new(&named_parameters(&vs), group, options)?;
        let reads_graphs = Network::reads_graphs(settings);
        let (mode, clip_norm) = (train.mode, train.clip_norm);
        Ok(Self { mode, vs, device, network, reads_graphs, objective, optimizer, reducer, clip_norm })
    }

    /// A look at the averaging of gradients for another thread.
    pub fn allreduce(&self) -> AllreduceWatch {
        self.reducer.watch()
    }

    /// One step on a batch of `epoch` with the `masks` that were made for it, if any; `activity` is told what it is at.
    pub fn step(
        &mut self,
        batch: &Batch,
        masks: &[Tensor],
        epoch: u64,
        group: &ProcessGroup,
        activity: &Activity,
    ) -> Result<StepResult, TrainError> {
        let mut result = StepResult::default();
        activity.phase(Phase::Transfer);
        let mut clock = Clock::start();
        let inputs = Inputs::of(batch, masks, self.reads_graphs, self.device)?;
        result.both(Stage::Transfer, clock.lap());

        activity.phase(Phase::Forward);
        let backward = self.mode != Mode::Forward;
        if backward {
            self.reducer.prepare_forward()?;
        }
        let loss = self.forward(&inputs, epoch, group)?;
        result.loss = Some(loss.f_to_kind(Kind::Double)?.f_double_value(&[])?);
        result.both(Stage::Forward, clock.lap());
        if !backward {
            return Ok(result);
        }

        activity.phase(Phase::Backward);
        self.reducer.prepare_backward(&[&loss])?;
        self.reducer.backward(&loss)?;
        activity.phase(Phase::Optimizer);
        let whole = clock.lap();
        let allreduce = self.reducer.take_allreduce_times();
        // The end of the backward pass, when only communication is left, is the exposed part of the all-reduce.
        let waited = allreduce.exposed_ns.min(whole);
        result.both(Stage::Backward, whole - waited);
        result.busy[Stage::Allreduce] = allreduce.busy_ns;
        result.exposed[Stage::Allreduce] = waited;

        if self.mode.steps_parameters() {
            if self.clip_norm > 0.0 {
                self.optimizer.clip_grad_norm(self.clip_norm);
                result.both(Stage::Clip, clock.lap());
            }
            self.optimizer.step()?;
        }
        self.optimizer.zero_grad();
        result.both(if self.mode.steps_parameters() { Stage::Optimizer } else { Stage::Other }, clock.lap());
        Ok(result)
    }

    fn forward(&mut self, inputs: &Inputs<'_>, epoch: u64, group: &ProcessGroup) -> Result<Tensor, TrainError> {
        if self.mode == Mode::ZeroLoss {
            return self.zero_loss();
        }
        let output = self.network.forward(inputs, self.objective.reconstructs())?;
        Ok(self.objective.of(&output, &inputs.labels, epoch, group)?)
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
    pub fn settle(
        &mut self,
        batch: &Batch,
        masks: &[Tensor],
        epoch: u64,
        group: &ProcessGroup,
    ) -> Result<(), TrainError> {
        self.reducer.prepare_forward()?;
        let inputs = Inputs::of(batch, masks, self.reads_graphs, self.device)?;
        let loss = self.forward(&inputs, epoch, group)?;
        self.reducer.prepare_backward(&[&loss])?;
        self.reducer.backward(&loss)?;
        self.optimizer.zero_grad();
        Ok(())
    }

    /// All that later steps depend on, by name. The model draws no random numbers after it was made, so there is no
    /// generator to keep, and the sampler's position follows from the step.
    pub fn state(&self) -> Vec<(String, Tensor)> {
        let model = named_variables(&self.vs).into_iter().map(|(name, tensor)| (format!("model/{name}"), tensor));
        model.chain(self.optimizer.state()).collect()
    }

    /// Take over a state.
    ///
    /// # Errors
    /// A tensor is missing or has another shape; the message names it.
    pub fn restore(&mut self, state: &BTreeMap<String, Tensor>) -> Result<(), String> {
        for (name, mut tensor) in named_variables(&self.vs) {
            let kept = state.get(&format!("model/{name}")).ok_or_else(|| format!("parameter {name} is missing"))?;
            if kept.size() != tensor.size() || kept.kind() != tensor.kind() {
                return Err(format!("parameter {name} has another shape"));
            }
            tch::no_grad(|| tensor.f_copy_(kept)).map_err(|e| e.to_string())?;
        }
        self.optimizer.restore(state)
    }

    /// Digest over the bytes of all parameters, by name.
    pub fn parameters_digest(&self) -> Result<String, TrainError> {
        Ok(parameters_digest(&named_parameters(&self.vs))?)
    }
}

impl StepResult {
    /// A stage on the step's own thread is busy and exposed alike.
    fn both(&mut self, stage: Stage, ns: u64) {
        self.busy[stage] += ns;
        self.exposed[stage] += ns;
    }
}

/// A stopwatch of adjacent laps.
struct Clock(Instant);

impl Clock {
    fn start() -> Self {
        Self(Instant::now())
    }

    fn lap(&mut self) -> u64 {
        let now = Instant::now();
        let ns = now.duration_since(self.0).as_nanos() as u64;
        self.0 = now;
        ns
    }
}
