//! One measured run as a pipeline that can be replayed.

use expctl_ledger::{Run, Stage, StepRecord};
use expctl_settings::Mode;
use expctl_stats::median;
use pipeline_model::{Pipeline, RankTrace, Segment, Simulated, StageModel, Wait, simulate};

use super::error::Unpredictable;
use super::processors::SharedProcessors;
use crate::report::bottleneck::MasksBy;
use crate::report::breakdown::Breakdown;

/// Measured steps below which a run says too little of its steps.
pub const MIN_STEPS: usize = 20;
/// Steps of a run that are replayed, at most: enough for every slow step that matters, and some milliseconds to simulate.
const MAX_STEPS: usize = 6000;
/// Steps of the warm-up that are replayed, at most: many times more than a loader has batches ahead.
const MAX_WARMUP: usize = 1000;
/// Share of a step without stages above which its record says too little.
const MAX_OPEN_SHARE: f64 = 0.5;
/// Simulations that search for the work behind times that were measured while processors were shared.
const SEARCH_STEPS: usize = 12;
/// Relative error of these times at which the search ends.
const SEARCH_ERROR: f64 = 0.002;
/// Share of the read bytes that must come from disks or the network before reads count as waits for storage.
const MIN_STORAGE_SHARE: f64 = 0.1;
/// Bytes a second and rank below which they are noise.
const MIN_STORAGE_RATE: f64 = 1e6;
/// Hardware samples of a run below which they say nothing of its storage: the first ones are of cold caches.
const MIN_STORAGE_SAMPLES: u32 = 4;

/// Last column of a trace: time that a step needs to take over a finished batch, while loader threads wake up and compete for its
/// processor. The record has it as exposed *other* without busy time.
pub const HANDOVER: usize = Stage::ALL.len();
/// Columns of a trace.
const COLUMNS: usize = HANDOVER + 1;

/// A measured run, ready to be replayed with changes.
#[derive(Clone, Debug)]
pub struct Replay {
    /// How it was set up.
    pub pipeline: Pipeline,
    /// Work of each rank: seconds of each stage of each step where no processor is shared, by [`Stage`], and of [`HANDOVER`].
    pub traces: Vec<RankTrace>,
    /// Time of the reduction of each step after the last rank arrived, seconds; empty where ranks do not meet.
    pub reductions: Vec<Option<f64>>,
    /// Samples of all ranks together in each step.
    pub samples: Vec<f64>,
    /// Number of the warm-up steps at the start, which do not count.
    pub warmup: usize,
    /// Processors of its nodes.
    pub processors: SharedProcessors,
    /// Processors that an operation of the step keeps busy.
    pub step_processors: f64,
    /// Mean bytes of a batch; `None` if not known.
    pub batch_bytes: Option<f64>,
    /// Bytes of batches that a rank may hold; `None`: no limit is recorded.
    pub buffer_bytes: Option<f64>,
    /// Bytes a second from disks and the network: the highest sampled rate of a rank, and the mean per sample. `None`: nothing, or not
    /// sampled.
    pub storage: Option<StorageUse>,
    /// Measured rate, samples per second of all ranks.
    pub measured: f64,
    /// Measured time of the slowest rank's steps over its number of steps, s.
    pub measured_step_s: f64,
}

/// What a run took from disks and the network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StorageUse {
    /// Highest sampled rate, bytes per second of all ranks.
    pub peak_bytes_per_s: f64,
    /// Bytes for each sample of a batch.
    pub bytes_per_sample: f64,
}

/// Rates of a replay.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Samples per second of all ranks.
    pub samples_per_s: f64,
    /// Times of the measured steps of the slowest rank, s.
    pub step_times: Vec<f64>,
    /// Mean exposed time of a measured step by stage, over the ranks, s; the reduction belongs to *allreduce* and wake-ups to *other*.
    pub exposed: Vec<(Stage, f64)>,
    /// Of these, the time that steps waited for loader threads or other ranks, by stage.
    pub waited: Vec<(Stage, f64)>,
    /// Most batches of a rank at once.
    pub batches: usize,
}

