//! Where the time of steps goes: by stage for the mean step, and summed over runs.

use expctl_ledger::{Mode, PerStage, Run, Stage, StepRecord};
use expctl_text::format;
use serde::Serialize;

use super::rates::measured_steps;

/// The modes that isolate a part of the step each, from the shortest step to the longest, with the part that each adds.
pub const ISOLATION_MODES: [(Mode, &str); 4] = [
    (Mode::Data, "data pipeline"),
    (Mode::Forward, "forward"),
    (Mode::ForwardBackward, "backward"),
    (Mode::Train, "optimizer"),
];

/// Stages of the data pipeline: those of loader threads, and the copy to the device.
pub fn data_stages() -> Vec<Stage> {
    Stage::LOADER.into_iter().chain([Stage::Transfer]).collect()
}

/// The parts of a step with their stages; [`Stage::Other`] is in none.
pub fn step_parts() -> Vec<(&'static str, Vec<Stage>)> {
    vec![
        ("data pipeline", data_stages()),
        ("forward", vec![Stage::Forward]),
        ("backward", vec![Stage::Backward]),
        ("allreduce", vec![Stage::Allreduce]),
        ("optimizer", vec![Stage::Clip, Stage::Optimizer]),
    ]
}

/// The mean step of a variant by stage, ns per step and rank.
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
    /// Exposed time of each stage: what the step waited for it. `None` for a stage that did not happen.
    pub exposed: Vec<(Stage, Option<f64>)>,
    /// Busy time of each stage: work on it, summed over the threads of the rank.
    pub busy: Vec<(Stage, Option<f64>)>,
    /// Time of each stage on the device, from the start to the end of its work there; mean over the steps with such times. `None` if no
    /// step has any.
    pub device: Option<Vec<(Stage, Option<f64>)>>,
    /// Wall time that no stage claims; below zero if the stages claim more than the wall time.
    pub unattributed: f64,
}

impl Breakdown {
    /// Mean over the given steps; `None` without steps.
    pub fn from_steps<'a>(steps: impl Iterator<Item = &'a StepRecord>) -> Option<Self> {
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

    /// Time per sample: `ns` of a step over the samples of a rank's step. `None` for steps without samples.
    pub fn per_sample(&self, ns: f64) -> Option<f64> {
        (self.samples > 0.0).then(|| ns / self.samples)
    }

    /// Exposed time of these stages, ns. `None` if none of them happened.
    pub fn exposed_in(&self, stages: &[Stage]) -> Option<f64> {
        sum_in(&self.exposed, stages)
    }

    /// Busy time of these stages, ns. `None` if none of them happened.
    pub fn busy_in(&self, stages: &[Stage]) -> Option<f64> {
        sum_in(&self.busy, stages)
    }

    /// Exposed time of loading a batch and of its copy to the device, ns.
    pub fn waits_for_data(&self) -> f64 {
        let data = |stage: &Stage| Stage::LOADER.contains(stage) || *stage == Stage::Transfer;
        self.exposed.iter().filter(|(stage, _)| data(stage)).filter_map(|(_, ns)| *ns).sum()
    }

    /// The stage with the most exposed time, ns; `None` if no stage has any.
    pub fn most_exposed(&self) -> Option<(Stage, f64)> {
        let happened = self.exposed.iter().filter_map(|(stage, ns)| ns.filter(|ns| *ns > 0.0).map(|ns| (*stage, ns)));
        happened.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Time in none of the [`step_parts`], ns: the stage *other*, and the unattributed time.
    pub fn rest(&self) -> f64 {
        self.unattributed + self.exposed_in(&[Stage::Other]).unwrap_or(0.0)
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

/// Unattributed share of a step that is tolerated.
const OPEN_LIMIT: f64 = 0.05;
/// Share by which the stages may exceed the step. With two clocks (host and device) their sum may be slightly more than the step.
const OVERLAP_LIMIT: f64 = 0.01;

/// Closure check: the sum of the exposed times against the wall time of the step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Closure {
    /// They are equal within the tolerance.
    Closed,
    /// This share of the step is unattributed.
    Open(f64),
    /// The sum is this many times the step: stages overlap, or were counted twice.
    Overlap(f64),
}

/// Time of a rank for one stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StageSeconds {
    /// The stage.
    pub stage: Stage,
    /// Exposed time, s.
    pub exposed_s: f64,
    /// Busy time, summed over the threads of the rank, s.
    pub busy_s: f64,
}

/// Total time of some steps of a rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepSeconds {
    /// Number of steps: a mean over ranks, so not always whole.
    pub steps: f64,
    /// Their summed wall time, s.
    pub wall_s: f64,
    /// The stages that happened in them, in their order.
    pub stages: Vec<StageSeconds>,
}

/// Total time of a rank in its steps, by stage; means over the ranks of all runs. Time between steps (start, validation, checkpoints) is
/// not in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunTotals {
    /// Ranks in the means, of all runs together.
    pub ranks: usize,
    /// The measured steps.
    pub measured: StepSeconds,
    /// All steps of the run, warm-up included.
    pub run: StepSeconds,
}

