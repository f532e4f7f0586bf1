//! Trials that ran side by side: which ran together, how many ran beside a trial, and what that costs it.
//!
//! Invariant: runs that ran together are one value, a [`Pack`]. What slows one slows the others, so they are not independent.

use std::collections::{BTreeMap, BTreeSet};

use expctl_ledger::{MeasuredJob, Rates, Run, RunPart};
use expctl_settings::{Slurm, Trial};
use expctl_stats::{Estimate, Interval, Ratio, mean, median, ratio};
use expctl_text::format;
use serde::Serialize;

use super::caution::{Cause, Caution};
use super::rates::{run_estimates, run_rates};
use crate::ledger::{setting_text, surroundings_text};

/// Trials that were to run beside a run and did not, on the mean over its time, from which that is said.
const MISSING: f64 = 0.1;
/// The same for the shortest runs, whose times are of whole seconds.
const MISSING_AT_MOST: f64 = 0.5;
/// Time for which a run that is to run alone may have another one beside it, s: the clocks of nodes and file servers differ.
const SKEW: i64 = 2;

/// Runs of a row that ran together, directly or with others between them.
#[derive(Clone, Debug)]
pub struct Pack<'a>(Vec<&'a Run>);

impl Pack<'_> {
    /// The runs.
    pub fn runs(&self) -> &[&Run] {
        &self.0
    }

    /// Geometric mean over its runs of a figure above 0; `None` if a run has none.
    pub fn mean(&self, of: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.0.iter().map(|run| of(run)).collect::<Option<_>>()?;
        match values[..] {
            [value] => Some(value),
            _ => Some(mean(&values.iter().map(|value| value.ln()).collect::<Vec<f64>>())?.exp()),
        }
    }

    /// Rates of one of its runs, on the geometric mean.
    pub fn rates(&self) -> Option<Rates> {
        if let [run] = self.0[..] {
            return run_rates(run);
        }
        let it_per_s = self.mean(|run| Some(run_rates(run)?.it_per_s))?;
        Some(Rates { it_per_s, samples_per_s: self.mean(|run| Some(run_rates(run)?.samples_per_s))? })
    }

    /// it/s and samples/s; with the intervals within the run if it has one only.
    pub fn estimates(&self) -> Option<(Estimate, Estimate)> {
        match self.0[..] {
            [run] => run_estimates(run),
            _ => self.rates().map(|of| (Estimate::plain(of.it_per_s), Estimate::plain(of.samples_per_s))),
        }
    }
}

/// Jobs and ids of trials.
type TrialIds<'a> = BTreeSet<(u64, &'a str)>;

/// The runs of a row that have rates, by pack. Runs whose neighbours are not recorded are one pack: nothing says which of them ran together.
pub fn packs<'a>(runs: &[&'a Run]) -> Vec<Pack<'a>> {
    let mut packs: Vec<(TrialIds<'_>, Vec<&'a Run>)> = Vec::new();
    let mut alone = Vec::new();
    for run in runs.iter().copied().filter(|run| run_rates(run).is_some()) {
        if run.trial.settings.slurm.pack < 2 {
            alone.push(Pack(vec![run]));
            continue;
        }
        // Ids are unique in a job.
        let mut trials: TrialIds<'_> = match run.outcome.as_ref().filter(|outcome| outcome.beside_s.is_some()) {
            Some(outcome) => outcome.beside.iter().map(|id| (run.job, id.as_str())).collect(),
            None => BTreeSet::from([(run.job, "")]),
        };
        trials.insert((run.job, run.trial.id.as_str()));
        // The packs that it connects become one, where the first of them is.
        let mut joined: Vec<&Run> = Vec::new();
        let mut at = packs.len();
        for index in (0..packs.len()).rev() {
            if !packs[index].0.is_disjoint(&trials) {
                let (known, mut before) = packs.remove(index);
                trials.extend(known);
                before.append(&mut joined);
                joined = before;
                at = index;
            }
        }
        joined.push(run);
        packs.insert(at.min(packs.len()), (trials, joined));
    }
    alone.into_iter().chain(packs.into_iter().map(|(_, runs)| Pack(runs))).collect()
}

