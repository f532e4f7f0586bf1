//! The model side of a step. Invariant: the data mode owns no model and costs nothing here.

use std::time::Instant;

use expctl_dist::{DistError, ProcessGroup, Reducer, ReducerOptions};
use expctl_pipeline::collate::Common;
use expctl_pipeline::graph::CellGraph;
use expctl_record::{Mode, Optimizer, PerStage, Settings, Stage};
use tch::nn::OptimizerConfig;
use tch::{Device, Kind, Tensor, nn};

use crate::models::dango::{Dango, DangoConfig, DangoError, EdgeList, TotalLoss};
use crate::models::{named_parameters, parameters_digest};

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

/// A model with what trains it.
pub struct Trainer {
    mode: Mode,
    vs: nn::VarStore,
    model: Dango,
    loss: TotalLoss,
    optimizer: nn::Optimizer,
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
        let optimizer = match train.optimizer {
            Optimizer::Adamw => {
                nn::AdamW { wd: train.weight_decay, ..nn::AdamW::default() }.build(&vs, train.learning_rate)
            }
            Optimizer::Sgd => nn::Sgd { wd: train.weight_decay, ..nn::Sgd::default() }.build(&vs, train.learning_rate),
        }?;
        // Without reconstruction its heads get no gradient.
        let options = ReducerOptions { find_unused: !loss.reconstructs(), ..ReducerOptions::default() };
        let reducer = Reducer::new(&named_parameters(&vs), group, options)?;
        Ok(Self { mode: train.mode, vs, model: network, loss, optimizer, reducer, clip_norm: train.clip_norm })
    }

    /// One step on a batch of `epoch`.
    pub fn step(&mut self, common: &Common, epoch: u64) -> Result<StepResult, TrainError> {
        let mut result = StepResult::default();
        let mut clock = Clock::start();
        let inputs = Inputs {
            genes: Tensor::from_slice(&common.genes),
            gene_sample: Tensor::from_slice(&common.gene_sample),
            labels: Tensor::from_slice(&common.labels),
            batch_size: common.len() as i64,
        };
        result.both(Stage::Transfer, clock.lap());

        let backward = matches!(self.mode, Mode::ForwardBackward | Mode::Train);
        if backward {
            self.reducer.prepare_forward()?;
        }
        let reconstruct = self.loss.reconstructs();
        let output = self.model.forward(&inputs.genes, &inputs.gene_sample, inputs.batch_size, reconstruct)?;
        let loss = self.loss.of(&output, &inputs.labels, epoch);
        result.loss = Some(loss.f_to_kind(Kind::Double)?.f_double_value(&[])?);
        result.both(Stage::Forward, clock.lap());
        if !backward {
            return Ok(result);
        }

        self.reducer.prepare_backward(&[&loss])?;
        self.reducer.backward(&loss)?;
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
            self.optimizer.step();
        }
        self.optimizer.zero_grad();
        result.both(if self.mode == Mode::Train { Stage::Optimizer } else { Stage::Other }, clock.lap());
        Ok(result)
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
