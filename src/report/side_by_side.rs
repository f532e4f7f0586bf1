//! Trials that ran side by side: how many ran beside a trial, and what that costs it.

use std::collections::BTreeMap;

use expctl_ledger::{MeasuredJob, Run};
use expctl_settings::{Slurm, Trial};
use expctl_stats::{Interval, Ratio, mean, median, ratio};
use expctl_text::format;
use serde::Serialize;

use super::caution::{Cause, Caution};
use super::rates::all_rates;

/// Trials that were to run beside a run and did not, on the mean over its time, from which that is said.
const MISSING: f64 = 0.1;

/// What running side by side costs a trial, and what it gains the node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interference {
    /// Trials that ran side by side.
    pub pack: u32,
    /// Samples/s of a trial beside the others, over those of the same trial alone in the same job.
    pub trial: Ratio,
    /// Samples/s of all trials of a pack together, over those of a trial alone: `pack` times `trial`. Without a p value.
    pub together: Ratio,
    /// Samples/s of a trial beside the others, median over the runs.
    pub samples_per_s: f64,
    /// Samples/s of a trial alone, median over the runs.
    pub alone_samples_per_s: f64,
    /// Number of runs beside others, and of runs alone.
    pub runs: (usize, usize),
}

impl Interference {
    /// Of the runs of a variant at one point; `None` if they ran alone, or if nothing of their variant did in the job.
    pub fn from_runs(job: &MeasuredJob, runs: &[&Run]) -> Option<Self> {
        let trial = &runs.first()?.trial;
        let pack = trial.settings.slurm.pack;
        if pack < 2 || trial.settings.profiles() {
            return None;
        }
        let alone: Vec<&Run> = job.runs.iter().filter(|run| is_alone(&run.trial, trial)).collect();
        let [packed, base] = [runs, alone.as_slice()]
            .map(|of| all_rates(of).iter().map(|rates| rates.samples_per_s).collect::<Vec<f64>>());
        let trial = ratio(&packed, &base)?;
        let times = f64::from(pack);
        let interval = |ends: Interval| Interval { low: times * ends.low, high: times * ends.high };
        Some(Self {
            pack,
            trial,
            together: Ratio { value: times * trial.value, interval: trial.interval.map(interval), p: None },
            samples_per_s: median(&packed)?,
            alone_samples_per_s: median(&base)?,
            runs: (packed.len(), base.len()),
        })
    }

    /// In one line, after the name of the row: `lazy (2 side by side): a trial runs at 0.71× [0.69–0.73] of its rate alone, …`.
    pub fn sentence(&self, label: &str) -> String {
        let each = self.samples_per_s;
        let unknown = if self.trial.interval.is_none() { "; too few runs for an interval" } else { "" };
        format!(
            "{label}: a trial runs at {} of its rate alone, and {} together at {}: {} samples/s each and {} in all, {} alone \
             (n = {} and {}){unknown}",
            format::ratio_with_interval(&self.trial),
            self.pack,
            format::ratio_with_interval(&self.together),
            format::rate(each),
            format::rate(each * f64::from(self.pack)),
            format::rate(self.alone_samples_per_s),
            self.runs.0,
            self.runs.1,
        )
    }
}

/// Whether `other` is a trial of the same variant at the same point that runs alone.
fn is_alone(other: &Trial, trial: &Trial) -> bool {
    let point = |trial: &Trial| -> BTreeMap<String, serde_json::Value> {
        let mut point = trial.point.clone();
        point.remove(Slurm::PACK.name());
        point
    };
    other.settings.slurm.pack == 1 && other.variant == trial.variant && point(other) == point(trial)
}

/// Trials that ran beside a run, mean over its time; `None` if that is not recorded.
fn trials_beside(run: &Run) -> Option<f64> {
    let outcome = run.outcome.as_ref()?;
    // Times are whole seconds.
    let seconds = (outcome.ended - outcome.started).max(1);
    Some(outcome.beside_s? as f64 / seconds as f64)
}

/// Rates that are not those of lone trials.
pub fn beside_others(completed: &[&Run]) -> Option<Caution> {
    let pack = completed.iter().map(|run| run.trial.settings.slurm.pack).max().filter(|pack| *pack > 1)?;
    let others = u64::from(pack) - 1;
    let measured: Vec<f64> = completed.iter().filter_map(|run| trials_beside(run)).collect();
    let fewer = mean(&measured).filter(|mean| *mean < others as f64 - MISSING);
    let fewer = fewer.map(|mean| format!(" ({} on the mean over their time)", format::round(mean, 1)));
    let said = format!(
        "measured beside {}{}; rates of lone trials differ",
        format::count(others, "other trial"),
        fewer.unwrap_or_default()
    );
    Some(Caution::new(Cause::SideBySide, f64::from(pack), said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_has_the_rate_of_a_trial_and_of_all() {
        let interval = |low, high| Some(Interval { low, high });
        let found = Interference {
            pack: 2,
            trial: Ratio { value: 0.75, interval: interval(0.7, 0.8), p: Some(0.001) },
            together: Ratio { value: 1.5, interval: interval(1.4, 1.6), p: None },
            samples_per_s: 300.0,
            alone_samples_per_s: 400.0,
            runs: (4, 4),
        };
        assert_eq!(
            found.sentence("ids (2 side by side)"),
            "ids (2 side by side): a trial runs at 0.75× [0.70–0.80] of its rate alone, and 2 together at 1.50× [1.40–1.60]: 300 \
             samples/s each and 600 in all, 400 alone (n = 4 and 4)"
        );
    }
}