impl Replay {
    /// Prepare a run.
    ///
    /// # Errors
    /// Its record does not have what a replay needs.
    pub fn from_run(run: &Run, on_slurm: bool) -> Result<Self, Unpredictable> {
        let settings = &run.trial.settings;
        let environment = run.environments().last().ok_or(Unpredictable::NoMachine)?;
        let processors = SharedProcessors::from_environment(environment, run.ranks.len(), on_slurm)
            .ok_or(Unpredictable::NoMachine)?;
        let of_warmup = |of: &Vec<StepRecord>| of.iter().take_while(|step| !step.measured).count();
        let warmup = run.ranks.iter().map(of_warmup).max().unwrap_or(0);
        // The replay starts late in a long warm-up: else no measured step would be among those that are replayed.
        let skipped = warmup.saturating_sub(MAX_WARMUP);
        let warmup = warmup - skipped;
        let recorded = run.ranks.iter().map(Vec::len).min().unwrap_or(0);
        let steps = recorded.saturating_sub(skipped).min(MAX_STEPS);
        let ranks: Vec<&[StepRecord]> =
            run.ranks.iter().map(|of| of.get(skipped..skipped + steps).unwrap_or_default()).collect();
        if steps < warmup + MIN_STEPS {
            return Err(Unpredictable::FewSteps { steps: steps.saturating_sub(warmup), needed: MIN_STEPS });
        }
        let measured: Vec<&[StepRecord]> = ranks.iter().map(|of| &of[warmup..]).collect();
        let all = || measured.iter().flat_map(|of| of.iter());
        let breakdown = Breakdown::from_steps(all()).ok_or(Unpredictable::NotCompleted)?;
        let loads = Stage::LOADER.iter().any(|stage| all().any(|step| step.busy[*stage] > 0));
        if breakdown.open_share() > MAX_OPEN_SHARE || !loads {
            return Err(Unpredictable::NoStages { open_share: breakdown.open_share() });
        }
        let masks_by = MasksBy::from_pipeline(&settings.pipeline);
        let threads = settings.loader.workers as usize;
        // The thread of an emulated step sleeps.
        let emulates = settings.train.mode == Mode::Emulate;
        let step_processors = if emulates { 0.0 } else { f64::from(settings.launch.threads.max(1)) };
        let storage = storage_use(run, all().map(|step| step.samples as f64).sum(), all().map(|s| s.bytes_read).sum());
        let mut replay = Self {
            pipeline: Pipeline {
                stages: stage_models(&measured, masks_by, step_processors),
                threads,
                window: threads * settings.loader.prefetch_factor.max(1) as usize,
                max_batches: None,
                processors: processors.of_nodes.clone(),
                wake_s: wake_s(&measured, threads),
            },
            traces: Vec::new(),
            reductions: reductions(&ranks),
            samples: (0..steps).map(|step| ranks.iter().map(|of| of[step].samples as f64).sum()).collect(),
            warmup,
            processors,
            step_processors,
            batch_bytes: crate::report::rates::batch_bytes(all()),
            buffer_bytes: run.data().map(|data| data.buffer_bytes as f64).filter(|bytes| *bytes > 0.0),
            storage,
            measured: 0.0,
            measured_step_s: 0.0,
        };
        replay.traces = ranks.iter().enumerate().map(|(rank, of)| replay.trace(rank, of)).collect();
        replay.limit_batches(1.0);
        replay.measure(&measured);
        replay.wait_for_storage(run, &measured);
        replay.find_work()?;
        Ok(replay)
    }

    /// The recorded times of a rank as seconds by stage.
    fn trace(&self, rank: usize, steps: &[StepRecord]) -> RankTrace {
        let mut seconds = Vec::with_capacity(steps.len() * COLUMNS);
        for step in steps {
            let exposed: u64 = step.exposed.total();
            for stage in Stage::ALL {
                let ns = match (stage, self.pipeline.stages[stage as usize].segment) {
                    // Replayed as the reduction.
                    (Stage::Allreduce, _) => 0,
                    // The step's own work, without waits for a thread to wake up, and what no stage claims.
                    (Stage::Other, _) => {
                        step.exposed[stage].min(step.busy[stage]) + step.wall_ns.saturating_sub(exposed)
                    }
                    (_, Segment::Load) => step.busy[stage],
                    _ => step.exposed[stage],
                };
                seconds.push(ns as f64 / 1e9);
            }
            let handover = if waited(step) { 0 } else { not_busy(step) };
            seconds.push(handover as f64 / 1e9);
        }
        RankTrace::new(self.processors.node_of_rank[rank], COLUMNS, seconds)
    }