/// Swept settings of a trial without those that say how many run side by side.
type Point<'a> = BTreeMap<&'a str, String>;

fn point(trial: &Trial) -> Point<'_> {
    let of_packs = [Slurm::PACK.name(), Slurm::PACK_GPU.name()];
    let others = trial.point.iter().filter(|(key, _)| !of_packs.contains(&key.as_str()));
    others.map(|(key, value)| (key.as_str(), setting_text(value))).collect()
}

/// The runs of a job that ran alone, by variant and point of the sweep.
#[derive(Debug, Default)]
pub struct AloneRuns<'a> {
    runs: BTreeMap<(&'a str, Point<'a>), Vec<&'a Run>>,
    /// Ids of those beside which others of the job ran.
    disturbed: BTreeSet<&'a str>,
}

impl<'a> AloneRuns<'a> {
    /// Those of a job. None are looked for in a job without trials side by side.
    pub fn of_job(job: &'a MeasuredJob) -> Self {
        let mut found = Self::default();
        if job.runs.iter().all(|run| run.trial.settings.slurm.pack < 2) {
            return found;
        }
        for run in job.runs.iter().filter(|run| run.trial.settings.slurm.pack < 2 && run_rates(run).is_some()) {
            found.runs.entry((run.trial.variant.as_str(), point(&run.trial))).or_default().push(run);
            if job.runs.iter().any(|other| ran_beside(run, other)) {
                found.disturbed.insert(&run.trial.id);
            }
        }
        found
    }
}

/// Whether another run of the same job ran on a node of this one at the same time.
fn ran_beside(run: &Run, other: &Run) -> bool {
    let (Some(one), Some(two)) = (&run.outcome, &other.outcome) else { return false };
    let common = one.ended.min(two.ended) - one.started.max(two.started);
    let hosts =
        |run: &Run| -> BTreeSet<String> { run.parts.iter().flat_map(RunPart::hosts).map(str::to_owned).collect() };
    // Each pair of runs of a job is asked about, and the times tell most apart.
    common > SKEW && run.trial.id != other.trial.id && !hosts(run).is_disjoint(&hosts(other))
}

/// What running side by side costs a trial, and what N trials together give.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Interference {
    /// Trials that ran side by side.
    pub pack: u32,
    /// Samples/s of a trial beside the others, over those of the same trial alone in the same job.
    pub trial: Ratio,
    /// Samples/s of all trials of a pack together, over those of a trial alone: `pack` times `trial`. Without a p value.
    pub together: Ratio,
    /// Samples/s of a trial beside the others, median over the packs.
    pub samples_per_s: f64,
    /// Samples/s of a trial alone, median over the runs.
    pub alone_samples_per_s: f64,
    /// Number of packs, each a value of the ratio, and of runs alone.
    pub n: (usize, usize),
    /// Number of runs that are left out: those that others than repeats of their own ran beside, or fewer; and those that were to run alone
    /// and did not.
    pub left_out: (usize, usize),
    /// Processors that a rank may use alone, and side by side, if these differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus_per_rank: Option<(String, String)>,
}

