use expctl_dist::{AllreduceWatch, Autocast, ProcessGroup, Reducer, ReducerOptions, SentAs};
use expctl_record::{GradientCompression, Mode, Precision, Settings};
use graph_loader::CellGraph;
use tch::{Device, Tensor, nn, no_grad};

use super::{Accumulation, TrainError};
use crate::device::Gpu;
use crate::losses::{LabelScale, Objective};
use crate::models::{ModelError, Network, named_parameters, parameters_digest};
use crate::optimizer::Optimizer;
use crate::schedule::Schedule;

/// A model with what trains it.
pub struct Trainer {
    pub(super) mode: Mode,
    pub(super) vs: nn::VarStore,
    pub(super) device: Device,
    /// None where the device is the host.
    pub(super) gpu: Option<Gpu>,
    pub(super) network: Network,
    pub(super) reads_graphs: bool,
    pub(super) objective: Objective,
    pub(super) labels: LabelScale,
    pub(super) optimizer: Optimizer,
    pub(super) schedule: Schedule,
    /// None where there is no other rank.
    pub(super) reducer: Option<Reducer>,
    pub(super) clip_norm: f64,
    pub(super) precision: Precision,
    pub(super) accumulation: Accumulation,
    pub(super) rank: u32,
    pub(super) world: u32,
    /// The step that comes next.
    pub(super) step: u64,
    /// The epoch that the learning rate is of.
    pub(super) epoch: Option<u64>,
    pub(super) learning_rate: f64,
    /// What the other ranks remember, as of the last step, where it was asked for.
    pub(super) shared: Vec<(String, Tensor)>,
}

impl Trainer {
    /// Model, optimizer and reducer as `settings` say, on `device`; `labels` are the mean and the standard deviation of all
    /// labels of the data set. All ranks start from rank 0's parameters, which are the same on every kind of device.
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
        Self::with(settings, labels, group, device, |vs| Network::new(settings, graph, vs))
    }

    /// Do what is done for `gpu`, wherever the tensors are.
    #[cfg(test)]
    pub(crate) fn work_as_on(&mut self, gpu: Gpu) {
        self.gpu = Some(gpu);
    }

    /// The same for rows of `genes` values, of which a model tells the class, of `classes`.
    ///
    /// # Errors
    /// As with [`Trainer::new`].
    pub fn of_array(
        settings: &Settings,
        genes: u64,
        classes: u64,
        group: &ProcessGroup,
        device: Device,
    ) -> Result<Self, TrainError> {
        Self::with(settings, (0.0, 1.0), group, device, |vs| Network::of_array(settings, genes, classes, vs))
    }

    fn with(
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
        let objective = Objective::of_rank(settings, group.rank());
        let mut optimizer = Optimizer::new(train, &vs)?;
        let schedule = Schedule::new(train)?;
        let learning_rate = schedule.at(0);
        optimizer.set_learning_rate(learning_rate);
        // Without reconstruction its heads get no gradient.
        let options = ReducerOptions {
            find_unused: train.mode != Mode::ZeroLoss && network.leaves_out(&objective),
            sent: match train.gradient_compression {
                GradientCompression::None => SentAs::Own,
                GradientCompression::Fp16 => SentAs::Float16,
                GradientCompression::Bf16 => SentAs::Bfloat16,
            },
            ..ReducerOptions::default()
        };
        // A single rank has nothing to average, as the published runs on one device had nothing.
        let reducer = (group.world() > 1).then(|| Reducer::new(&named_parameters(&vs), group, options)).transpose()?;
        if train.precision == Precision::Bf16Mixed && !Autocast::is_native(device) && group.rank() == 0 {
            tracing::warn!(
                "this processor does not compute with bfloat16: it is converted to and fro, which takes longer"
            );
        }
        let (mean, sd) = labels;
        Ok(Self {
            mode: train.mode,
            vs,
            device,
            gpu: Gpu::of(device),
            network,
            reads_graphs: Network::reads_graphs(settings),
            objective,
            labels: if train.standardise_labels { LabelScale::standard(mean, sd) } else { LabelScale::RAW },
            optimizer,
            schedule,
            reducer,
            clip_norm: train.clip_norm,
            precision: train.precision,
            accumulation: Accumulation::new(train),
            rank: group.rank(),
            world: group.world(),
            step: 0,
            epoch: None,
            learning_rate,
            shared: Vec::new(),
        })
    }

    /// The next step is `step`; step 0 was the first batch of `first_epoch`, and every epoch has `epoch_batches` on each
    /// rank. To call before the first step: without it no group of accumulated batches ends with an epoch.
    pub fn starts_at(&mut self, step: u64, first_epoch: u64, epoch_batches: u64) {
        self.step = step;
        self.accumulation.set_epochs(first_epoch, epoch_batches);
    }

    /// The first step from `step` on in front of which the state is whole: with accumulation, one that starts a group.
    pub fn boundary(&self, step: u64) -> u64 {
        self.accumulation.boundary(step)
    }

    /// Take the learning rate of `epoch`, from 0. [`Trainer::step`] does it as well.
    pub fn begin_epoch(&mut self, epoch: u64) {
        if self.epoch == Some(epoch) {
            return;
        }
        self.epoch = Some(epoch);
        self.learning_rate = self.schedule.at(epoch);
        self.optimizer.set_learning_rate(self.learning_rate);
    }

    /// A validation came to `figure`, of the kind that `train.monitor` names and the same on all ranks. A plateau lowers
    /// the learning rate of the epochs behind it.
    pub fn validated(&mut self, figure: f64) {
        self.schedule.validated(figure);
    }

    /// Learning rate of the epoch that was begun last.
    pub fn learning_rate(&self) -> f64 {
        self.learning_rate
    }

    /// A look at the averaging of gradients for another thread; none where there is no other rank.
    pub fn allreduce(&self) -> Option<AllreduceWatch> {
        self.reducer.as_ref().map(Reducer::watch)
    }

    /// What averages gradients; none where there is no other rank.
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
}

/// The network in `vs`, its parameters drawn by the generator of the host: those of devices draw other numbers.
fn drawn_on_host(
    vs: &nn::VarStore,
    network: impl Fn(&nn::Path) -> Result<Network, ModelError>,
) -> Result<Network, TrainError> {
    if vs.device() == Device::Cpu {
        return Ok(network(&vs.root())?);
    }
    let host = nn::VarStore::new(Device::Cpu);
    network(&host.root())?;
    let made = network(&vs.root())?;
    let drawn = host.variables();
    for (name, mut variable) in vs.variables() {
        if let Some(drawn) = drawn.get(&name) {
            no_grad(|| variable.f_copy_(drawn))?;
        }
    }
    Ok(made)
}
