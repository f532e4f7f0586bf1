//! The first lines of a note: answer, bottleneck, the change to try next, and what the answer rests on.

use std::collections::BTreeMap;

use expctl_ledger::Stage;
use expctl_stats::Interval;
use expctl_text::format;

use crate::report::bottleneck::advice;
use crate::report::next_change::{NextChange, PredictedChange};
use crate::report::sections::results::measured_per_run;
use crate::report::variant_row::VariantRow;
use crate::report::warning::Warning;

/// Names of variants up to which a line has them instead of their number.
const MAX_NAMED: usize = 2;

/// The row to start from and its rate, for a job without ratios; or that there is none.
pub fn no_answer(lead: Option<&VariantRow>, rows: &[&VariantRow]) -> String {
    let Some(row) = lead else { return "No run completed".to_owned() };
    let rate = row.median_samples_per_s().map_or_else(format::missing, format::rate);
    let interval = row.samples_per_s_rate.as_ref().and_then(format::rate_interval);
    let interval = interval.map(|ends| format!("95 % {ends}, ")).unwrap_or_default();
    let runs = format::count(row.n as u64, row.counted());
    let said = format!("{}, {rate} samples/s ({interval}{runs}, measured)", row.label);
    match rows {
        [_] => format!("{said}; only one variant: nothing to compare"),
        _ => format!("Highest rate: {said}; no ratios: nothing to compare with"),
    }
}