impl Interference {
    /// Of the runs of a variant at one point; `None` if they ran alone, or if nothing of their variant did in the job. In place of a ratio that
    /// would not be one of like for like, the reason.
    pub fn from_runs(alone: &AloneRuns<'_>, runs: &[&Run]) -> Option<Result<Self, String>> {
        let trial = &runs.first()?.trial;
        let pack = trial.settings.slurm.pack;
        if pack < 2 || trial.settings.profiles() {
            return None;
        }
        let of_variant = alone.runs.get(&(trial.variant.as_str(), point(trial)))?;
        let (base, disturbed): (Vec<&Run>, Vec<&Run>) =
            of_variant.iter().copied().partition(|run| !alone.disturbed.contains(run.trial.id.as_str()));
        let counted = runs.iter().copied().filter(|run| run_rates(run).is_some());
        let (beside, fewer): (Vec<&Run>, Vec<&Run>) = counted.partition(|run| ran_in_full_pack(run));
        let left_out = (fewer.len(), disturbed.len());
        if beside.is_empty() && fewer.is_empty() {
            return None;
        }
        if base.is_empty() || beside.is_empty() {
            let why = left_out_words(left_out).unwrap_or_default();
            return Some(Err(format!("what running side by side costs a trial is not known: {why}")));
        }
        let [on, on_alone] =
            [&beside, &base].map(|runs| surroundings_text(runs.iter().flat_map(|run| run.environments())));
        for key in ["device", "gpu", "cpu"] {
            if let (Some(one), Some(other)) = (on_alone.get(key), on.get(key))
                && one != other
            {
                let why = format!("the {key} of the runs alone was another one: {one} → {other}");
                return Some(Err(format!("what running side by side costs a trial is not known: {why}")));
            }
        }
        let cpus = |of: &BTreeMap<String, String>| of.get("cpus_per_rank").cloned();
        let cpus_per_rank = cpus(&on_alone).zip(cpus(&on)).filter(|(alone, beside)| alone != beside);
        let [packed, base] = [&beside, &base].map(|runs| -> Vec<f64> {
            packs(runs).iter().filter_map(|pack| Some(pack.rates()?.samples_per_s)).collect()
        });
        let trial = ratio(&packed, &base)?;
        let times = f64::from(pack);
        let interval = |ends: Interval| Interval { low: times * ends.low, high: times * ends.high };
        Some(Ok(Self {
            pack,
            trial,
            together: Ratio { value: times * trial.value, interval: trial.interval.map(interval), p: None },
            samples_per_s: median(&packed)?,
            alone_samples_per_s: median(&base)?,
            n: (packed.len(), base.len()),
            left_out,
            cpus_per_rank,
        }))
    }

    /// In one line, after the name of the row: `lazy (2 side by side): a trial runs at 0.71× [0.69–0.73] of its rate alone, …`.
    pub fn sentence(&self, label: &str) -> String {
        let each = self.samples_per_s;
        let (packs, alone) = self.n;
        let unknown = self.trial.interval.is_none().then(|| "too few packs or runs alone for an interval".to_owned());
        let unlike = self.cpus_per_rank.as_ref();
        let unlike = unlike.map(|(alone, beside)| format!("not like for like: CPUs per rank {alone} → {beside}"));
        let further: Vec<String> = [unlike, unknown, left_out_words(self.left_out)]
            .into_iter()
            .flatten()
            .map(|said| format!("; {said}"))
            .collect();
        format!(
            "{label}: a trial runs at {} of its rate alone, and {} together at {}: {} samples/s each and {} in all, {} alone \
             (n = {} and {}){}",
            format::ratio_with_interval(&self.trial),
            self.pack,
            format::ratio_with_interval(&self.together),
            format::rate(each),
            format::rate(each * f64::from(self.pack)),
            format::rate(self.alone_samples_per_s),
            format::count(packs as u64, "pack"),
            format::count(alone as u64, "run"),
            further.concat(),
        )
    }
}

/// `left out: 1 run with fewer or other trials beside it`; `None` if none are.
fn left_out_words((fewer, disturbed): (usize, usize)) -> Option<String> {
    let words = |n: usize, why: &str| (n > 0).then(|| format!("{} {why}", format::count(n as u64, "run")));
    let said: Vec<String> = [
        words(fewer, "with fewer trials beside it than planned, or others than its repeats"),
        words(disturbed, "alone that others ran beside on the same node"),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!said.is_empty()).then(|| format!("left out: {}", said.join(", ")))
}

