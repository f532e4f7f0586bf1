//! Figures of completed runs, from measured steps only.

pub use expctl_record::Rates;
use expctl_record::{PerStage, Run, Stage, StepRecord, StepTotals};

use crate::stats::{Estimate, Periods, mean, median, quantile, run_rate};

/// Measured steps of a rank.
pub fn measured(steps: &[StepRecord]) -> impl Iterator<Item = &StepRecord> {
    steps.iter().filter(|s| s.measured)
}

/// Measured steps over their summed wall time, and samples over it; none without measured steps.
pub fn rank_rates(steps: &[StepRecord]) -> Option<Rates> {
    StepTotals::from_steps(steps).rates()
}

/// Rates of a run; none if it did not complete or a rank has no measured step.
pub fn run_rates(run: &Run) -> Option<Rates> {
    run_rates_over(run, |step| step.wall_ns)
}

/// Rates of a run over what `time` says of each step, in ns; none if it did not complete or a rank has no such time.
pub fn run_rates_over(run: &Run, time: impl Fn(&StepRecord) -> u64) -> Option<Rates> {
    let totals: Vec<StepTotals> = run.ranks.iter().map(|steps| StepTotals::with_time(steps, &time)).collect();
    Rates::from_ranks(&totals).filter(|_| run.completed())
}

/// Seconds that a run was measured for: the summed wall time of the measured steps of the rank that has least; none of a run
/// without rates.
pub fn measured_s(run: &Run) -> Option<f64> {
    run_rates(run)?;
    run.ranks.iter().map(|steps| StepTotals::from_steps(steps).wall_ns as f64 / 1e9).reduce(f64::min)
}

/// it/s and samples/s of a run, with the intervals that its own steps give; none where it has no rates.
///
/// The interval is that of the slowest rank, whose rate is the run's. Samples/s are as uncertain as it/s: the batches of a run are
/// alike.
pub fn run_estimates(run: &Run) -> Option<(Estimate, Estimate)> {
    let rates = run_rates(run)?;
    let slowest = run.ranks.iter().min_by(|a, b| {
        let rate = |steps: &[StepRecord]| rank_rates(steps).map_or(f64::INFINITY, |r| r.it_per_s);
        rate(a).total_cmp(&rate(b))
    })?;
    let times: Vec<f64> = measured(slowest).map(|step| step.wall_ns as f64 / 1e9).collect();
    let it_per_s = run_rate(&times, 0, periods(run, slowest).as_ref())?.it_per_s;
    Some((it_per_s, it_per_s.times(rates.samples_per_s / rates.it_per_s)))
}

/// The periods in which a rank reads blocks of rows, of its measured steps, by the settings of the trial; none where it reads none.
///
/// A block begins with each epoch, so an epoch that is shorter than a block is the period.
pub fn periods(run: &Run, steps: &[StepRecord]) -> Option<Periods> {
    let block = run.trial.settings.block_steps()?;
    // Where the first measured step, and each behind a gap or in a new epoch, stands in its epoch.
    let (mut origins, mut n) = (Vec::new(), 0_usize);
    let mut shortest = f64::INFINITY;
    let mut epoch_start = steps.first()?.step;
    let mut before: Option<&StepRecord> = None;
    for step in steps {
        let anew = before.is_some_and(|before| before.epoch != step.epoch);
        if anew {
            shortest = shortest.min(step.step.saturating_sub(epoch_start) as f64);
            epoch_start = step.step;
        }
        if step.measured {
            if n == 0 || anew || before.is_none_or(|before| !before.measured) {
                origins.push(n as f64 - (step.step.saturating_sub(epoch_start) as f64) % block);
            }
            n += 1;
        }
        before = Some(step);
    }
    Periods::new(block.min(shortest), &origins, n)
}

/// Rates of all runs that have any.
pub fn all_rates(runs: &[&Run]) -> Vec<Rates> {
    runs.iter().filter_map(|run| run_rates(run)).collect()
}

/// Median and 5th and 95th percentile of a set of step times, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTimes {
    /// Median.
    pub median: f64,
    /// 5th percentile.
    pub p5: f64,
    /// 95th percentile.
    pub p95: f64,
}

/// Step times over all given steps; none of no steps.
pub fn step_times<'a>(steps: impl Iterator<Item = &'a StepRecord>) -> Option<StepTimes> {
    let walls: Vec<f64> = steps.map(|s| s.wall_ns as f64).collect();
    Some(StepTimes { median: median(&walls)?, p5: quantile(&walls, 0.05)?, p95: quantile(&walls, 0.95)? })
}

/// All measured steps of the completed runs among `runs`, of all ranks.
pub fn completed_steps<'a>(runs: &'a [&'a Run]) -> impl Iterator<Item = &'a StepRecord> {
    runs.iter().filter(|r| r.completed()).flat_map(|r| r.ranks.iter()).flat_map(|steps| measured(steps))
}

/// Mean size of a rank's collated batch over all given steps, bytes; none of no steps, and of batches whose size is not known.
pub fn batch_bytes<'a>(steps: impl Iterator<Item = &'a StepRecord>) -> Option<f64> {
    let bytes: Vec<f64> = steps.map(|s| s.bytes_batch as f64).collect();
    mean(&bytes).filter(|mean| *mean > 0.0)
}

