//! Emulated steps of a variant, and how well they use the accelerator that they stand for.
//!
//! *Accelerator utilisation* (AU) as MLPerf Storage defines it (mlcommons/storage, `Submission_guidelines.md`, *Benchmark metric*; the code is
//! `compute_metrics_train` in `dlio_benchmark/utils/statscounter.py`): total compute time over total running time, without the first step; of
//! several accelerators the mean. Compute is the stage *forward*, in which emulated time is recorded.

use expctl_ledger::{Run, Stage, StepRecord};
use expctl_settings::{EmulatedStepTimes, Trial};
use expctl_stats::{mean, median};
use expctl_text::format;
use serde::Serialize;

/// What AU is, for readers of a table.
pub const AU_MEANING: &str = "AU (derived): accelerator utilisation as MLPerf Storage defines it, the emulated compute time over the wall time of \
    the measured steps, without the first step of a run; mean over the ranks, median over the runs";

/// The emulated steps of a variant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Emulation {
    /// The time of a step in words: `60 ms`.
    pub step: String,
    /// Mean time that was asked for, ms.
    pub mean_step_ms: f64,
    /// Bytes that the ranks sum up after each step.
    pub allreduce_bytes: u64,
    /// How well the accelerators were used; `None` without a completed run.
    pub utilisation: Option<Utilisation>,
}

/// Accelerator utilisation of a variant, in [0, 1].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Utilisation {
    /// Class of these figures.
    pub class: &'static str,
    /// Mean over the ranks, median over the runs.
    pub all_ranks: f64,
    /// Of the rank of any run with the lowest.
    pub lowest_rank: f64,
    /// Of the rank of any run with the highest.
    pub highest_rank: f64,
    /// For each completed run, that of each rank.
    pub runs: Vec<Vec<f64>>,
}

impl Emulation {
    /// The emulated steps of the runs of a variant; `None` if they are not emulated.
    pub fn from_runs(runs: &[&Run]) -> Option<Self> {
        let trial = &runs.first()?.trial;
        let times = EmulatedStepTimes::from_trial(trial)?;
        Some(Self {
            step: step_words(trial, &times),
            mean_step_ms: times.mean_ms(),
            allreduce_bytes: trial.settings.train.allreduce_bytes,
            utilisation: Utilisation::from_runs(runs),
        })
    }

    /// One sentence on what the steps did: `no model is computed: a step waits 60 ms, then for the other ranks`.
    pub fn sentence(&self) -> String {
        let sum = match self.allreduce_bytes {
            0 => String::new(),
            bytes => format!(", with which it sums up {}", format::bytes(bytes as f64)),
        };
        format!("the step is emulated, no model is computed: it waits {}, then for the other ranks{sum}", self.step)
    }
}

impl Utilisation {
    /// That of the completed runs; `None` without one that has a step to count.
    pub fn from_runs(runs: &[&Run]) -> Option<Self> {
        let of_run = |run: &&&Run| run.ranks.iter().map(|steps| rank_utilisation(steps)).collect::<Option<Vec<f64>>>();
        let runs: Vec<Vec<f64>> = runs.iter().filter(|run| run.completed()).filter_map(|run| of_run(&run)).collect();
        Self::from_ranks(runs)
    }

    /// Of the utilisation of each rank, by run; `None` without any.
    fn from_ranks(runs: Vec<Vec<f64>>) -> Option<Self> {
        let means: Vec<f64> = runs.iter().filter_map(|ranks| mean(ranks)).collect();
        let ranks = || runs.iter().flatten().copied();
        Some(Self {
            class: "derived",
            all_ranks: median(&means)?,
            lowest_rank: ranks().reduce(f64::min)?,
            highest_rank: ranks().reduce(f64::max)?,
            runs,
        })
    }

    /// `97.3 % (ranks 95.1 %–99.0 %)`; of equal ranks, and of one, without the range.
    pub fn words(&self) -> String {
        let [all, low, high] = [self.all_ranks, self.lowest_rank, self.highest_rank].map(format::percent);
        if low == high { all } else { format!("{all} (ranks {low}–{high})") }
    }
}