/// Trials that ran beside a run, mean over its time, and by how much this may be off; `None` if that is not recorded.
fn trials_beside(run: &Run) -> Option<(f64, f64)> {
    let outcome = run.outcome.as_ref()?;
    // Times are whole seconds.
    let seconds = (outcome.ended - outcome.beside_from.unwrap_or(outcome.started)).max(1) as f64;
    Some((outcome.beside_s? as f64 / seconds, (2.0 / seconds).clamp(MISSING, MISSING_AT_MOST)))
}

/// Whether as many trials as were to run beside a run did, all of them repeats of it. What is not recorded counts as if they had.
fn ran_in_full_pack(run: &Run) -> bool {
    let others = f64::from(run.trial.settings.slurm.pack) - 1.0;
    let hash = run.trial.settings_hash();
    let repeats = |id: &String| id.ends_with(&format!("-{hash}"));
    let alike = run.outcome.as_ref().is_none_or(|outcome| outcome.beside.iter().all(repeats));
    alike && trials_beside(run).is_none_or(|(beside, off)| beside >= others - off)
}

/// Rates that are not those of lone trials.
pub fn beside_others(completed: &[&Run]) -> Option<Caution> {
    let pack = completed.iter().map(|run| run.trial.settings.slurm.pack).max().filter(|pack| *pack > 1)?;
    let others = u64::from(pack) - 1;
    let measured: Vec<(f64, f64)> = completed.iter().filter_map(|run| trials_beside(run)).collect();
    let mean_of = |of: fn(&(f64, f64)) -> f64| mean(&measured.iter().map(of).collect::<Vec<f64>>());
    let fewer = mean_of(|run| run.0).zip(mean_of(|run| run.1));
    let fewer = fewer.filter(|(beside, off)| *beside < others as f64 - off);
    let trials = format::count(others, "other trial");
    let said = match fewer {
        Some((beside, _)) => format!("was to run beside {trials}; on the mean {} ran", format::round(beside, 1)),
        None => format!("measured beside {trials}; rates of lone trials differ"),
    };
    let packs = packs(completed);
    let runs: usize = packs.iter().map(|pack| pack.runs().len()).sum();
    let counted = (packs.len() < runs).then(|| {
        format!(
            "; {} in {}: runs that ran together are not independent, so a pack is one value",
            format::count(runs as u64, "run"),
            format::count(packs.len() as u64, "pack")
        )
    });
    Some(Caution::new(Cause::SideBySide, f64::from(pack), said + &counted.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Interference {
        let interval = |low, high| Some(Interval { low, high });
        Interference {
            pack: 2,
            trial: Ratio { value: 0.75, interval: interval(0.7, 0.8), p: Some(0.001) },
            together: Ratio { value: 1.5, interval: interval(1.4, 1.6), p: None },
            samples_per_s: 300.0,
            alone_samples_per_s: 400.0,
            n: (2, 4),
            left_out: (0, 0),
            cpus_per_rank: None,
        }
    }

    #[test]
    fn the_sentence_has_the_rate_of_a_trial_and_of_all() {
        assert_eq!(
            found().sentence("ids (2 side by side)"),
            "ids (2 side by side): a trial runs at 0.75× [0.70–0.80] of its rate alone, and 2 together at 1.50× [1.40–1.60]: 300 \
             samples/s each and 600 in all, 400 alone (n = 2 packs and 4 runs)"
        );
    }

    #[test]
    fn the_sentence_says_what_is_not_alike_and_what_is_left_out() {
        let unlike =
            Interference { left_out: (1, 2), cpus_per_rank: Some(("2".to_owned(), "8".to_owned())), ..found() };
        let said = unlike.sentence("ids");
        let end = "(n = 2 packs and 4 runs); not like for like: CPUs per rank 2 → 8; left out: 1 run with fewer trials beside it than \
                   planned, or others than its repeats, 2 runs alone that others ran beside on the same node";
        assert!(said.ends_with(end), "{said}");
    }
}