    /// Set the limit of batches in memory, for batches of `times` the recorded size.
    pub fn limit_batches(&mut self, times: f64) {
        let limit = self.buffer_bytes.zip(self.batch_bytes);
        self.pipeline.max_batches = limit.map(|(limit, batch)| ((limit / (batch * times)) as usize).max(1));
    }

    fn measure(&mut self, ranks: &[&[StepRecord]]) {
        let seconds = |of: &[StepRecord]| of.iter().map(|step| step.wall_ns as f64 / 1e9).sum::<f64>();
        let rate = |of: &[StepRecord]| of.iter().map(|step| step.samples as f64).sum::<f64>() / seconds(of);
        self.measured = ranks.iter().map(|of| rate(of)).sum();
        let longest = ranks.iter().map(|of| seconds(of)).fold(0.0, f64::max);
        self.measured_step_s = longest / ranks.first().map_or(1, |of| of.len()).max(1) as f64;
    }

    /// Give *read* the share of its time in which it uses a processor. Only where bytes came from disks or the network is it not all of it;
    /// then processor time that no other stage explains is that of reads.
    fn wait_for_storage(&mut self, run: &Run, measured: &[&[StepRecord]]) {
        if self.storage.is_none() {
            return;
        }
        let samples = run.parts.last().map(|part| part.samples.as_slice()).unwrap_or_default();
        let percents: Vec<f64> = samples.iter().flatten().filter_map(|sample| sample.cpu_percent).collect();
        let Some(cpu) = expctl_stats::mean(&percents).map(|percent| percent / 100.0) else { return };
        let (mut read, mut other, mut wall) = (0.0, 0.0, 0.0);
        for (rank, of) in measured.iter().enumerate() {
            wall += of.iter().map(|step| step.wall_ns as f64 / 1e9).sum::<f64>();
            for step in self.warmup..self.traces[rank].steps() {
                for (stage, seconds) in self.traces[rank].step(step).iter().enumerate() {
                    let uses = self.pipeline.stages[stage].processors;
                    if stage == Stage::Read as usize { read += seconds } else { other += seconds * uses }
                }
            }
        }
        if read > 0.0 {
            self.pipeline.stages[Stage::Read as usize].processors = ((cpu * wall - other) / read).clamp(0.0, 1.0);
        }
    }

    /// Replace times that were measured while threads shared processors by the work behind them: the factors of loader and step at which a
    /// replay takes as long in their stages as was measured.
    fn find_work(&mut self) -> Result<(), Unpredictable> {
        let per_rank = self.pipeline.threads as f64 + self.step_processors;
        if self.processors.tightest(per_rank).suffices() {
            return Ok(());
        }
        let recorded = self.traces.clone();
        let target = self.busy_of_traces();
        let mut factors = [1.0_f64; 2];
        for _ in 0..SEARCH_STEPS {
            self.traces = recorded.iter().map(|trace| scaled(trace, &self.pipeline.stages, factors)).collect();
            let took = self.busy_of(&simulate(&self.pipeline, &self.traces, &self.reductions)?);
            let mut error: f64 = 0.0;
            for (factor, (target, took)) in factors.iter_mut().zip(target.iter().zip(took)) {
                if took > 0.0 && *target > 0.0 {
                    error = error.max((target / took - 1.0).abs());
                    *factor = (*factor * target / took).clamp(0.02, 1.0);
                }
            }
            if error < SEARCH_ERROR {
                break;
            }
        }
        Ok(())
    }

    /// Seconds in stages of the loader, and in those of the step, over all ranks and steps.
    fn busy_of_traces(&self) -> [f64; 2] {
        let mut sums = [0.0; 2];
        for trace in &self.traces {
            for step in 0..trace.steps() {
                trace.step(step).iter().enumerate().for_each(|(stage, s)| sums[self.side(stage)] += s);
            }
        }
        sums
    }

    fn busy_of(&self, simulated: &Simulated) -> [f64; 2] {
        let mut sums = [0.0; 2];
        for rank in &simulated.ranks {
            for step in 0..rank.wall_s.len() {
                (0..COLUMNS).for_each(|stage| sums[self.side(stage)] += rank.busy(step, stage));
            }
        }
        sums
    }

