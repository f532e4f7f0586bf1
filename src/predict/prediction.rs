//! Predictions for the variants of a job.

use expctl_ledger::{MeasuredJob, Run, Stage};
use expctl_settings::Settings;
use expctl_stats::{Estimate, Interval, rate_over_runs, run_rate};
use serde::Serialize;

use super::batch_cost::FixedShare;
use super::change::{Change, ChangeClass, fixed_shares, scale_loading};
use super::edge_index::RepeatedEdgeIndex;
use super::error::{NotPredicted, PredictError, Unpredictable};
use super::processors::ProcessorNeed;
use super::replay::{Replay, Replayed};
use super::verified::{TrackRecord, Verified};
use crate::report::bottleneck::StageShare;
use crate::report::emulation::Emulation;

/// Error of the model on the job itself above which nothing is predicted.
pub const DEFAULT_BOUND: f64 = 0.15;
/// Uncertainty of a change by the model's own simplifications, in logarithms, for each unit of the logarithm of the predicted gain: a
/// predicted gain of 2 may be 1.74 or 2.3 by these alone. The same for each unit of the logarithm of threads that share a processor.
const MODEL_ERROR: f64 = 0.2;

/// Least uncertainty of the mean rate of some runs, in logarithms: the steps of a single run, or of runs that happen to agree, do not show
/// all that differs between runs.
const MIN_RUN_ERROR: f64 = 0.02;

/// What loading takes beside emulated steps may be off by this share: it decides whether a step waits for its batch at all.
const LOADING_ERROR: f64 = 0.05;

/// Measured steps that show an emulated step's rate, unless the job has fewer.
const MIN_EMULATED_STEPS: u64 = 50;

/// Gains that differ by less than this factor count as the same.
pub const AS_MUCH: f64 = 1.05;

/// Predictions for a job.
#[derive(Clone, Debug, Serialize)]
pub struct Predictions {
    /// Version of this form.
    pub schema: u32,
    /// Number of the job.
    pub job: u64,
    /// Its config.
    pub config: String,
    /// Class of all predicted figures.
    pub class: &'static str,
    /// Largest error on the job itself that was accepted.
    pub bound: f64,
    /// Variants with their predictions.
    pub variants: Vec<PredictedVariant>,
    /// Variants without.
    pub not_predicted: Vec<NotPredicted>,
    /// Predictions that this job was submitted to verify, beside what it measured.
    pub verified: Vec<Verified>,
    /// How far the predictions that were verified in the ledger were off; `None`: none was, or nobody looked.
    pub track_record: Option<TrackRecord>,
}

/// Predictions for one variant at one point of its sweep.
#[derive(Clone, Debug, Serialize)]
pub struct PredictedVariant {
    /// The variant, with its swept settings.
    pub label: String,
    /// Its emulated steps, in words; `None` if they are not emulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
    /// Completed runs that were replayed.
    pub runs: usize,
    /// Measured samples per second of all ranks, geometric mean over the runs.
    pub measured_samples_per_s: f64,
    /// Measured steps per second of the slowest rank.
    pub measured_it_per_s: f64,
    /// How well the model reproduces these runs.
    pub calibration: Calibration,
    /// Ranks of a run.
    pub ranks: usize,
    /// Loader threads of a rank.
    pub loader_threads: usize,
    /// Batches ahead for each thread.
    pub prefetch: u32,
    /// Samples of a batch.
    pub batch_size: u64,
    /// Threads and processors of the node where processors are fewest.
    pub processors: ProcessorNeed,
    /// What the step waits for most now, by the model.
    pub bottleneck: Option<NextBottleneck>,
    /// The changes, from the highest predicted rate to the lowest.
    pub changes: Vec<Prediction>,
    /// Emulated steps in place of its own, of the times that were asked for, in that order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub emulated_steps: Vec<Prediction>,
}

/// How well the model reproduces the measured runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// Rate of the model for the settings of the job, samples per second; geometric mean over the runs.
    pub samples_per_s: f64,
    /// That over the measured rate, less 1.
    pub error: f64,
    /// Largest error of a single run, without sign.
    pub largest_error: f64,
}

/// The stage that takes most of a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NextBottleneck {
    /// The stage and its share of the step.
    #[serde(flatten)]
    pub share: StageShare,
    /// Whether the step waits for it: for loader threads, or for other ranks. Otherwise it is the step's own work.
    pub waits: bool,
}

impl NextBottleneck {
    /// `waits for collate 60.0 %`, `forward 40.0 %`.
    pub fn words(&self) -> String {
        if self.waits { format!("waits for {}", self.share.words()) } else { self.share.words() }
    }