impl RunTotals {
    /// Over the completed runs; `None` without measured steps.
    pub fn from_runs(runs: &[&Run]) -> Option<Self> {
        let completed = runs.iter().filter(|run| run.completed());
        Self::from_ranks(&completed.flat_map(|run| run.ranks.iter().map(Vec::as_slice)).collect::<Vec<_>>())
    }

    /// Over the steps of ranks; `None` without measured steps.
    pub fn from_ranks(ranks: &[&[StepRecord]]) -> Option<Self> {
        let of_measured = StepSeconds::from_steps(ranks.len(), ranks.iter().flat_map(|steps| measured_steps(steps)))?;
        let run = StepSeconds::from_steps(ranks.len(), ranks.iter().flat_map(|steps| steps.iter()))?;
        Some(Self { ranks: ranks.len(), measured: of_measured, run })
    }

    /// One sentence: the seconds of the measured steps by stage, and those of all steps.
    pub fn sentence(&self) -> String {
        let over = if self.ranks == 1 { String::new() } else { format!(" (mean of {} ranks)", self.ranks) };
        let (measured, run) = (&self.measured, &self.run);
        format!(
            "In seconds, of a rank{over}: {} in {} measured steps{}; {} in all {} steps with the warm-up{}.",
            format::seconds(measured.wall_s),
            format::rate(measured.steps),
            measured.exposed(),
            format::seconds(run.wall_s),
            format::rate(run.steps),
            run.exposed(),
        )
    }
}

impl StepSeconds {
    /// Sum of `steps` over `ranks`; `None` without steps.
    fn from_steps<'a>(ranks: usize, steps: impl Iterator<Item = &'a StepRecord>) -> Option<Self> {
        let (mut n, mut wall) = (0_u64, 0_u64);
        let mut times: [(u64, u64); Stage::ALL.len()] = Default::default();
        for step in steps {
            n += 1;
            wall += step.wall_ns;
            for (stage, (exposed, busy)) in Stage::ALL.into_iter().zip(&mut times) {
                *exposed += step.exposed[stage];
                *busy += step.busy[stage];
            }
        }
        let seconds = |ns: u64| ns as f64 / 1e9 / ranks as f64;
        let of_stage = |(stage, (exposed, busy)): (Stage, (u64, u64))| {
            let happened = exposed > 0 || busy > 0;
            happened.then(|| StageSeconds { stage, exposed_s: seconds(exposed), busy_s: seconds(busy) })
        };
        let stages = Stage::ALL.into_iter().zip(times).filter_map(of_stage).collect();
        (n > 0).then(|| Self { steps: n as f64 / ranks as f64, wall_s: seconds(wall), stages })
    }

    /// `, exposed collate 4 s, forward 2 s`; empty if no step waited for a stage.
    fn exposed(&self) -> String {
        let waited = self.stages.iter().filter(|of| of.exposed_s > 0.0);
        let words: Vec<String> = waited.map(|of| format!("{} {}", of.stage, format::seconds(of.exposed_s))).collect();
        if words.is_empty() { String::new() } else { format!(", exposed {}", words.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of 100 ms, of which 60 ms wait for collate and 25 ms are forward; the first is warm-up and takes a second.
    fn steps(measured: u64) -> Vec<StepRecord> {
        let step = |step: u64| {
            let wall_ns = if step == 0 { 1_000_000_000 } else { 100_000_000 };
            let mut record = StepRecord { step, measured: step > 0, wall_ns, ..StepRecord::default() };
            record.exposed[Stage::Collate] = 60_000_000;
            record.busy[Stage::Collate] = 240_000_000;
            record.exposed[Stage::Forward] = 25_000_000;
            record.busy[Stage::Forward] = 25_000_000;
            record
        };
        (0..=measured).map(step).collect()
    }

    #[test]
    fn stages_are_summed_over_the_run_of_a_rank() {
        let (first, second) = (steps(10), steps(30));
        let totals = RunTotals::from_ranks(&[&first, &second]).unwrap();
        // 10 and 30 measured steps: 20 in the mean, of 0.1 s.
        assert_eq!((totals.ranks, totals.measured.steps, totals.run.steps), (2, 20.0, 21.0));
        assert_eq!((totals.measured.wall_s, totals.run.wall_s), (2.0, 3.0));
        let stages: Vec<_> = totals.measured.stages.iter().map(|s| (s.stage, s.exposed_s, s.busy_s)).collect();
        assert_eq!(stages, [(Stage::Collate, 1.2, 4.8), (Stage::Forward, 0.5, 0.5)]);
        assert_eq!(
            totals.sentence(),
            "In seconds, of a rank (mean of 2 ranks): 2 s in 20 measured steps, exposed collate 1.2 s, forward 500 ms; \
             3 s in all 21 steps with the warm-up, exposed collate 1.3 s, forward 525 ms."
        );
        assert_eq!(RunTotals::from_ranks(&[]), None);
        assert_eq!(RunTotals::from_ranks(&[&first[..1]]), None);
    }
}
