//! What could be changed, and what each change does to a replay.

use expctl_ledger::Stage;
use expctl_settings::{Collation, Loader, Mode, Pipeline, Settings, Train};
use pipeline_model::Segment;
use serde::{Serialize, Serializer};
use serde_json::Value as Json;

use super::batch_cost::FixedShare;
use super::edge_index::{BYTE_SHARE, RepeatedEdgeIndex};
use super::replay::{HANDOVER, Replay, Replayed};

/// Counts of loader threads that are tried.
const THREADS: [usize; 5] = [0, 1, 2, 4, 8];
/// Batches ahead for each thread that are tried.
const PREFETCH: [usize; 4] = [1, 2, 4, 8];
/// Share of a stage in all stages of its side below which nobody asks what it costs.
const MIN_SHARE: f64 = 0.01;

/// Share of the measured step that the step's own work must have for a ceiling.
const MIN_STEP_SHARE: f64 = 0.02;

/// A change to a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// So many loader threads in each rank.
    Threads(usize),
    /// So many batches ahead for each loader thread.
    Prefetch(usize),
    /// Batches of so many samples, where the run has batches of `from`.
    BatchSize {
        /// Samples of a batch.
        to: u64,
        /// Samples of a batch of the run.
        from: u64,
    },
    /// Batches hold no edge index of each sample: the one of the graph serves all.
    OneEdgeIndex(RepeatedEdgeIndex),
    /// A stage takes half as long.
    StageFaster(Stage),
    /// A stage takes no time.
    StageFree(Stage),
    /// Masks that loader threads make are made in the step, or the other way round.
    MasksMoved {
        /// To the step.
        to_step: bool,
    },
    /// Waits for storage are half as long.
    StorageFaster,
    /// The model's stages take half as long.
    ModelFaster,
    /// In each step all ranks take as long as their mean.
    EvenRanks,
    /// The reduction adds nothing to a step: all of it overlaps the backward pass.
    ReduceHidden,
    /// Batches are always there.
    LoadingFree,
    /// Steps are those of an emulated accelerator: they take this long, and no processor.
    EmulatedStep {
        /// Time of a step, ms.
        ms: f64,
        /// Whether settings make it: a program's steps are its own, and a run of epochs trains.
        is_setting: bool,
    },
}

/// How a change is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeClass {
    /// A setting of the config.
    Setting,
    /// Other code, data or hardware.
    WhatIf,
}

impl Serialize for Change {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.words())
    }
}

impl Change {
    /// The changes worth a prediction.
    pub fn of_replay(replay: &Replay, settings: &Settings, edge_index: Option<RepeatedEdgeIndex>) -> Vec<Self> {
        let (batch_size, prefetch) = (settings.loader.batch_size, settings.loader.prefetch_factor);
        let threads = replay.pipeline.threads;
        let mut all: Vec<Self> = Vec::new();
        all.extend(THREADS.into_iter().filter(|n| *n != threads).map(Self::Threads));
        if threads > 0 {
            all.extend(PREFETCH.into_iter().filter(|n| *n != prefetch as usize).map(Self::Prefetch));
        }
        let batch = |to: u64| Self::BatchSize { to, from: batch_size };
        all.extend((batch_size >= 2).then(|| batch(batch_size / 2)));
        all.push(batch(2 * batch_size));
        all.extend(edge_index.map(Self::OneEdgeIndex));
        let load: Vec<Stage> = of_segment(replay, |segment| segment == Segment::Load);
        let sum = |stages: &[Stage]| stages.iter().map(|stage| replay.mean_s(*stage)).sum::<f64>();
        let matters = |stage: &Stage| replay.mean_s(*stage) > MIN_SHARE * sum(&load);
        for stage in load.iter().copied().filter(matters) {
            all.extend([Self::StageFaster(stage), Self::StageFree(stage)]);
        }
        let masks = replay.mean_s(Stage::Mask);
        if masks > 0.0 && threads > 0 {
            all.push(Self::MasksMoved { to_step: load.contains(&Stage::Mask) });
        }
        let storage = replay.pipeline.stages[Stage::Read as usize].processors < 1.0;
        all.extend(storage.then_some(Self::StorageFaster));
        all.extend((sum(&MODEL) > 0.0).then_some(Self::ModelFaster));
        if !replay.reductions.is_empty() {
            all.extend([Self::EvenRanks, Self::ReduceHidden]);
        }
        // Steps that do next to nothing have no ceiling.
        let step = of_segment(replay, |segment| segment != Segment::Load);
        all.extend((sum(&step) > MIN_STEP_SHARE * replay.measured_step_s).then_some(Self::LoadingFree));
        all
    }