    fn from_replay(replayed: &Replayed) -> Option<Self> {
        let step: f64 = replayed.exposed.iter().map(|(_, seconds)| seconds).sum();
        let longest = |of: &[(Stage, f64)]| of.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
        let (stage, seconds) = longest(&replayed.exposed).filter(|(_, seconds)| *seconds > 0.0)?;
        let waited = replayed.waited.iter().find(|(of, _)| *of == stage).map_or(0.0, |(_, waited)| *waited);
        Some(Self { share: StageShare { stage, share: seconds / step }, waits: waited > seconds / 2.0 })
    }
}

/// A change with what it would bring.
#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    /// The change, in words.
    pub change: Change,
    /// How it is made.
    pub class: ChangeClass,
    /// The setting that makes it.
    pub setting: Option<String>,
    /// Predicted samples per second of all ranks.
    pub samples_per_s: f64,
    /// Where a run with the change is expected in 95 % of cases; `None` if the record is too short to say.
    pub interval: Option<Interval>,
    /// Predicted rate over the measured one.
    pub gain: f64,
    /// Where as many runs with the change, beside as many without, are expected to have their gain in 95 % of cases.
    pub gain_interval: Option<Interval>,
    /// Accelerator utilisation (AU) of emulated steps; `None` of all other changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<f64>,
    /// What the step would wait for most.
    pub bottleneck: Option<NextBottleneck>,
    /// Most bytes of batches at once on a node; `None` if the size of a batch is not known.
    pub batch_memory_bytes: Option<f64>,
    /// Threads and processors of the node where processors are fewest.
    pub processors: ProcessorNeed,
    /// Whether each of these threads has a processor.
    pub processors_suffice: bool,
    /// What the prediction takes for granted.
    pub assumption: Option<&'static str>,
    /// Bytes per second that storage would have to deliver, if that is more than the record ever shows.
    pub beyond_sampled_storage: Option<f64>,
}

impl Predictions {
    /// For all variants of a job, or the one of a name (its label or its variant). `step_ms`: times of emulated steps that are asked for, too.
    ///
    /// # Errors
    /// There is no such variant, or nothing can be predicted of any.
    pub fn from_job(job: &MeasuredJob, only: Option<&str>, bound: f64, step_ms: &[f64]) -> Result<Self, PredictError> {
        let groups = job.by_label();
        let is_named = |label: &str, runs: &[&Run]| {
            only.is_none_or(|name| label == name || runs.iter().any(|run| run.trial.variant == name))
        };
        let chosen: Vec<_> = groups.iter().filter(|(label, runs)| is_named(label, runs)).collect();
        if let Some(name) = only.filter(|_| chosen.is_empty()) {
            let labels = groups.iter().map(|(label, _)| label.clone()).collect();
            return Err(PredictError::NoVariant { job: job.record.job, name: name.to_owned(), labels });
        }
        let on_slurm = job.record.backend == "slurm";
        let found = parallel_map::map(&chosen, |(label, runs)| {
            PredictedVariant::from_runs(label, runs, on_slurm, bound, step_ms)
                .map_err(|reason| NotPredicted { label: label.clone(), reason })
        });
        let (mut variants, mut not_predicted) = (Vec::new(), Vec::new());
        for one in found {
            match one {
                Ok(variant) => variants.push(variant),
                Err(reason) => not_predicted.push(reason),
            }
        }
        if variants.is_empty() && !not_predicted.is_empty() {
            let first = not_predicted.remove(0);
            return Err(PredictError::Nothing { job: job.record.job, first, others: not_predicted });
        }
        let (id, config) = (job.record.job, job.record.config.clone());
        Ok(Self {
            schema: 1,
            job: id,
            config,
            class: "estimated",
            bound,
            variants,
            not_predicted,
            verified: Verified::of_job(job),
            track_record: None,
        })
    }
}