/// The bottleneck of the row to start from, and of its baseline.
pub fn bottleneck(lead: Option<(&VariantRow, Option<&VariantRow>)>) -> String {
    let Some((row, base)) = lead else { return "not known: no run completed".to_owned() };
    let clause = |row: &VariantRow, role: &str| {
        let found = row.bottleneck.map_or_else(|| "is not known".to_owned(), |found| found.clause());
        format!("{}{role} {found}", format::code(&row.label))
    };
    let of_base = base.map(|base| clause(base, ", the baseline,"));
    [Some(clause(row, "")), of_base].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// The change to try next in a row, with its predicted gain; or why none is predicted, and what could be removed.
pub fn next_change(next: &NextChange, row: &VariantRow, job: u64) -> String {
    let label = format::code(&row.label);
    let more = format!("all predictions: `expctl predict {job}`");
    match next {
        NextChange::Setting(found) => format!("{} in {label} {}; {more}", setting(found), gain(found)),
        NextChange::NoSetting(Some(found)) => format!(
            "no setting of the loader is predicted to make {label} faster; {} {}{}; {more}",
            found.change,
            gain(found),
            to_try(row),
        ),
        NextChange::NoSetting(None) => {
            format!("no change to {label} is predicted to make it faster{}; {more}", to_try(row))
        }
        NextChange::NotPredicted(why) => {
            let removable = largest_removable(row).unwrap_or_else(|| "no share of a step is recorded".to_owned());
            format!("not predicted for {label}: {why}; {removable}{}", to_try(row))
        }
    }
}

/// `loader.workers=2 (2 loader threads)`.
fn setting(found: &PredictedChange) -> String {
    let set = found.setting.as_ref().map(|set| format!("{} ", format::code(set)));
    format!("{}({})", set.unwrap_or_default(), found.change)
}

/// `would bring 1.42× its rate (95 % 1.30–1.55, estimated): 802 samples/s, and then a step …`.
fn gain(found: &PredictedChange) -> String {
    let sure = found.gain_interval.is_some_and(|gain| gain.low > 1.0);
    let ends =
        |Interval { low, high }: Interval| format!("95 % {}–{}, ", format::round(low, 2), format::round(high, 2));
    let interval = found.gain_interval.map(ends).unwrap_or_default();
    let then = found.bottleneck.as_ref().map(|stage| format!("; bottleneck then: {stage}")).unwrap_or_default();
    let crowded = found.crowded.map(|(threads, processors)| {
        format!("; {} threads on {} processors", format::figure(threads), format::figure(processors))
    });
    format!(
        "{} bring {} its rate ({interval}*estimated*), {} samples/s{then}{}",
        if sure { "would" } else { "may" },
        format::ratio(found.gain),
        format::rate(found.samples_per_s),
        crowded.unwrap_or_default(),
    )
}

/// The largest share of a step that a change could remove, or the largest of all if all of it is the model's.
fn largest_removable(row: &VariantRow) -> Option<String> {
    const MODEL: [Stage; 4] = [Stage::Forward, Stage::Backward, Stage::Clip, Stage::Optimizer];
    let breakdown = row.breakdown.as_ref().filter(|breakdown| breakdown.wall > 0.0)?;
    let exposed =
        || breakdown.exposed.iter().filter_map(|(stage, ns)| Some((*stage, (*ns)?))).filter(|(_, ns)| *ns > 0.0);
    let largest = |all: &mut dyn Iterator<Item = (Stage, f64)>| all.max_by(|a, b| a.1.total_cmp(&b.1));
    let removable = largest(&mut exposed().filter(|(stage, _)| !MODEL.contains(stage)));
    let what = if removable.is_some() {
        "the largest share of a step that could be removed"
    } else {
        "the largest share of a step"
    };
    let (stage, ns) = removable.or_else(|| largest(&mut exposed()))?;
    Some(format!("{what} is *{stage}*, {} (derived)", format::share(ns, breakdown.wall)))
}

/// `; try …`: settings to try where a step waits for a stage of the loader; empty without any.
fn to_try(row: &VariantRow) -> String {
    tried(row).map(|advice| format!("; try {advice}")).unwrap_or_default()
}

/// Settings to try in a row; `None` for programs, whose stages are their own.
fn tried(row: &VariantRow) -> Option<String> {
    let reads_array = row.settings.contains_key("array.format");
    let runs_command = row.settings.contains_key("worker.command");
    advice(&row.bottleneck?, reads_array, row.batch_bytes).filter(|_| !runs_command)
}

/// The bottleneck of each variant with one stage above half of a step, or that waits most for *other* because of too few processors, or whose
/// steps are for the most part in no stage; one sentence each, with settings to try where it is a stage of the loader.
pub fn causes(rows: &[&VariantRow]) -> Vec<String> {
    let cause = |row: &&VariantRow| {
        let bottleneck = row.bottleneck?;
        let above_half = bottleneck.waits_for.is_some_and(|most| most.share > 0.5);
        let found = above_half || bottleneck.is_unknown() || bottleneck.crowded_other().is_some();
        found.then(|| {
            let sentence = bottleneck.sentence(&row.label);
            tried(row).map_or(sentence.clone(), |advice| format!("{sentence} (try {advice})"))
        })
    };
    rows.iter().filter_map(cause).collect()
}

/// Why none of these rows, some of all, has a bottleneck.
pub fn no_cause(all: &[&VariantRow], answering: &[&VariantRow]) -> String {
    let of = |rows: &[&VariantRow]| format::listed(&rows.iter().map(|row| row.label.as_str()).collect::<Vec<_>>());
    if all.iter().all(|row| row.bottleneck.is_none()) {
        "not known: no run completed".to_owned()
    } else if answering.iter().all(|row| row.bottleneck.is_none()) {
        format!("not known: no run of {} completed", of(answering))
    } else if answering.len() == all.len() || causes(all).is_empty() {
        "none; no single stage takes more than 50 % of a step".to_owned()
    } else {
        format!("none; no single stage takes more than 50 % of a step of {}", of(answering))
    }
}

/// What the answer rests on: warnings that may change it, for how long each run was measured, and how many runs a row has, in one line; `None`
/// without a completed run.
pub fn trust(rows: &[&VariantRow], warnings: &[&Warning]) -> Option<String> {
    let mut causes: Vec<(&str, Vec<&str>)> = Vec::new();
    for warning in warnings {
        let (words, variants) = (warning.cause.words(), warning.variants.iter().map(String::as_str));
        match causes.iter_mut().find(|(other, _)| *other == words) {
            Some((_, all)) => all.extend(variants),
            None => causes.push((words, variants.collect())),
        }
    }
    let named = |(words, variants): &(&str, Vec<&str>)| match variants.len() {
        0 => (*words).to_owned(),
        n if n <= MAX_NAMED => format!("{words}: {}", variants.join(", ")),
        n => format!("{words}: {n} variants"),
    };
    let causes: Vec<String> = causes.iter().map(named).collect();
    let warned = match warnings.len() {
        0 => "no warning that may change a verdict".to_owned(),
        n => {
            let all = format::count(n as u64, "warning");
            format!("{all} that may change or forbid a verdict ({})", causes.join("; "))
        }
    };
    let seconds: Vec<f64> = rows.iter().flat_map(|row| row.measured_s.iter().copied()).collect();
    let measured = measured_per_run(&seconds)?;
    Some(format!("{warned}; measured for {measured} per run; {} each", values_words(rows)?))
}

/// `3 runs`, `2 to 4 runs or packs`: the values behind the figures of each of the rows that have some; `None` if none has.
fn values_words(rows: &[&VariantRow]) -> Option<String> {
    let mut counted: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.n > 0) {
        counted.entry(row.counted()).or_default().push(row.n);
    }
    let (fewest, most) = (counted.values().flatten().min()?, counted.values().flatten().max()?);
    let ending = if *most == 1 { "" } else { "s" };
    let what: Vec<String> = counted.keys().rev().map(|noun| format!("{noun}{ending}")).collect();
    let what = what.join(" or ");
    Some(if fewest == most { format!("{most} {what}") } else { format!("{fewest} to {most} {what}") })
}
