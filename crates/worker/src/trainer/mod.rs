//! The model side of a step. Invariants: the data mode owns no model and costs nothing here; between groups of accumulated batches, all
//! that later steps depend on is in the state.

use std::collections::BTreeMap;

use expctl_settings::{GradientCompression, Mode, Precision, Settings};
use graph_loader::{Batch, CellGraph};
use tch::{Device, TchError, Tensor, nn, no_grad};
use torch_dist::{AllreduceWatch, DistError, GradientDtype, ProcessGroup, Reducer, ReducerOptions};

use crate::device::{DeviceError, Gpu};
use crate::losses::{LabelScale, LossError, Objective, ReplayBuffer};
use crate::models::{ModelBatch, ModelError, Network, named_parameters, named_variables, parameters_digest};
use crate::optimizer::Optimizer;
use crate::schedule::{LearningRateSchedule, ScheduleError};
use crate::state::StateError;

mod step;

pub use step::{GradientAccumulation, GroupPosition, StepResult};

/// Advice for a loss or a gradient that is not finite.
pub const ADVICE: &str =
    "Try a smaller train.learning_rate, train.precision = \"float32\", or look at the labels of its samples";

/// Gradients are the mean over the ranks: a NaN may be another rank's, whose loss says more.
fn other_ranks_hint(norm: f64) -> &'static str {
    if norm.is_nan() { "This rank's loss was finite: look at the other ranks' messages first. " } else { "" }
}