impl PredictedVariant {
    fn from_runs(
        label: &str,
        runs: &[&Run],
        on_slurm: bool,
        bound: f64,
        step_ms: &[f64],
    ) -> Result<Self, Unpredictable> {
        let completed: Vec<&Run> = runs.iter().copied().filter(|run| run.completed()).collect();
        let settings = &completed.first().ok_or(Unpredictable::NotCompleted)?.trial.settings;
        if settings.profiles() {
            return Err(Unpredictable::Profiled);
        }
        if settings.slurm.pack > 1 {
            return Err(Unpredictable::SideBySide { pack: settings.slurm.pack });
        }
        let replays: Vec<Replay> =
            completed.iter().map(|run| Replay::from_run(run, on_slurm)).collect::<Result<_, _>>()?;
        let replayed: Vec<Replayed> = replays.iter().map(Replay::run).collect::<Result<_, _>>()?;
        let calibration = Calibration::from_replays(&replays, &replayed);
        if !calibration.error.is_finite() || calibration.error.abs() > bound {
            return Err(Unpredictable::NotReproduced { error: calibration.error, bound });
        }
        let samples: Vec<Vec<f64>> = replays
            .iter()
            .map(|replay| {
                let ranks = replay.traces.len().max(1) as f64;
                replay.samples[replay.warmup..].iter().map(|samples| samples / ranks).collect()
            })
            .collect();
        let shares = fixed_shares(&replays, &samples, settings.train.mode);
        let first = &replays[0];
        let (batch_size, prefetch) = (settings.loader.batch_size, settings.loader.prefetch_factor);
        let measured = geometric_mean(replays.iter().map(|replay| replay.measured));
        let base = Base { replays: &replays, replayed: &replayed, calibration, prefetch, shares: &shares };
        let changes = Change::of_replay(first, settings, RepeatedEdgeIndex::from_runs(settings, &completed));
        let mut changes: Vec<Prediction> =
            changes.into_iter().map(|change| base.predict(change)).collect::<Result<_, _>>()?;
        // Changes that bring the same stay in their order, the smaller one first.
        let rank = |one: &Prediction| -(one.gain * 1e4).round();
        changes.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
        let emulated_steps = step_ms.iter().map(|ms| base.predict(Change::emulated_step(*ms, settings)));
        let emulated_steps = emulated_steps.collect::<Result<_, _>>()?;
        Ok(Self {
            label: label.to_owned(),
            emulated: Emulation::from_runs(runs).map(|emulation| emulation.sentence()),
            runs: replays.len(),
            measured_samples_per_s: measured,
            measured_it_per_s: geometric_mean(replays.iter().map(|replay| 1.0 / replay.measured_step_s)),
            calibration,
            ranks: first.traces.len(),
            loader_threads: first.pipeline.threads,
            prefetch,
            batch_size,
            processors: processor_need(first),
            bottleneck: NextBottleneck::from_replay(&replayed[0]),
            changes,
            emulated_steps,
        })
    }

    /// The ceiling: the rate if loading were free.
    pub fn ceiling(&self) -> Option<&Prediction> {
        self.changes.iter().find(|one| one.change == Change::LoadingFree)
    }

    /// The `n` settings of the loader that are predicted to bring most, the best first; fewer if fewer bring anything. 0: all settings, also
    /// those that bring nothing, and other batch sizes. Behind them the emulated steps that were asked for.
    pub fn best_settings(&self, n: usize) -> Vec<&Prediction> {
        let is_setting = |one: &&Prediction| one.class == ChangeClass::Setting;
        let mut best: Vec<&Prediction> = if n == 0 {
            self.changes.iter().filter(is_setting).collect()
        } else {
            let mut helpful: Vec<&Prediction> = self.helpful_settings().collect();
            helpful.sort_by(|a, b| b.gain.total_cmp(&a.gain));
            helpful.truncate(n);
            helpful
        };
        best.extend(self.emulated_steps.iter().filter(is_setting));
        best
    }

    /// Settings of the loader that leave the training as it is and are expected to bring more than nothing.
    fn helpful_settings(&self) -> impl Iterator<Item = &Prediction> {
        let helps = |one: &&Prediction| {
            one.class == ChangeClass::Setting && one.change.keeps_training() && one.gain > AS_MUCH && one.likely_helps()
        };
        self.changes.iter().filter(helps)
    }

    /// The setting of the loader that is predicted to bring most; of those that bring as much, the one with the fewest batches in memory.
    /// `None`: none brings more than the job has.
    pub fn best_setting(&self) -> Option<&Prediction> {
        let best = self.helpful_settings().map(|one| one.gain).reduce(f64::max)?;
        let as_much = self.helpful_settings().filter(|one| one.gain >= best / AS_MUCH);
        let memory = |one: &Prediction| one.batch_memory_bytes.unwrap_or(one.processors.threads);
        as_much.min_by(|a, b| memory(a).total_cmp(&memory(b)))
    }
}

