//! The model side of a step. Invariant: the data mode owns no model and costs nothing here.

use std::collections::BTreeMap;
use std::time::Instant;

use expctl_dist::{AllreduceWatch, DistError, ProcessGroup, Reducer, ReducerOptions};
use expctl_pipeline::collate::Common;
use expctl_pipeline::graph::CellGraph;
use expctl_record::{Mode, PerStage, Settings, Stage};
use tch::{Device, Kind, Tensor, nn};

use crate::activity::{Activity, Phase};
use crate::models::dango::{Dango, DangoConfig, DangoError, EdgeList, TotalLoss};
use crate::models::{named_parameters, parameters_digest};
use crate::optimizer::Optimizer;

/// Why a model cannot be set up or stepped.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The model refused.
    #[error("{0}")]
    Model(#[from] DangoError),
    /// A collective, or an operation around it, failed.
    #[error("{0}")]
    Dist(#[from] DistError),
    /// An operation of libtorch failed.
    #[error("{0}")]
    Torch(#[from] tch::TchError),
}

/// Tensors that the model reads.
struct Inputs {
    genes: Tensor,
    gene_sample: Tensor,
    labels: Tensor,
    batch_size: i64,
}

impl Inputs {
    fn of(common: &Common) -> Self {
        Self {
            genes: Tensor::from_slice(&common.genes),
            gene_sample: Tensor::from_slice(&common.gene_sample),
            labels: Tensor::from_slice(&common.labels),
            batch_size: common.len() as i64,
        }
    }
}

/// A model with what trains it.
pub struct Trainer {
    mode: Mode,
    vs: nn::VarStore,
    model: Dango,
    loss: TotalLoss,
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
        let vs = nn::VarStore::new(Device::Cpu);
        let graphs: Vec<EdgeList<'_>> = graph
            .edge_types
            .iter()
            .filter(|e| model.edge_types.contains(&e.name))
            .map(|e| EdgeList { name: &e.name, sources: e.sources(), targets: e.targets() })
            .collect();
        let config = DangoConfig {
            num_genes: graph.num_genes() as i64,
            hidden: i64::from(model.hidden),
            heads: i64::from(model.heads),
            layers: i64::from(model.layers),
            ..DangoConfig::published(graph.num_genes() as i64)
        };
        let network = Dango::new(&vs.root(), &config, &graphs)?;
        let train = &settings.train;
        let loss = TotalLoss::new(train.reconstruction);
        let optimizer = Optimizer::new(train, &vs)?;
        // Without reconstruction its heads get no gradient.
        let options = ReducerOptions { find_unused: !loss.reconstructs(), ..ReducerOptions::default() };
        let reducer = Reducer::new(&named_parameters(&vs), group, options)?;
        Ok(Self { mode: train.mode, vs, model: network, loss, optimizer, reducer, clip_norm: train.clip_norm })
    }

    /// A look at the averaging of gradients for another thread.
    pub fn allreduce(&self) -> AllreduceWatch {
        self.reducer.watch()
    }

    /// One step on a batch of `epoch`; `activity` is told what it is at.
    pub fn step(&mut self, common: &Common, epoch: u64, activity: &Activity) -> Result<StepResult, TrainError> {
        let mut result = StepResult::default();
        activity.phase(Phase::Transfer);
        let mut clock = Clock::start();
        let inputs = Inputs::of(common);
        result.both(Stage::Transfer, clock.lap());

        activity.phase(Phase::Forward);
        let backward = matches!(self.mode, Mode::ForwardBackward | Mode::Train);
        if backward {
            self.reducer.prepare_forward()?;
        }
        let loss = self.forward(&inputs, epoch)?;
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

        if self.mode == Mode::Train {
            if self.clip_norm > 0.0 {
                self.optimizer.clip_grad_norm(self.clip_norm);
                result.both(Stage::Clip, clock.lap());
            }
            self.optimizer.step()?;
        }
        self.optimizer.zero_grad();
        result.both(if self.mode == Mode::Train { Stage::Optimizer } else { Stage::Other }, clock.lap());
        Ok(result)
    }

    fn forward(&self, inputs: &Inputs, epoch: u64) -> Result<Tensor, TrainError> {
        let reconstruct = self.loss.reconstructs();
        let output = self.model.forward(&inputs.genes, &inputs.gene_sample, inputs.batch_size, reconstruct)?;
        Ok(self.loss.of(&output, &inputs.labels, epoch))
    }

    /// A backward pass that changes no parameter, to call once before the first step after a checkpoint. The reducer puts
    /// its buckets into the order in which the first one made the gradients, and with more than two ranks the order
    /// decides in which sequence they are added up: all steps behind the checkpoint had that order when it was written.
    pub fn settle(&mut self, common: &Common, epoch: u64) -> Result<(), TrainError> {
        self.reducer.prepare_forward()?;
        let loss = self.forward(&Inputs::of(common), epoch)?;
        self.reducer.prepare_backward(&[&loss])?;
        self.reducer.backward(&loss)?;
        self.optimizer.zero_grad();
        Ok(())
    }

    /// All that later steps depend on, by name. The model draws no random numbers after it was made, so there is no
    /// generator to keep, and the sampler's position follows from the step.
    pub fn state(&self) -> Vec<(String, Tensor)> {
        let model = named_parameters(&self.vs).into_iter().map(|(name, tensor)| (format!("model/{name}"), tensor));
        model.chain(self.optimizer.state()).collect()
    }

    /// Take over a state.
    ///
    /// # Errors
    /// A tensor is missing or has another shape; the message names it.
    pub fn restore(&mut self, state: &BTreeMap<String, Tensor>) -> Result<(), String> {
        for (name, mut tensor) in named_parameters(&self.vs) {
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