/// Emulated compute time of a rank over the wall time of its measured steps, without the first step of the run; `None` without such steps.
fn rank_utilisation(steps: &[StepRecord]) -> Option<f64> {
    let (mut computed, mut wall) = (0, 0);
    for step in steps.iter().skip(1).filter(|step| step.measured) {
        computed += step.exposed[Stage::Forward];
        wall += step.wall_ns;
    }
    (wall > 0).then(|| computed as f64 / wall as f64)
}

/// How many times in turn are named one by one.
const MANY_TIMES: usize = 4;

/// `60 ms`; `50 ms and 70 ms in turn`; `323 ms (unet3d_h100: MLPerf Storage, …)`; `58 ms on average, drawn from the steps of 41/lazy`.
fn step_words(trial: &Trial, times: &EmulatedStepTimes) -> String {
    let ms = |ms: f64| format!("{} ms", format::milliseconds(ms * 1e6));
    let train = &trial.settings.train;
    match times {
        EmulatedStepTimes::Drawn { .. } => {
            format!("{} on average, drawn from the steps of {}", ms(times.mean_ms()), train.step_times_of)
        }
        EmulatedStepTimes::InTurn(all) => match (all.as_slice(), train.emulate.published()) {
            ([one], Some(step)) => {
                format!("{} ({}: {})", ms(*one), train.emulate.name(), step.source)
            }
            ([one], _) => ms(*one),
            (several, _) if several.len() <= MANY_TIMES => {
                format!("{} in turn", several.iter().map(|one| ms(*one)).collect::<Vec<_>>().join(", "))
            }
            (many, _) => format!("{} on average, {} times in turn", ms(times.mean_ms()), many.len()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of `wall` ms with `forward` ms of compute; the first `warmup` of them are not measured.
    fn steps(n: u64, warmup: u64, wall: u64, forward: u64) -> Vec<StepRecord> {
        (0..n)
            .map(|step| {
                let mut record =
                    StepRecord { step, measured: step >= warmup, wall_ns: wall * 1_000_000, ..Default::default() };
                record.exposed[Stage::Forward] = forward * 1_000_000;
                record
            })
            .collect()
    }

    /// A loader that takes `load` ms a batch beside an accelerator that takes `step` ms: AU is 1 while the loader is faster, else step / load.
    #[test]
    fn constant_loaders_have_the_utilisation_of_arithmetic() {
        for (load, step) in [(10, 60), (60, 60), (80, 60), (120, 60), (600, 60), (1, 323), (400, 323)] {
            let ranks: Vec<f64> =
                (0..8).map(|_| rank_utilisation(&steps(50, 10, load.max(step), step)).unwrap()).collect();
            let expected = (step as f64 / load as f64).min(1.0);
            let all = Utilisation::from_ranks(vec![ranks]).unwrap();
            assert!((all.all_ranks - expected).abs() < 1e-12, "{load} ms: {all:?}");
            assert_eq!((all.lowest_rank, all.highest_rank), (all.all_ranks, all.all_ranks));
        }
    }

    #[test]
    fn the_first_step_is_left_out_and_warm_up_too() {
        // The loader fills its queue in step 0, which takes a hundred times as long.
        let mut all = steps(11, 0, 100, 60);
        all[0].wall_ns *= 100;
        assert_eq!(rank_utilisation(&all), Some(0.6));
        let mut warm = steps(12, 2, 100, 60);
        warm[1].wall_ns *= 100;
        assert_eq!(rank_utilisation(&warm), Some(0.6));
        assert_eq!((rank_utilisation(&[]), rank_utilisation(&steps(1, 0, 100, 60))), (None, None));
    }

    #[test]
    fn ranks_are_averaged_and_runs_have_a_median() {
        let all = Utilisation::from_ranks(vec![vec![0.9, 0.7], vec![0.5, 0.5], vec![1.0, 0.9]]).unwrap();
        assert!((all.all_ranks - 0.8).abs() < 1e-12);
        assert_eq!((all.lowest_rank, all.highest_rank), (0.5, 1.0));
        assert_eq!(all.words(), "80.0 % (ranks 50.0 %–100.0 %)");
        assert_eq!(Utilisation::from_ranks(vec![vec![0.5]]).unwrap().words(), "50.0 %");
        assert_eq!(Utilisation::from_ranks(Vec::new()), None);
    }
}
