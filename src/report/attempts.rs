//! Trials that took several attempts: a table of the attempts, and sentences on what they share and differ in.

use expctl_ledger::{Attempt, Run, RunPart};
use expctl_text::Table;
use expctl_text::format::{MISSING, moment};

use super::differences::{class_name, setting_name};
use crate::ledger::{differences_within, step_words};

/// Columns behind that of the trial.
const COLUMNS: [&str; 12] = [
    "attempt",
    "task",
    "state",
    "cause",
    "steps",
    "from step",
    "started",
    "ended",
    "nodes",
    "memory",
    "time limit",
    "reason",
];

/// A row for each attempt; `several`: with a column for the job. Trials of a sweep have a column for their point.
pub fn attempts_table(rows: &[Attempt], several: bool) -> Table {
    let swept = rows.iter().any(|row| !row.point.is_empty());
    let shift = usize::from(several) + usize::from(swept);
    let first = several.then_some("job").into_iter().chain(["trial"]).chain(swept.then_some("point"));
    let header = first.chain(COLUMNS);
    let mut table = Table::new(header).right([1, 5, 6, 10, 11].map(|column| column + shift));
    let or_missing = |text: Option<String>| text.unwrap_or_else(|| MISSING.to_owned());
    for row in rows {
        let first = several.then(|| row.job.to_string()).into_iter().chain([row.trial.clone()]);
        let first = first.chain(swept.then(|| row.point.clone()));
        let cells = [
            row.attempt.to_string(),
            or_missing(row.slurm_task.clone()),
            row.state.name().to_owned(),
            or_missing(row.cause.map(|cause| cause.name().to_owned())),
            format!("{}/{}", row.steps, row.steps_total),
            or_missing(row.resumed_from.map(|step| step.to_string())),
            moment(row.started),
            or_missing(row.ended.map(moment)),
            or_missing(Some(row.nodes.join(", ")).filter(|nodes| !nodes.is_empty())),
            or_missing(row.memory_mib.map(|memory| format!("{memory} MiB"))),
            or_missing(row.time_min.map(|time| format!("{time} min"))),
            row.reason.clone(),
        ];
        table.row(first.chain(cells));
    }
    table
}

/// Sentences on the attempts of a run; empty if it took one.
pub fn attempt_sentences(run: &Run) -> Vec<String> {
    if run.attempts < 2 {
        return Vec::new();
    }
    let (trial, attempts) = (&run.trial.id, run.attempts);
    if !run.resumed() {
        let counts = run.parts.last().is_some_and(|part| !part.steps.is_empty());
        let what = if counts { "; the last one counts" } else { "" };
        return vec![format!("trial {trial} took {attempts} attempts{what}")];
    }
    let parts: Vec<String> = run.parts.iter().map(part_words).collect();
    let mut said =
        vec![format!("trial {trial} took {attempts} attempts and went on from a checkpoint: {}", parts.join(", "))];
    said.extend(attempt_differences(run));
    let read = |part: &RunPart| part.data.as_ref().map(|data| (data.records, data.selected, data.size.apparent_bytes));
    let mut read = run.parts.iter().filter_map(read);
    if read.next().is_some_and(|first| read.any(|later| later != first)) {
        said.push(format!(
            "the data of trial {trial} changed between its attempts; what is said of it is of the last one"
        ));
    }
    said
}

/// Differences between the attempts of a run, besides their nodes.
fn attempt_differences(run: &Run) -> Vec<String> {
    let trial = &run.trial.id;
    if let Some(part) = run.parts.iter().find(|part| part.environment.is_none()) {
        let attempt = part.attempt;
        return vec![format!(
            "nothing says what attempt {attempt} of trial {trial} ran on, so it is a class by itself"
        )];
    }
    let differing = differences_within(run);
    let list = |words: Vec<String>| (!words.is_empty()).then(|| words.join(", "));
    let of_class = differing.iter().filter_map(|(key, values)| Some(format!("{} {values}", class_name(key)?)));
    let hardware = list(of_class.collect()).map(|differing| {
        format!(
            "the attempts of trial {trial} ran on different hardware, so its rate is of neither and it is a class by itself: \
             {differing}"
        )
    });
    let others = differing.iter().filter(|(key, _)| class_name(key).is_none() && *key != "node");
    let others = list(others.map(|(key, values)| format!("{} {values}", setting_name(key))).collect());
    let others = others.map(|differing| format!("the attempts of trial {trial} also differ in {differing}"));
    hardware.into_iter().chain(others).collect()
}

/// `steps 0–7 from attempt 1 (n1)`.
fn part_words(part: &RunPart) -> String {
    let hosts = part.hosts().join(", ");
    let on = if hosts.is_empty() { String::new() } else { format!(" ({hosts})") };
    format!("{} from attempt {}{on}", step_words(&part.steps), part.attempt)
}