/// Where the mean step of a variant goes, ns per step and rank.
///
/// Invariant: the exposed times and `unattributed` add up to `wall`.
#[derive(Clone, Debug, PartialEq)]
pub struct Breakdown {
    /// Number of steps that were averaged.
    pub steps: u64,
    /// Wall time.
    pub wall: f64,
    /// Samples of a rank's step.
    pub samples: f64,
    /// What the step waited for each stage; none for a stage that did not happen.
    pub exposed: Vec<(Stage, Option<f64>)>,
    /// What was worked on each stage, summed over the threads of the rank.
    pub busy: Vec<(Stage, Option<f64>)>,
    /// What passed on the device between the start and the end of each stage's work there, mean over the steps that have such
    /// times; none where no step has.
    pub device: Option<Vec<(Stage, Option<f64>)>>,
    /// Wall time that no stage claims; below zero if the stages claim more than the wall time.
    pub unattributed: f64,
}

impl Breakdown {
    /// Mean over the given steps; none of no steps.
    pub fn of<'a>(steps: impl Iterator<Item = &'a StepRecord>) -> Option<Self> {
        let (mut n, mut wall, mut samples) = (0u64, 0u64, 0u64);
        let (mut exposed, mut busy) = (PerStage::<u64>::default(), PerStage::<u64>::default());
        let (mut on_device, mut device) = (0u64, PerStage::<u64>::default());
        for step in steps {
            on_device += u64::from(step.device.is_some());
            n += 1;
            wall += step.wall_ns;
            samples += step.samples;
            for stage in Stage::ALL {
                exposed[stage] += step.exposed[stage];
                busy[stage] += step.busy[stage];
                device[stage] += step.device.map_or(0, |times| times[stage]);
            }
        }
        if n == 0 {
            return None;
        }
        let per_step = |all: &PerStage<u64>| {
            let happened = |s: Stage| exposed[s] > 0 || busy[s] > 0;
            all.iter().map(|(s, ns)| (s, happened(s).then(|| *ns as f64 / n as f64))).collect()
        };
        let device = device.iter().map(|(s, ns)| (s, (*ns > 0).then(|| *ns as f64 / on_device as f64)));
        let wall = wall as f64 / n as f64;
        Some(Self {
            steps: n,
            wall,
            samples: samples as f64 / n as f64,
            exposed: per_step(&exposed),
            busy: per_step(&busy),
            device: (on_device > 0).then(|| device.collect()),
            unattributed: wall - exposed.total() as f64 / n as f64,
        })
    }

    /// So many ns of a step over the samples of a rank's step, ns. `None` for steps without samples.
    pub fn per_sample(&self, ns: f64) -> Option<f64> {
        (self.samples > 0.0).then(|| ns / self.samples)
    }

    /// What the step waited for these stages, ns. `None` if no stage happened.
    pub fn exposed_in(&self, stages: &[Stage]) -> Option<f64> {
        sum_in(&self.exposed, stages)
    }

    /// What was worked on these stages, summed over the threads of the rank, ns. `None` if no stage happened.
    pub fn busy_in(&self, stages: &[Stage]) -> Option<f64> {
        sum_in(&self.busy, stages)
    }

    /// What the step waited for batches and for their way to the device, ns.
    pub fn waits_for_data(&self) -> f64 {
        let data = |stage: &Stage| Stage::LOADER.contains(stage) || *stage == Stage::Transfer;
        self.exposed.iter().filter(|(stage, _)| data(stage)).filter_map(|(_, ns)| *ns).sum()
    }

    /// The stage with the most exposed time, ns; none if no stage has any.
    pub fn most_exposed(&self) -> Option<(Stage, f64)> {
        let happened = self.exposed.iter().filter_map(|(stage, ns)| ns.filter(|ns| *ns > 0.0).map(|ns| (*stage, ns)));
        happened.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Unattributed time as a share of the wall time.
    pub fn open_share(&self) -> f64 {
        if self.wall > 0.0 { self.unattributed / self.wall } else { 0.0 }
    }

    /// Whether the stages make up the step.
    pub fn closure(&self) -> Closure {
        match self.open_share() {
            open if open > OPEN_LIMIT => Closure::Open(open),
            open if open < -OVERLAP_LIMIT => Closure::Overlap(1.0 - open),
            _ => Closure::Closed,
        }
    }
}

/// The sum of the times of these stages. `None` if no stage has a time.
fn sum_in(times: &[(Stage, Option<f64>)], stages: &[Stage]) -> Option<f64> {
    let of_stages = times.iter().filter(|(stage, _)| stages.contains(stage));
    of_stages.filter_map(|(_, ns)| *ns).reduce(|sum, ns| sum + ns)
}

/// Share of a step that may be in no stage before it is said.
const OPEN_LIMIT: f64 = 0.05;
/// Share of a step by which its stages may exceed it before it is said: where two clocks are read (the host's and a device's), their
/// sum may be a little more than the step.
const OVERLAP_LIMIT: f64 = 0.01;

/// How the exposed times of the stages compare with the wall time of the step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Closure {
    /// They make up the step.
    Closed,
    /// This share of the step is in no stage.
    Open(f64),
    /// They add up to this many times the step: stages overlap, or were counted twice.
    Overlap(f64),
}
