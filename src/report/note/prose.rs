//! What a note says in sentences, as far as the figures carry it.

use std::collections::BTreeMap;

use expctl_record::{MeasuredJob, Mode, Run};
use serde_json::{Value, json};

use crate::ledger::flatten_in_job;
use crate::project::Project;
use crate::report::compare::{Row, measured_rows};
use crate::report::format::{self, MISSING};

use super::options::shown;

/// What the steps of each mode of a job contain and what they do not, where the config does not say it itself.
pub(super) fn measures_of_modes(job: &MeasuredJob) -> Vec<Value> {
    let mut modes: Vec<Mode> = Vec::new();
    for run in &job.runs {
        let mode = run.trial.settings.train.mode;
        if !modes.contains(&mode) {
            modes.push(mode);
        }
    }
    modes.iter().map(|mode| json!({ "mode": mode.name(), "yes": contains(*mode).0, "no": contains(*mode).1 })).collect()
}

fn contains(mode: Mode) -> (Vec<&'static str>, Vec<&'static str>) {
    const DATA: &str = "sampling, reading, decoding, masks, collation, copy to the device";
    const PARTS: [&str; 3] = ["forward pass", "backward pass", "clipping and optimizer step"];
    let done = match mode {
        Mode::Data => 0,
        Mode::Forward => 1,
        Mode::ForwardBackward => 2,
        Mode::Train => 3,
        Mode::ZeroLoss => {
            let yes =
                vec![DATA, "backward pass and optimizer step on a loss of zero, as in the published data-only runs"];
            return (yes, vec!["forward pass"]);
        }
    };
    let yes = std::iter::once(DATA).chain(PARTS.into_iter().take(done)).collect();
    (yes, PARTS.into_iter().skip(done).collect())
}

/// What bounds those variants of which one stage has more than half of a step, or that wait most for *other* because their threads
/// share too few processors, a sentence each.
pub(super) fn causes(job: &MeasuredJob) -> Vec<String> {
    let rows = measured_rows(job);
    let cause = |row: &Row| {
        let bottleneck = row.bottleneck?;
        let found = bottleneck.crowded_other().is_some() || bottleneck.waits_for.is_some_and(|most| most.share > 0.5);
        found.then(|| bottleneck.sentence(&row.label))
    };
    rows.iter().filter_map(cause).collect()
}

/// More findings than this are a list, each without what it rests on: that is in the results.
const IN_FULL: usize = 3;

/// What the verdicts find of the variants; which settings differ is no finding.
pub(super) fn findings(verdicts: &[String]) -> Vec<&str> {
    let found: Vec<&str> =
        verdicts.iter().map(String::as_str).filter(|line| !line.starts_with("not the same in all rows")).collect();
    match found.len() {
        0..=IN_FULL => found,
        _ => found.into_iter().map(|line| line.split_once("; p ").map_or(line, |(finding, _)| finding)).collect(),
    }
}

/// Each variant with the settings that set it apart and what came of it.
pub(super) fn methods(job: &MeasuredJob) -> Vec<Value> {
    let groups = job.by_label();
    let settings: Vec<BTreeMap<String, String>> =
        groups.iter().map(|(_, runs)| flatten_in_job(job, &runs[0].trial.settings)).collect();
    let differs = |key: &String| settings.iter().any(|other| other.get(key) != settings[0].get(key));
    let rows = measured_rows(job);
    let method = |((label, runs), (own, row)): (&(String, Vec<_>), (&BTreeMap<String, String>, _))| {
        let runs: &Vec<&Run> = runs;
        let row: &Row = row;
        let apart = own.iter().filter(|(key, _)| differs(key));
        let apart = apart.map(|(key, value)| format!("{key} = {}", quoted(value)));
        // Ranks of our own are of one version, which is in the provenance.
        let program = runs.iter().flat_map(|run| run.environments()).find_map(|found| found.program.as_ref());
        let apart: Vec<String> = apart.chain(program.map(|facts| format!("program: {}", facts.words()))).collect();
        let rate = |rate: Option<f64>| rate.map_or_else(|| MISSING.to_owned(), format::rate);
        let result = if row.n == 0 {
            "no completed run".to_owned()
        } else {
            let (it, samples) = (rate(row.median_it_per_s()), rate(row.median_samples_per_s()));
            format!("{it} it/s, {samples} samples/s (measured, median, n = {})", row.n)
        };
        json!({ "label": label, "method": runs[0].trial.method, "settings": apart, "result": result })
    };
    groups.iter().zip(settings.iter().zip(&rows)).map(method).collect()
}

fn quoted(value: &str) -> &str {
    if value.is_empty() { "\"\"" } else { value }
}

/// Where the raw results lie, a line each: what, and the path.
pub(super) fn location(project: &Project, job: &MeasuredJob) -> Vec<Value> {
    let dir = project.job(job.record.job);
    let folder = shown(project, dir.record_path().parent().unwrap_or(project.root()));
    let last = job.runs.iter().map(|run| run.trial.id.as_str()).next().unwrap_or("<trial>");
    [
        (format!("{folder}/"), "job.json, config.toml, provenance.json, source.diff"),
        (format!("{folder}/{last}/attempt-<n>/"), "trial.json, env.json, outcome.json, rank-<r>.log"),
        (format!("{folder}/{last}/attempt-<n>/rank-<r>.parquet"), "one row per step"),
    ]
    .into_iter()
    .map(|(path, what)| json!({ "path": path, "what": what }))
    .collect()
}