impl Prediction {
    /// Warm-up and measured steps of a run that verifies it: of longer steps it takes fewer, so that it is about as long as one of the job.
    /// `None`: as many as the job.
    pub fn run_steps(&self, settings: &Settings) -> Option<(u64, u64)> {
        let measure = &settings.measure;
        if self.utilisation.is_none() || measure.epochs > 0 || self.gain >= 1.0 {
            return None;
        }
        let fewer = |steps: u64| (steps as f64 * self.gain).ceil() as u64;
        // Whole blocks of rows that are read together.
        let block = settings.block_steps().map_or(1, |steps| (steps.ceil() as u64).max(1));
        let steps = fewer(measure.steps).max(MIN_EMULATED_STEPS).next_multiple_of(block);
        Some((fewer(measure.warmup), steps.min(measure.steps)))
    }

    /// Whether it may not as well do as much harm, by its interval. Runs that differ a lot say nothing of a small gain.
    pub fn likely_helps(&self) -> bool {
        self.gain_interval.is_none_or(|gain| gain.low * self.gain > 1.0)
    }

    /// Whether its interval leaves no doubt that it helps.
    pub fn surely_helps(&self) -> bool {
        self.gain_interval.is_some_and(|gain| gain.low > 1.0)
    }
}

impl Calibration {
    fn from_replays(replays: &[Replay], replayed: &[Replayed]) -> Self {
        let errors = replays.iter().zip(replayed).map(|(replay, found)| found.samples_per_s / replay.measured - 1.0);
        let measured = geometric_mean(replays.iter().map(|replay| replay.measured));
        let samples_per_s = geometric_mean(replayed.iter().map(|found| found.samples_per_s));
        let largest_error = errors.map(f64::abs).fold(0.0, f64::max);
        Self { samples_per_s, error: samples_per_s / measured - 1.0, largest_error }
    }
}

/// The measured runs of a variant, which changes refer to.
struct Base<'a> {
    replays: &'a [Replay],
    replayed: &'a [Replayed],
    calibration: Calibration,
    prefetch: u32,
    shares: &'a [FixedShare],
}

impl Base<'_> {
    fn predict(&self, change: Change) -> Result<Prediction, Unpredictable> {
        let shares = |of: fn(&FixedShare) -> f64| self.shares.iter().map(of).collect::<Vec<f64>>();
        let usual = shares(|share| share.value);
        let Changed { rate, gain, replayed, utilisation } = self.change(change, &usual, 1.0)?;
        // Where the cost of another batch size is not known well, the intervals have both ends of what it may be.
        let (mut low, mut high) = (1.0_f64, 1.0_f64);
        if matches!(change, Change::BatchSize { .. }) {
            for end in [shares(|share| share.low), shares(|share| share.high)] {
                let times = self.change(change, &end, 1.0)?.rate.value / rate.value;
                (low, high) = (low.min(times), high.max(times));
            }
        }
        if utilisation.is_some() {
            for loading in [1.0 + LOADING_ERROR, 1.0 / (1.0 + LOADING_ERROR)] {
                let times = self.change(change, &usual, loading)?.rate.value / rate.value;
                (low, high) = (low.min(times), high.max(times));
            }
        }
        // What is emulated takes the time that was asked for.
        let modelled = 1.0 - utilisation.unwrap_or(0.0);
        let model = modelled * self.calibration.largest_error.ln_1p().hypot(MODEL_ERROR * gain.value.ln());
        // Threads beyond the processors never help more than the model says, and may cost caches and switches that it does not know.
        let changed = change.apply(&self.replays[0], self.prefetch, &usual);
        let need = processor_need(&changed);
        let crowd = need.crowd() / processor_need(&self.replays[0]).crowd();
        low *= crowd.max(1.0).powf(-MODEL_ERROR);
        let around = |value: f64, statistical: f64| {
            let factor = statistical.hypot(model).exp();
            Interval { low: value * low / factor, high: value * high * factor }
        };
        // Runs to come vary as those that were measured do, and the gain will be measured between runs.
        let of_runs = std::f64::consts::SQRT_2 * rate.half_width.unwrap_or(0.0).max(MIN_RUN_ERROR);
        let interval = rate.half_width.map(|_| around(rate.value, of_runs));
        // Emulated steps may be alike in all runs; those of the job, which the gain will be measured beside, vary as they did.
        let of_both = |width: f64| if utilisation.is_some() { of_runs.max(width) } else { of_runs };
        let gain_interval = gain.half_width.map(|width| around(gain.value, width.hypot(of_both(width))));
        let per_node = changed.processors.max_ranks_of_node() as f64;
        let storage = changed.storage.filter(|_| change.keeps_storage());
        let storage = storage.map(|storage| (storage.bytes_per_sample * rate.value, storage));
        Ok(Prediction {
            change,
            class: change.class(),
            setting: change.setting(),
            samples_per_s: rate.value,
            interval,
            gain: gain.value,
            gain_interval,
            utilisation,
            bottleneck: NextBottleneck::from_replay(&replayed),
            batch_memory_bytes: changed.batch_bytes.map(|bytes| bytes * replayed.batches as f64 * per_node),
            processors: need,
            processors_suffice: need.suffices(),
            assumption: change.assumption(self.shares),
            beyond_sampled_storage: storage
                .and_then(|(bytes, known)| (bytes > known.peak_bytes_per_s).then_some(bytes)),
        })
    }

    /// The rate with a change: the measured rate of each run times what the change does to its replay. `loading`: the times of the stages that
    /// load a batch, over those of the record.
    fn change(&self, change: Change, shares: &[f64], loading: f64) -> Result<Changed, Unpredictable> {
        let (mut rates, mut gains, mut first, mut utilisation) = (Vec::new(), Vec::new(), None, None);
        for (replay, before) in self.replays.iter().zip(self.replayed) {
            let mut changed = change.apply(replay, self.prefetch, shares);
            if loading != 1.0 {
                scale_loading(&mut changed, loading);
            }
            let after = changed.run()?;
            // The replay of the job itself is off by so much; of an emulated step only what is not emulated is.
            let calibrated = (before.samples_per_s / replay.measured).powf(change.utilisation(&after).unwrap_or(0.0));
            let gain = after.samples_per_s / before.samples_per_s * calibrated;
            utilisation = utilisation.or(change.utilisation(&after));
            let steps = run_rate(&after.step_times, 0, None).map(|rate| rate.it_per_s);
            let value = replay.measured * gain;
            rates.push(steps.map_or(Estimate::plain(value), |rate| rate.times(value / rate.value)));
            gains.push(gain_of_steps(gain, &before.step_times, &after.step_times));
            first.get_or_insert(after);
        }
        let replayed = first.ok_or(Unpredictable::NotCompleted)?;
        let over_runs = |runs: &[Estimate]| -> Result<Uncertain, Unpredictable> {
            let over = Uncertain::from_runs(runs).ok_or(Unpredictable::NotCompleted)?;
            // Runs that do not differ at all have a figure without spread, not one of unknown spread.
            let is_even = runs.len() > 1 && over.half_width.is_none();
            Ok(Uncertain { half_width: if is_even { Some(0.0) } else { over.half_width }, ..over })
        };
        Ok(Changed { rate: over_runs(&rates)?, gain: over_runs(&gains)?, replayed, utilisation })
    }
}