    /// Steps of an emulated accelerator that take `ms`.
    pub fn emulated_step(ms: f64, settings: &Settings) -> Self {
        Self::EmulatedStep { ms, is_setting: !settings.runs_command() && settings.train.epochs == 0 }
    }

    /// What it is, in words.
    pub fn words(self) -> String {
        match self {
            Self::Threads(0) => "load in the step, without loader threads".to_owned(),
            Self::Threads(1) => "1 loader thread".to_owned(),
            Self::Threads(n) => format!("{n} loader threads"),
            Self::Prefetch(1) => "1 batch ahead per thread".to_owned(),
            Self::Prefetch(n) => format!("{n} batches ahead per thread"),
            Self::BatchSize { to, from } => {
                format!("batches of {to} samples ({}×)", if to > from { "2" } else { "½" })
            }
            Self::OneEdgeIndex(_) => "one edge index for all samples".to_owned(),
            Self::StageFaster(stage) => format!("{stage} 2× as fast"),
            Self::StageFree(Stage::Read) => "read free: all data in memory".to_owned(),
            Self::StageFree(Stage::Decode) => "decode free: data stored as they are used".to_owned(),
            Self::StageFree(stage) => format!("{stage} free"),
            Self::MasksMoved { to_step: true } => "masks in the step, not on loader threads".to_owned(),
            Self::MasksMoved { to_step: false } => "masks on loader threads, not in the step".to_owned(),
            Self::StorageFaster => "storage 2× as fast".to_owned(),
            Self::ModelFaster => "model 2× as fast: forward to optimizer".to_owned(),
            Self::EvenRanks => "no slowest rank".to_owned(),
            Self::ReduceHidden => "all-reduce wholly beside the backward pass".to_owned(),
            Self::LoadingFree => "loading free: the ceiling".to_owned(),
            Self::EmulatedStep { ms, .. } => format!("steps of {ms} ms, emulated"),
        }
    }

    /// The keys of the settings that make it, with their values. Empty: no setting does.
    pub fn assignments(self) -> Vec<(&'static str, Json)> {
        match self {
            Self::Threads(n) => vec![(Loader::WORKERS.name(), n.into())],
            Self::Prefetch(n) => vec![(Loader::PREFETCH_FACTOR.name(), n.into())],
            Self::BatchSize { to, .. } => vec![(Loader::BATCH_SIZE.name(), to.into())],
            Self::OneEdgeIndex(of) if of.is_setting => {
                vec![(Pipeline::COLLATION.name(), Collation::SharedIndex.name().into())]
            }
            Self::EmulatedStep { ms, is_setting: true } => {
                // 10, not 10.0.
                let time = if ms.fract() == 0.0 { Json::from(ms as u64) } else { Json::from(ms) };
                vec![(Train::MODE.name(), Mode::Emulate.name().into()), (Train::STEP_MS.name(), time)]
            }
            _ => Vec::new(),
        }
    }

    /// The settings that make it, each as `--set` takes it. `None`: no setting does.
    pub fn setting(self) -> Option<String> {
        let assigned = |(key, value): (&'static str, Json)| match value.as_str() {
            Some(word) => format!("{key}={word}"),
            None => format!("{key}={value}"),
        };
        let all: Vec<String> = self.assignments().into_iter().map(assigned).collect();
        (!all.is_empty()).then(|| all.join(" "))
    }

    /// Whether it leaves the training as it is: another batch size does not, and an emulated step trains nothing.
    pub fn keeps_training(self) -> bool {
        !matches!(self, Self::BatchSize { .. } | Self::EmulatedStep { .. })
    }

