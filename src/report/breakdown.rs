//! Where the time of steps goes: by stage, for the mean step.

use expctl_ledger::{PerStage, Stage, StepRecord};
use expctl_settings::Mode;

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
