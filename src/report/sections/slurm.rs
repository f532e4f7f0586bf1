use expctl_record::{MeasuredJob, Run, SlurmTry, SlurmUsage};

use crate::report::Table;
use crate::report::format::{self, MISSING};

const COLUMNS: [&str; 12] = [
    "Trial",
    "State",
    "Exit",
    "Try",
    "Nodes",
    "Elapsed",
    "Time limit",
    "Time used",
    "CPU time",
    "MaxRSS",
    "Memory asked",
    "Memory used",
];

/// What Slurm measured of each trial, and what is to be said of it; none for a job of which it was never asked.
pub fn slurm(job: &MeasuredJob) -> Option<(Table, Vec<&'static str>)> {
    if job.runs.iter().all(|run| run.slurm.is_none()) {
        return None;
    }
    let mut table = Table::new(COLUMNS).right([5, 6, 7, 8, 9, 10, 11]);
    for run in &job.runs {
        table.row(row(run));
    }
    let seen = || job.runs.iter().filter_map(|run| run.slurm.as_ref());
    let mut notes = Vec::new();
    if seen().any(|usage| usage.source == "scontrol") {
        notes.push("Of some trials there is no accounting: their CPU time and MaxRSS are not known.");
    }
    if seen().any(|usage| usage.attempts_in_try > 1) {
        notes.push(
            "⁺: shared an array task, so state and times are those of all its trials together. CPU time, MaxRSS and \
             memory used are the trial's own where each had an srun of its own.",
        );
    }
    Some((table, notes))
}

fn row(run: &Run) -> Vec<String> {
    let Some(slurm) = &run.slurm else {
        return std::iter::once(run.trial.id.clone())
            .chain(std::iter::repeat_n(missing(), COLUMNS.len() - 1))
            .collect();
    };
    let usage = &slurm.usage;
    let share = |used: Option<f64>, of: Option<f64>| match (used, of) {
        (Some(used), Some(of)) if of > 0.0 => format::percent(used / of),
        _ => MISSING.to_owned(),
    };
    let float = |n: Option<u64>| n.map(|n| n as f64);
    let size = |n: Option<u64>| float(n).map_or_else(missing, format::bytes);
    let time = |s: Option<u64>| float(s).map_or_else(missing, duration);
    let shared = if slurm.attempts_in_try > 1 { "⁺" } else { "" };
    vec![
        format!("{}{shared}", run.trial.id),
        usage.state.clone(),
        exit(usage),
        tries(slurm),
        usage.nodes.clone().unwrap_or_else(missing),
        time(usage.elapsed_s),
        time(usage.time_limit_s),
        share(float(usage.elapsed_s), float(usage.time_limit_s)),
        usage.cpu_s.map_or_else(missing, duration),
        size(usage.max_rss_bytes),
        size(usage.memory_bytes),
        share(float(usage.rss_of_all_tasks()), float(usage.memory_bytes)),
    ]
}

fn missing() -> String {
    MISSING.to_owned()
}

/// `5, NonZeroExitCode`, `signal 9`.
fn exit(usage: &SlurmTry) -> String {
    let code = usage.exit_code.filter(|code| *code != 0 || usage.signal.is_none()).map(|code| code.to_string());
    let signal = usage.signal.map(|signal| format!("signal {signal}"));
    let parts: Vec<String> = code.into_iter().chain(signal).chain(usage.reason.clone()).collect();
    if parts.is_empty() { missing() } else { parts.join(", ") }
}

/// `1`, or `2 of 2 (others: REQUEUED)`.
fn tries(slurm: &SlurmUsage) -> String {
    if slurm.other_tries.is_empty() {
        return slurm.try_number.to_string();
    }
    let others: Vec<&str> = slurm.other_tries.iter().map(|other| other.state.as_str()).collect();
    format!("{} of {} (others: {})", slurm.try_number, others.len() + 1, others.join(", "))
}

/// Seconds, with a decimal below a minute where there is one; else `h:mm:ss`.
fn duration(seconds: f64) -> String {
    if seconds < 60.0 {
        return format!("{} s", format::rate((seconds * 10.0).round() / 10.0));
    }
    let whole = seconds.round() as u64;
    format!("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
}