    fn side(&self, stage: usize) -> usize {
        usize::from(self.pipeline.stages[stage].segment != Segment::Load)
    }

    /// Replay it.
    ///
    /// # Errors
    /// The record has figures without a meaning.
    pub fn run(&self) -> Result<Replayed, Unpredictable> {
        let simulated = simulate(&self.pipeline, &self.traces, &self.reductions)?;
        let measured = self.warmup..self.samples.len();
        let time = |rank: &pipeline_model::SimulatedRank| rank.wall_s[measured.clone()].iter().sum::<f64>();
        let slowest = simulated.ranks.iter().max_by(|a, b| time(a).total_cmp(&time(b)));
        let step_times = slowest.map(|rank| rank.wall_s[measured.clone()].to_vec()).unwrap_or_default();
        let total: f64 = step_times.iter().sum();
        let samples: f64 = self.samples[measured.clone()].iter().sum();
        // Ranks that never meet have times of their own; their rates add up.
        let samples_per_s = if self.reductions.is_empty() {
            simulated.ranks.iter().map(|rank| samples / simulated.ranks.len() as f64 / time(rank)).sum()
        } else {
            samples / total
        };
        let n = (simulated.ranks.len() * measured.len()) as f64;
        let mean = |of: &dyn Fn(&pipeline_model::SimulatedRank, usize) -> f64| -> f64 {
            simulated.ranks.iter().map(|rank| measured.clone().map(|step| of(rank, step)).sum::<f64>()).sum::<f64>() / n
        };
        let stages = |stage: Stage| {
            let own = mean(&|rank, step| rank.exposed(step, stage as usize));
            let waits = match stage {
                Stage::Allreduce => mean(&|rank, step| rank.waited(step, Wait::Reduce)),
                Stage::Other => mean(&|rank, step| rank.waited(step, Wait::Wake) + rank.exposed(step, HANDOVER)),
                _ => 0.0,
            };
            let is_load = self.side(stage as usize) == 0 && self.pipeline.threads > 0;
            (stage, own + waits, if is_load { own } else { waits })
        };
        let by_stage: Vec<_> = Stage::ALL.into_iter().map(stages).collect();
        Ok(Replayed {
            samples_per_s,
            step_times,
            exposed: by_stage.iter().map(|(stage, exposed, _)| (*stage, *exposed)).collect(),
            waited: by_stage.iter().map(|(stage, _, waited)| (*stage, *waited)).collect(),
            batches: simulated.batches,
        })
    }

    /// Mean seconds of a stage in a measured step of a rank.
    pub fn mean_s(&self, stage: Stage) -> f64 {
        let steps = self.warmup..self.samples.len();
        let of_rank = |trace: &RankTrace| steps.clone().map(|step| trace.step(step)[stage as usize]).sum::<f64>();
        self.traces.iter().map(of_rank).sum::<f64>() / (self.traces.len() * steps.len()).max(1) as f64
    }

    /// Change the seconds of all steps: rank, step, seconds by stage.
    pub fn change_steps(&mut self, mut change: impl FnMut(usize, usize, &mut [f64])) {
        let traces = std::mem::take(&mut self.traces);
        let changed = traces.into_iter().enumerate();
        self.traces = changed.map(|(rank, trace)| trace.map(|step, seconds| change(rank, step, seconds))).collect();
    }
}

/// A trace with the times of the stages that use processors multiplied by the factor of the loader or of the step.
fn scaled(trace: &RankTrace, stages: &[StageModel], factors: [f64; 2]) -> RankTrace {
    trace.clone().map(|_, seconds| {
        for (seconds, stage) in seconds.iter_mut().zip(stages) {
            if stage.processors > 0.0 {
                *seconds *= factors[usize::from(stage.segment != Segment::Load)];
            }
        }
    })
}