    /// Accelerator utilisation in a replay with the change: emulated time over the time of a step, at most 1. `None`: steps are not emulated.
    pub fn utilisation(self, after: &Replayed) -> Option<f64> {
        let Self::EmulatedStep { ms, .. } = self else { return None };
        let mean_s = expctl_stats::mean(&after.step_times)?;
        (mean_s > 0.0).then(|| (ms / 1e3 / mean_s).min(1.0))
    }

    /// Whether storage stays as it is: without reads, or with another storage, its sampled rates say nothing.
    pub fn keeps_storage(self) -> bool {
        !matches!(self, Self::StageFree(Stage::Read) | Self::StorageFaster | Self::LoadingFree)
    }

    /// How it is made.
    pub fn class(self) -> ChangeClass {
        if self.setting().is_some() { ChangeClass::Setting } else { ChangeClass::WhatIf }
    }

    /// What the prediction takes for granted; `None` if nothing beyond the model.
    pub fn assumption(self, shares: &[FixedShare]) -> Option<&'static str> {
        match self {
            Self::BatchSize { .. } if shares.iter().all(|share| share.shown) => {
                Some("times grow with the samples as batches of other sizes in the record show")
            }
            Self::BatchSize { .. } => Some(
                "times grow with the samples; the interval reaches to times that do not, which the record cannot tell",
            ),
            Self::OneEdgeIndex(RepeatedEdgeIndex { measured: true, .. }) => {
                Some("without the edge index, collation saves what its copies were timed to take")
            }
            Self::OneEdgeIndex(_) => Some(
                "collation does nothing but copy the edge index; pinning and transfer go by bytes, of which it is 16 in 17",
            ),
            Self::MasksMoved { .. } => Some("masks take as long there"),
            Self::Threads(_) => Some("a batch takes as long however many threads load, if each has a processor"),
            Self::EmulatedStep { .. } => {
                Some("batches reach the accelerator as they reached the step, whose thread wakes up as late as it did")
            }
            _ => None,
        }
    }

    /// Make it. `shares`: by stage, which share of its time does not grow with a batch, as [`Self::BatchSize`] uses it.
    pub fn apply(self, replay: &Replay, prefetch: u32, shares: &[f64]) -> Replay {
        let mut changed = replay.clone();
        let prefetch = prefetch.max(1) as usize;
        match self {
            Self::Threads(n) => {
                changed.pipeline.threads = n;
                changed.pipeline.window = (n * prefetch).max(1);
                if n == 0 {
                    changed.change_steps(|_, _, seconds| seconds[HANDOVER] = 0.0);
                }
            }
            Self::Prefetch(n) => changed.pipeline.window = (changed.pipeline.threads * n).max(1),
            Self::BatchSize { to, from } => {
                let times = to as f64 / from.max(1) as f64;
                changed.change_steps(|_, _, seconds| {
                    seconds.iter_mut().zip(shares).for_each(|(s, share)| *s *= FixedShare::factor(*share, times));
                });
                changed.samples.iter_mut().for_each(|samples| *samples *= times);
                changed.limit_batches(times);
                changed.batch_bytes = changed.batch_bytes.map(|bytes| bytes * times);
            }
            Self::OneEdgeIndex(of) => {
                scale(&mut changed, &[Stage::Collate], 1.0 - of.share);
                scale(&mut changed, &[Stage::Pin, Stage::Transfer], 1.0 - BYTE_SHARE);
                changed.limit_batches(1.0 - BYTE_SHARE);
                changed.batch_bytes = changed.batch_bytes.map(|bytes| bytes * (1.0 - BYTE_SHARE));
            }
            Self::StageFaster(stage) => scale(&mut changed, &[stage], 0.5),
            Self::StageFree(stage) => scale(&mut changed, &[stage], 0.0),
            Self::MasksMoved { to_step } => {
                let segment = if to_step { Segment::BeforeReduce } else { Segment::Load };
                changed.pipeline.stages[Stage::Mask as usize].segment = segment;
            }
            Self::StorageFaster => {
                // Of a second, `share` is work and the rest waits.
                let share = changed.pipeline.stages[Stage::Read as usize].processors;
                let remaining = share + (1.0 - share) / 2.0;
                scale(&mut changed, &[Stage::Read], remaining);
                changed.pipeline.stages[Stage::Read as usize].processors = share / remaining;
            }
            Self::ModelFaster => scale(&mut changed, &MODEL, 0.5),
            Self::EvenRanks => even_ranks(&mut changed),
            Self::ReduceHidden => changed.reductions.iter_mut().flatten().for_each(|seconds| *seconds = 0.0),
            Self::LoadingFree => scale_loading(&mut changed, 0.0),
            Self::EmulatedStep { ms, .. } => emulate(&mut changed, ms),
        }
        changed
    }
}