/// Why a model cannot be set up or stepped.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The model refused.
    #[error("{0}")]
    Model(#[from] ModelError),
    /// A collective, or an operation around it, failed: mostly another rank is gone.
    #[error("{0}")]
    Dist(#[from] DistError),
    /// An operation that no other rank takes part in failed.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// An operation of libtorch failed.
    #[error("{0}")]
    Torch(#[from] TchError),
    /// The settings of the learning rate contradict each other.
    #[error("{0}")]
    Schedule(#[from] ScheduleError),
    /// The gradient is infinite or NaN. No parameter has changed.
    #[error(
        "the gradient of step {step} is not finite (norm {norm}): no parameter has changed by it. {}{ADVICE}",
        other_ranks_hint(*norm)
    )]
    Gradient {
        /// The step.
        step: u64,
        /// Norm of all gradients together.
        norm: f64,
    },
}

impl From<LossError> for TrainError {
    fn from(error: LossError) -> Self {
        match error {
            LossError::Dist(error) => Self::Dist(error),
            LossError::Torch(error) => Self::Torch(error),
        }
    }
}

/// A model, and everything that trains it.
pub struct Trainer {
    mode: Mode,
    vs: nn::VarStore,
    device: Device,
    /// `None` where the device is the host.
    gpu: Option<Gpu>,
    network: Network,
    reads_graphs: bool,
    objective: Objective,
    labels: LabelScale,
    optimizer: Optimizer,
    schedule: LearningRateSchedule,
    /// `None` where there is no other rank.
    reducer: Option<Reducer>,
    clip_norm: f64,
    precision: Precision,
    accumulation: GradientAccumulation,
    rank: u32,
    world: u32,
    /// The next step.
    step: u64,
    /// The epoch that the learning rate is of.
    epoch: Option<u64>,
    learning_rate: f64,
    /// The replay buffers of the other ranks, as of the last call of [`Trainer::share_state`].
    peer_state: Vec<(String, Tensor)>,
}

impl Trainer {
    /// A trainer for samples of `graph`: model, optimizer and reducer as `settings` say, on `device`. `labels` are the mean and the
    /// standard deviation of all labels of the data set. All ranks start from rank 0's parameters, which are the same on every kind of
    /// device.
    ///
    /// # Errors
    /// A size is not possible, a file cannot be read, or the settings of the schedule contradict each other.
    pub fn new(
        settings: &Settings,
        graph: &CellGraph,
        labels: (f64, f64),
        group: &ProcessGroup,
        device: Device,
    ) -> Result<Self, TrainError> {
        Self::with_network(settings, labels, group, device, |vs| Network::new(settings, graph, vs))
    }

    /// A trainer for rows of `genes` values, to predict one of `classes` classes.
    ///
    /// # Errors
    /// As with [`Trainer::new`].
    pub fn new_array(
        settings: &Settings,
        genes: u64,
        classes: u64,
        group: &ProcessGroup,
        device: Device,
    ) -> Result<Self, TrainError> {
        Self::with_network(settings, (0.0, 1.0), group, device, |vs| Network::new_array(settings, genes, classes, vs))
    }

    fn with_network(
        settings: &Settings,
        labels: (f64, f64),
        group: &ProcessGroup,
        device: Device,
        network: impl Fn(&nn::Path) -> Result<Network, ModelError>,
    ) -> Result<Self, TrainError> {
        tch::manual_seed(settings.model.seed as i64);
        let vs = nn::VarStore::new(device);
        let network = drawn_on_host(&vs, network)?;
        let train = &settings.train;
        let objective = Objective::new(settings, group.rank());
        let mut optimizer = Optimizer::new(train, &vs)?;
        let schedule = LearningRateSchedule::new(train)?;
        let learning_rate = schedule.rate(0);
        optimizer.set_learning_rate(learning_rate);
        let options = ReducerOptions {
            find_unused: train.mode != Mode::ZeroLoss && network.has_unused_parameters(objective.reconstructs()),
            gradient_dtype: match train.gradient_compression {
                GradientCompression::None => GradientDtype::Unchanged,
                GradientCompression::Fp16 => GradientDtype::Float16,
                GradientCompression::Bf16 => GradientDtype::Bfloat16,
            },
            ..ReducerOptions::default()
        };
        // A single rank has nothing to average, as the published runs on one device had nothing.
        let reducer = (group.world() > 1).then(|| Reducer::new(&named_parameters(&vs), group, options)).transpose()?;
        if train.precision == Precision::Bf16Mixed
            && device == Device::Cpu
            && !host_metrics::has_bfloat16()
            && group.rank() == 0
        {
            tracing::warn!(
                "this processor does not compute with bfloat16: it is converted to and fro, which takes longer"
            );
        }
        let (mean, sd) = labels;
        Ok(Self {
            mode: train.mode,
            vs,
            device,
            gpu: Gpu::from_device(device),
            network,
            reads_graphs: Network::reads_graphs(settings),
            objective,
            labels: if train.standardise_labels { LabelScale::standard(mean, sd) } else { LabelScale::RAW },
            optimizer,
            schedule,
            reducer,
            clip_norm: train.clip_norm,
            precision: train.precision,
            accumulation: GradientAccumulation::new(train),
            rank: group.rank(),
            world: group.world(),
            step: 0,
            epoch: None,
            learning_rate,
            peer_state: Vec::new(),
        })
    }

    /// Take the code path of `gpu`, wherever the tensors are.
    #[cfg(test)]
    pub(crate) fn run_as_on(&mut self, gpu: Gpu) {
        self.gpu = Some(gpu);
        if let Network::Lazy(lazy) = &mut self.network {
            lazy.batch_types().unwrap();
        }
    }

    /// The next step is `step`; step 0 was the first batch of `first_epoch`, and every epoch has `epoch_batches` on each rank. To call
    /// before the first step: without it no group of accumulated batches ends with an epoch.
    pub fn set_start(&mut self, step: u64, first_epoch: u64, epoch_batches: u64) {
        self.step = step;
        self.accumulation.set_epochs(first_epoch, epoch_batches);
    }

    /// The first step from `step` on in front of which the state is complete: with accumulation, one that starts a group.
    pub fn next_boundary(&self, step: u64) -> u64 {
        self.accumulation.next_boundary(step)
    }

    /// Set the learning rate of `epoch`, from 0. [`Trainer::step`] does it as well.
    pub fn begin_epoch(&mut self, epoch: u64) {
        if self.epoch == Some(epoch) {
            return;
        }
        self.epoch = Some(epoch);
        self.learning_rate = self.schedule.rate(epoch);
        self.optimizer.set_learning_rate(self.learning_rate);
    }

    /// Report the `figure` of a validation, the one that `train.monitor` names and the same on all ranks. A plateau lowers the learning
    /// rate of later epochs.
    pub fn report_validation(&mut self, figure: f64) {
        self.schedule.report_validation(figure);
    }

    /// Learning rate of the current epoch.
    pub fn learning_rate(&self) -> f64 {
        self.learning_rate
    }

    /// A watch on the averaging of gradients for another thread; `None` where there is no other rank.
    pub fn allreduce(&self) -> Option<AllreduceWatch> {
        self.reducer.as_ref().map(Reducer::watch)
    }

    /// The reducer of gradients; `None` where there is no other rank.
    pub(crate) fn reducer(&self) -> Option<&Reducer> {
        self.reducer.as_ref()
    }

    /// Number of trained parameters.
    pub fn parameter_count(&self) -> u64 {
        named_parameters(&self.vs).iter().map(|(_, tensor)| tensor.numel() as u64).sum()
    }

    /// Digest over the bytes of all parameters, by name.
    ///
    /// # Errors
    /// A parameter cannot be copied to the host.
    pub fn parameters_digest(&self) -> Result<String, TrainError> {
        Ok(parameters_digest(&named_parameters(&self.vs))?)
    }

    /// Gather the state that only other ranks have, their replay buffers, for the next [`Trainer::state`]. All ranks call it together, right
    /// before one of them writes the state. Costs nothing without a replay buffer.
    ///
    /// # Errors
    /// A peer is gone.
    pub fn share_state(&mut self, group: &ProcessGroup) -> Result<(), TrainError> {
        self.peer_state.clear();
        let Some(own) = self.objective.replay_buffer().filter(|_| self.world > 1) else { return Ok(()) };
        // Settings alone decide who takes part and with which shapes, not the fill of a rank's buffer.
        let all = own.packed().into_iter().map(|tensor| group.all_gather(&tensor)).collect::<Result<Vec<_>, _>>()?;
        let [pairs, positions] = all.as_slice() else { return Ok(()) };
        for (rank, (pairs, position)) in (0u32..).zip(pairs.iter().zip(positions)) {
            if rank != self.rank {
                self.peer_state.extend(ReplayBuffer::unpacked(&replay_buffer_name(rank), pairs, position)?);
            }
        }
        Ok(())
    }

    /// All that later steps depend on, by name, in front of a step that [`Trainer::next_boundary`] names. The model draws no random
    /// numbers after it was built, the replay buffer draws by count, and the position of the data sampler follows from the step.
    pub fn state(&self) -> Vec<(String, Tensor)> {
        let model = named_variables(&self.vs).into_iter().map(|(name, tensor)| (format!("model/{name}"), tensor));
        let peers = self.peer_state.iter().map(|(name, tensor)| (name.clone(), tensor.shallow_clone()));
        let own = self.objective.replay_buffer().filter(|buffer| !buffer.is_empty());
        let own = own.map(|buffer| buffer.state(&replay_buffer_name(self.rank))).unwrap_or_default();
        model.chain(self.optimizer.state()).chain(self.schedule.state()).chain(own).chain(peers).collect()
    }

    /// Restore a state. Where it lacks the replay buffer of any rank (it was written before the first step, or by a run with fewer ranks),
    /// the buffers of all ranks start empty.
    ///
    /// # Errors
    /// A tensor is missing or has another shape.
    pub fn restore(&mut self, state: &BTreeMap<String, Tensor>) -> Result<(), StateError> {
        for (name, mut tensor) in named_variables(&self.vs) {
            let Some(stored) = state.get(&format!("model/{name}")) else {
                return Err(StateError::MissingParameter { name });
            };
            if stored.size() != tensor.size() || stored.kind() != tensor.kind() {
                return Err(StateError::ParameterShape { name, found: stored.size(), expected: tensor.size() });
            }
            no_grad(|| tensor.f_copy_(stored))?;
        }
        self.optimizer.restore(state)?;
        self.schedule.restore(state)?;
        // The rate may differ from that of the epoch so far.
        self.epoch = None;
        let rank = self.rank;
        // All ranks have as many entries in their buffers, or none has: they see each other's batches, and share their buffers.
        let complete = (0..self.world).all(|rank| ReplayBuffer::is_in(&replay_buffer_name(rank), state));
        if let Some(buffer) = self.objective.replay_buffer_mut()
            && (!complete || !buffer.restore(&replay_buffer_name(rank), state)?)
        {
            buffer.clear();
            tracing::warn!("rank {rank}: the state does not say what every loss remembered: all buffers start empty");
        }
        Ok(())
    }

    /// All tensors that the model computes with, by name: its weights.
    pub fn weights(&self) -> Vec<(String, Tensor)> {
        named_variables(&self.vs)
    }

    /// Load weights; optimizer and schedule stay as they are.
    ///
    /// # Errors
    /// A tensor is missing or has another shape.
    pub fn load_weights(&mut self, weights: &BTreeMap<String, Tensor>) -> Result<(), StateError> {
        for (name, mut tensor) in named_variables(&self.vs) {
            let Some(stored) = weights.get(&name) else { return Err(StateError::MissingParameter { name }) };
            no_grad(|| tensor.f_copy_(stored))?;
        }
        Ok(())
    }

    /// Set the mode of the next forward passes: training or validation.
    ///
    /// # Errors
    /// libtorch fails.
    pub fn set_training(&mut self, training: bool) -> Result<(), TrainError> {
        Ok(self.network.set_training(training)?)
    }

    /// Check a module from a file with a forward pass that changes nothing, before the first step.
    ///
    /// # Errors
    /// The module does not return a prediction for each sample, or fails.
    pub fn check_forward(&mut self, batch: &dyn ModelBatch, masks: &[Tensor]) -> Result<(), TrainError> {
        if !matches!(self.network, Network::Script(_)) {
            return Ok(());
        }
        self.network.set_training(false)?;
        let inputs = batch.inputs(masks, self.reads_graphs, self.device)?;
        no_grad(|| self.forward(&inputs, false))?;
        Ok(self.network.set_training(true)?)
    }

    /// Predictions and labels of a batch, in its order and in the units of the labels; without gradients, and without an entry in the
    /// replay buffer. `masks` are those that were made for it, if any.
    ///
    /// # Errors
    /// The batch does not have what the model reads, or libtorch fails.
    pub fn evaluate(&self, batch: &Batch, masks: &[Tensor]) -> Result<(Vec<f32>, Vec<f32>), TrainError> {
        no_grad(|| {
            let inputs = batch.inputs(masks, self.reads_graphs, self.device)?;
            let output = self.forward(&inputs, false)?;
            Ok((self.labels.unscaled(&output.prediction)?, batch.common.labels.clone()))
        })
    }

    /// Loss of predictions alone, mean over all of them, in the units of training; `predictions` and `labels` have one length and are in
    /// the units of the labels. NaN without any.
    ///
    /// # Errors
    /// libtorch fails.
    pub fn prediction_loss(&self, predictions: &[f32], labels: &[f32]) -> Result<f64, TrainError> {
        // In float64: over a whole set, sums in float32 would lose digits.
        let scaled = |values: &[f32]| -> Result<Tensor, TrainError> {
            let wide: Vec<f64> = values.iter().map(|v| f64::from(*v)).collect();
            Ok(self.labels.scaled(&Tensor::f_from_slice(&wide)?)?)
        };
        let loss = self.objective.prediction_loss(&scaled(predictions)?, &scaled(labels)?);
        Ok(loss.f_double_value(&[])?)
    }
}

/// The network in `vs`, its parameters drawn by the generator of the host: the generators of devices draw other numbers.
fn drawn_on_host(
    vs: &nn::VarStore,
    network: impl Fn(&nn::Path) -> Result<Network, ModelError>,
) -> Result<Network, TrainError> {
    if vs.device() == Device::Cpu {
        return Ok(network(&vs.root())?);
    }
    let host = nn::VarStore::new(Device::Cpu);
    network(&host.root())?;
    let on_device = network(&vs.root())?;
    let drawn = host.variables();
    for (name, mut variable) in vs.variables() {
        if let Some(drawn) = drawn.get(&name) {
            no_grad(|| variable.f_copy_(drawn))?;
        }
    }
    Ok(on_device)
}

/// Name in the state of a rank's replay buffer.
fn replay_buffer_name(rank: u32) -> String {
    format!("sinkhorn/{rank}")
}