/// When each stage runs, and how many processors it keeps busy.
fn stage_models(measured: &[&[StepRecord]], masks_by: MasksBy, step_processors: f64) -> Vec<StageModel> {
    let all = || measured.iter().flat_map(|of| of.iter());
    let on_device = all().any(|step| step.device.is_some());
    let sum = |of: &dyn Fn(&StepRecord) -> u64| all().map(of).sum::<u64>() as f64;
    let model = |stage: Stage| {
        let of_step = stage == Stage::Mask && masks_by != MasksBy::Loader;
        if Stage::LOADER.contains(&stage) && !of_step {
            return StageModel::new(Segment::Load, 1.0);
        }
        let segment = match stage {
            Stage::Clip | Stage::Optimizer | Stage::Other => Segment::AfterReduce,
            _ => Segment::BeforeReduce,
        };
        let processors = match stage {
            // The device computes meanwhile; the host is busy while it launches the work.
            _ if on_device && stage != Stage::Other => {
                let (busy, exposed) = (sum(&|step| step.busy[stage]), sum(&|step| step.exposed[stage]));
                if exposed > 0.0 { (busy / exposed).min(1.0) } else { 0.0 }
            }
            Stage::Forward | Stage::Backward | Stage::Clip | Stage::Optimizer => step_processors,
            _ => 1.0,
        };
        StageModel::new(segment, processors)
    };
    Stage::ALL.into_iter().map(model).chain([StageModel::new(Segment::BeforeReduce, 1.0)]).collect()
}

/// Whether a step waited for its batch.
fn waited(step: &StepRecord) -> bool {
    // Masks may be the step's own work.
    Stage::LOADER.iter().any(|stage| *stage != Stage::Mask && step.exposed[*stage] > 0)
}

/// Exposed *other* time in which the step's thread did not work, ns.
fn not_busy(step: &StepRecord) -> u64 {
    step.exposed[Stage::Other].saturating_sub(step.busy[Stage::Other])
}

/// Time from the end of a batch to the start of the step that waited for it: the median wait, less the exposed stages of the batch.
fn wake_s(measured: &[&[StepRecord]], threads: usize) -> f64 {
    let steps = measured.iter().flat_map(|of| of.iter()).filter(|step| waited(step));
    let all: Vec<f64> = steps.map(|step| not_busy(step) as f64 / 1e9).collect();
    if threads == 0 { 0.0 } else { median(&all).unwrap_or(0.0) }
}

/// Time of each reduction: that of the rank which waited the least, because it came last. Empty where no step has one.
fn reductions(ranks: &[&[StepRecord]]) -> Vec<Option<f64>> {
    let steps = ranks.first().map_or(0, |of| of.len());
    let of_step = |step: usize| {
        let reduces = ranks.iter().any(|of| of[step].busy[Stage::Allreduce] > 0);
        let shortest = ranks.iter().map(|of| of[step].exposed[Stage::Allreduce]).min();
        shortest.filter(|_| reduces && ranks.len() > 1).map(|ns| ns as f64 / 1e9)
    };
    let all: Vec<Option<f64>> = (0..steps).map(of_step).collect();
    if all.iter().all(Option::is_none) { Vec::new() } else { all }
}

/// What a run took from disks and the network, over all of its ranks. `None`: nothing worth mentioning, or not sampled.
fn storage_use(run: &Run, samples: f64, bytes_read: u64) -> Option<StorageUse> {
    let part = run.parts.last()?;
    // The interfaces of a node carry other traffic, too.
    let is_remote = part.usage.iter().any(|usage| usage.remote.is_some_and(|remote| remote.requests > 0));
    let ranks = &part.samples;
    let (mut peak, mut total, mut counted, mut samples_seen) = (0.0, 0.0, 0.0, 0_u32);
    for of_rank in ranks {
        let mut highest: f64 = 0.0;
        for pair in of_rank.windows(2) {
            let seconds = pair[1].clock_ns.saturating_sub(pair[0].clock_ns) as f64 / 1e9;
            let during_steps = pair[1].at_ns.is_some_and(|at| at > 0);
            let network = pair[1].network_received_bytes.filter(|_| is_remote).unwrap_or(0);
            let bytes = (pair[1].disk_read_bytes.unwrap_or(0) + network) as f64;
            if seconds > 0.0 && during_steps {
                highest = highest.max(bytes / seconds);
                total += bytes;
                counted += seconds;
                samples_seen += 1;
            }
        }
        peak += highest;
    }
    let many = total > MIN_STORAGE_SHARE * bytes_read as f64 && total > MIN_STORAGE_RATE * counted;
    let worth = samples_seen >= MIN_STORAGE_SAMPLES && samples > 0.0 && many;
    worth.then(|| StorageUse { peak_bytes_per_s: peak, bytes_per_sample: total / samples })
}