/// Multiply the times of all stages that load a batch.
pub fn scale_loading(replay: &mut Replay, times: f64) {
    let load = of_segment(replay, |segment| segment == Segment::Load);
    scale(replay, &load, times);
}

/// Steps that wait `ms`, and then for the other ranks.
fn emulate(replay: &mut Replay, ms: f64) {
    // In the record of emulated steps *other* has already how late the thread of a step wakes up.
    let was_emulated = replay.step_processors == 0.0;
    let late_s = if ms > 0.0 && !was_emulated { replay.pipeline.wake_s } else { 0.0 };
    replay.change_steps(|_, _, seconds| {
        MODEL.iter().for_each(|stage| seconds[*stage as usize] = 0.0);
        seconds[Stage::Forward as usize] = ms / 1e3;
        seconds[Stage::Other as usize] += late_s;
    });
    replay.pipeline.stages[Stage::Forward as usize].processors = 0.0;
    replay.step_processors = 0.0;
    if replay.traces.len() > 1 && !was_emulated {
        // A barrier sends nothing: of the exchanges of the job the shortest is the closest to it.
        let barrier_s = replay.reductions.iter().flatten().copied().reduce(f64::min).unwrap_or(0.0);
        replay.reductions = vec![Some(barrier_s); replay.samples.len()];
    }
}

/// Stages of the model.
const MODEL: [Stage; 4] = [Stage::Forward, Stage::Backward, Stage::Clip, Stage::Optimizer];

fn of_segment(replay: &Replay, is: impl Fn(Segment) -> bool) -> Vec<Stage> {
    Stage::ALL.into_iter().filter(|stage| is(replay.pipeline.stages[*stage as usize].segment)).collect()
}

fn scale(replay: &mut Replay, stages: &[Stage], times: f64) {
    replay.change_steps(|_, _, seconds| stages.iter().for_each(|stage| seconds[*stage as usize] *= times));
}

/// Give each rank, in each step, the mean time of all ranks in each stage.
fn even_ranks(replay: &mut Replay) {
    let n = replay.traces.len().max(1) as f64;
    let mean = |step: usize, stage: usize| replay.traces.iter().map(|trace| trace.step(step)[stage]).sum::<f64>() / n;
    let columns = replay.pipeline.stages.len();
    let means: Vec<Vec<f64>> =
        (0..replay.samples.len()).map(|step| (0..columns).map(|stage| mean(step, stage)).collect()).collect();
    replay.change_steps(|_, step, seconds| seconds.copy_from_slice(&means[step]));
}

/// By stage, which share of its time does not grow with the samples of a batch. The optimizer and what is beside the batch is taken for
/// fixed where the record does not say it; an emulated step, which is the stage *forward*, is.
pub fn fixed_shares(replays: &[Replay], samples: &[Vec<f64>], mode: Mode) -> Vec<FixedShare> {
    let share = |stage: Stage| {
        if mode == Mode::Emulate && stage == Stage::Forward {
            return FixedShare::FIXED;
        }
        let times = replays.iter().flat_map(|replay| {
            let steps = replay.warmup..replay.samples.len();
            steps.map(move |step| replay.traces[0].step(step)[stage as usize])
        });
        let times: Vec<f64> = times.collect();
        if times.iter().all(|time| *time == 0.0) {
            return FixedShare::FIXED;
        }
        let found = FixedShare::from_batches(&samples.concat(), &times);
        let beside = matches!(stage, Stage::Clip | Stage::Optimizer | Stage::Allreduce);
        let small = stage == Stage::Other && mode != Mode::Data;
        if !found.shown && (beside || small) { FixedShare::FIXED } else { found }
    };
    Stage::ALL.into_iter().map(share).chain([FixedShare::FIXED]).collect()
}