/// What a change does to all runs.
struct Changed {
    rate: Uncertain,
    gain: Uncertain,
    /// The replay of the first run with the change.
    replayed: Replayed,
    /// Accelerator utilisation in it, where steps are emulated.
    utilisation: Option<f64>,
}

/// A figure with half the width of the 95 % interval of its logarithm; `None` if there are too few values for one.
#[derive(Clone, Copy)]
struct Uncertain {
    value: f64,
    half_width: Option<f64>,
}

impl Uncertain {
    fn from_runs(runs: &[Estimate]) -> Option<Self> {
        let over = rate_over_runs(runs)?;
        Some(Self { value: over.value, half_width: over.interval.map(|interval| (interval.high / over.value).ln()) })
    }
}

/// Added to the differences of two series of times relative to their means, so that none of them is negative.
const SHIFT: f64 = 1e6;

/// A gain with the interval that the steps of the two replays of one run leave: that of the mean of their differences, each series relative
/// to its mean, from the block bootstrap of [`run_rate`].
fn gain_of_steps(gain: f64, before: &[f64], after: &[f64]) -> Estimate {
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len().max(1) as f64;
    let (mean_before, mean_after) = (mean(before), mean(after));
    let difference = |(b, a): (&f64, &f64)| SHIFT + a / mean_after - b / mean_before;
    let series: Vec<f64> = before.iter().zip(after).map(difference).collect();
    let rate = run_rate(&series, 0, None).map(|rate| rate.it_per_s);
    let interval = rate.and_then(|rate| Some((rate.interval?.high / rate.value).ln() * SHIFT));
    Estimate { value: gain, interval: interval.map(|width| Interval::from_log(gain.ln(), width)), error: None }
}

/// Threads that compute at once on the node with the fewest processors for them.
fn processor_need(replay: &Replay) -> ProcessorNeed {
    replay.processors.tightest(replay.pipeline.threads as f64 + replay.step_processors)
}

fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = values.map(f64::ln).collect();
    (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
}
