use std::collections::BTreeMap;

use expctl_record::{MeasuredJob, Mode, Run, Stage};

use crate::ledger::setting_text;
use crate::report::figures::{Breakdown, completed_steps, measured, run_rates};
use crate::stats::{Difference, difference, mean, paired_difference};

/// The modes that isolate a part each, with what the step does more in each than in the one before.
pub(super) const MODES: [(Mode, &str); 4] = [
    (Mode::Data, "data pipeline"),
    (Mode::Forward, "forward"),
    (Mode::ForwardBackward, "backward"),
    (Mode::Train, "optimizer"),
];

/// One variant at one point of a sweep, in the modes that it completed.
pub(super) struct ByMode<'a> {
    /// Variant and swept settings, the mode left out.
    pub label: String,
    /// The variant.
    pub variant: String,
    /// Its swept settings but for the mode, as text.
    pub point: Vec<(String, String)>,
    /// Completed runs, by place in [`MODES`].
    runs: [Vec<&'a Run>; 4],
}

impl<'a> ByMode<'a> {
    /// Completed runs in a mode.
    pub fn runs(&self, mode: Mode) -> &[&'a Run] {
        MODES.iter().position(|(m, _)| *m == mode).map_or(&[], |at| &self.runs[at])
    }

    /// Mean time of a step in a mode, ns, a value for each run.
    pub fn times(&self, mode: Mode) -> Vec<f64> {
        self.runs(mode).iter().filter_map(|run| mean_step(run)).collect()
    }

    /// What a step takes more in a mode than in another, ns: by repeat, where the trials took turns in one allocation.
    pub fn difference(&self, more: Mode, less: Mode) -> Option<Difference> {
        let interleaved = |run: &&Run| run.trial.settings.measure.interleave;
        let timed = |mode: Mode| -> Vec<(u32, f64)> {
            self.runs(mode).iter().filter_map(|run| Some((run.trial.repeat, mean_step(run)?))).collect()
        };
        if self.runs(more).iter().chain(self.runs(less)).all(interleaved) {
            let base = timed(less);
            let of = |(repeat, time): (u32, f64)| Some((time, base.iter().find(|(other, _)| *other == repeat)?.1));
            let pairs: Vec<(f64, f64)> = timed(more).into_iter().filter_map(of).collect();
            if pairs.len() >= 2 {
                return paired_difference(&pairs);
            }
        }
        difference(&self.times(more), &self.times(less))
    }

    /// The mode with the most of the step in it: what the parts are parts of.
    pub fn whole(&self) -> Mode {
        MODES.iter().rev().map(|(mode, _)| *mode).find(|mode| !self.runs(*mode).is_empty()).unwrap_or(Mode::Data)
    }

    /// Where the mean step of that mode goes.
    pub fn breakdown(&self) -> Option<Breakdown> {
        Breakdown::of(completed_steps(self.runs(self.whole())))
    }

    /// Loader threads of a rank: with any, batches are made while the step computes.
    pub fn workers(&self) -> u32 {
        self.runs(self.whole()).first().map_or(0, |run| run.trial.settings.loader.workers)
    }
}

/// Mean wall time of the measured steps of the slowest rank, ns.
fn mean_step(run: &Run) -> Option<f64> {
    run_rates(run)?;
    let of = |steps: &Vec<_>| mean(&measured(steps).map(|step| step.wall_ns as f64).collect::<Vec<_>>());
    run.ranks.iter().filter_map(of).max_by(f64::total_cmp)
}

/// The variants that completed runs in the mode data and in one with more of the step.
pub(super) fn by_mode(job: &MeasuredJob) -> Vec<ByMode<'_>> {
    let mut found: Vec<ByMode<'_>> = Vec::new();
    for run in job.runs.iter().filter(|run| run_rates(run).is_some()) {
        let Some(at) = MODES.iter().position(|(mode, _)| *mode == run.trial.settings.train.mode) else { continue };
        let swept: BTreeMap<&String, String> = run.trial.point.iter().map(|(k, v)| (k, setting_text(v))).collect();
        let point: Vec<(String, String)> =
            swept.into_iter().filter(|(key, _)| *key != "train.mode").map(|(k, v)| (k.clone(), v)).collect();
        let variant = &run.trial.variant;
        let place = found.iter().position(|v| v.variant == *variant && v.point == point).unwrap_or_else(|| {
            let said: Vec<String> = point.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let label = if said.is_empty() { variant.clone() } else { format!("{variant} ({})", said.join(", ")) };
            found.push(ByMode { label, variant: variant.clone(), point, runs: Default::default() });
            found.len() - 1
        });
        found[place].runs[at].push(run);
    }
    found.retain(|variant| !variant.runs[0].is_empty() && variant.runs[1..].iter().any(|runs| !runs.is_empty()));
    found
}

/// Stages of the data pipeline: what loader threads work on, and the copy to the device.
pub(super) fn data_stages() -> Vec<Stage> {
    Stage::LOADER.into_iter().chain([Stage::Transfer]).collect()
}
