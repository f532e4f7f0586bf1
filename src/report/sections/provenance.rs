//! Trials, what Slurm measured of them, and what ran where on which data.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use expctl_ledger::{CudaFacts, MeasuredJob, ProgramFacts, RankDevice, Run, RunState, SlurmTry, SlurmUsage};
use expctl_settings::{Mode, ModelKind, NO_DATA_SET, Settings, Trial};
use expctl_text::Table;
use expctl_text::format::{self, MISSING, missing};
use serde_json::Value;

use super::MAX_RUN_ROWS;
use crate::ledger::setting_text;

/// A row of the table of trials.
struct TrialRow<'a> {
    /// Its runs; several only if they differ in nothing but the repeat.
    runs: Vec<&'a Run>,
}

impl<'a> TrialRow<'a> {
    fn steps(run: &Run) -> usize {
        run.ranks.iter().map(Vec::len).min().unwrap_or(0)
    }

    /// What a run that completed in one attempt shares with those of its row: its id but for the repeat, and its steps. `None`: it has a row
    /// of its own.
    fn key(run: &Run) -> Option<(String, usize)> {
        let alike = run.completed() && run.attempts == 1;
        let id = repeats_id(&run.trial.id, &[]).filter(|_| alike)?;
        Some((id, Self::steps(run)))
    }

    /// Why it has no figures; empty if it completed.
    fn reason(&self) -> String {
        match &self.runs[0].state {
            RunState::Failed(reason) | RunState::Unreadable(reason) => reason.clone(),
            RunState::Unfinished => "no outcome was written".to_owned(),
            _ => String::new(),
        }
    }

    /// Its cells but for the reason. The id has the repeats.
    fn cells(&self) -> [String; 5] {
        let first = self.runs[0];
        let id = if self.runs.len() > 1 { repeats_id(&first.trial.id, &self.runs) } else { None };
        let name = id.map_or_else(|| first.trial.name(), |id| first.trial.name().replacen(&first.trial.id, &id, 1));
        let started = || self.runs.iter().filter_map(|run| run.outcome.as_ref()).map(|outcome| outcome.started);
        let moments = [started().min(), started().max()].map(|at| at.map_or_else(missing, format::moment));
        let started = if moments[0] == moments[1] { moments[0].clone() } else { moments.join(" to ") };
        [name, first.state.name().to_owned(), first.attempts.to_string(), Self::steps(first).to_string(), started]
    }
}

/// The id of a trial with the repeats of all these runs in the place of its own, as a shell expands it: `lazy-r{1,2,3}-d473942e`. `None` for an
/// id without its repeat.
fn repeats_id(id: &str, runs: &[&Run]) -> Option<String> {
    let (before, rest) = id.rsplit_once("-r")?;
    let (repeat, after) = rest.split_once('-')?;
    repeat.parse::<u32>().ok()?;
    let repeats: Vec<String> = runs.iter().map(|run| run.trial.repeat.to_string()).collect();
    Some(format!("{before}-r{{{}}}-{after}", repeats.join(",")))
}

/// Every trial with its state, and with the reason if some have one; repeats that completed at once and have as many steps share a row.
pub fn trials(job: &MeasuredJob) -> Table {
    let mut rows: Vec<TrialRow<'_>> = Vec::new();
    let mut index_by_key: BTreeMap<(String, usize), usize> = BTreeMap::new();
    for run in &job.runs {
        let key = TrialRow::key(run);
        match key.as_ref().and_then(|key| index_by_key.get(key).copied()) {
            Some(index) => rows[index].runs.push(run),
            None => {
                index_by_key.extend(key.map(|key| (key, rows.len())));
                rows.push(TrialRow { runs: vec![run] });
            }
        }
    }
    if rows.len() > MAX_RUN_ROWS {
        // Some will be left out: not those that did not complete.
        rows.sort_by_key(|row| row.runs.iter().all(|run| run.completed()));
    }
    let has_reasons = rows.iter().any(|row| !row.reason().is_empty());
    let names = ["Trial", "State", "Attempts", "Steps", "Started"].into_iter();
    let mut table = Table::new(names.chain(has_reasons.then_some("Reason")));
    for row in &rows {
        table.row(row.cells().into_iter().chain(has_reasons.then(|| row.reason())));
    }
    table
}

/// Code, machines, environment and data of a job.
pub fn provenance(job: &MeasuredJob) -> String {
    let record = &job.record;
    let environments = || job.runs.iter().flat_map(Run::environments);
    let distinct = |values: BTreeSet<String>| {
        let values: Vec<String> = values.into_iter().filter(|v| !v.is_empty()).collect();
        if values.is_empty() { MISSING.to_owned() } else { values.join("; ") }
    };
    let of = |get: fn(&expctl_ledger::Environment) -> String| distinct(environments().map(get).collect());
    let hardware = environments().flat_map(|e| &e.ranks).map(|h| {
        format!(
            "{}: {}, {} CPUs per rank, {}, kernel {}",
            h.host,
            h.cpu,
            h.cpus,
            format::bytes(h.memory_bytes as f64),
            h.kernel
        )
    });
    let variables = environments().flat_map(|e| &e.variables).map(|(k, v)| format!("{k}={v}"));
    // Each manifest is read once, however many trials used the data.
    let with_data = job.runs.iter().map(|r| &r.trial).filter(|trial| trial.settings.data.set != NO_DATA_SET);
    let (generated, own): (Vec<&Trial>, Vec<&Trial>) =
        with_data.partition(|trial| trial.settings.array.files.is_empty());
    let data: BTreeSet<&Path> = generated.iter().map(|trial| trial.data_dir.as_path()).collect();
    let own: BTreeSet<String> = own.iter().map(|trial| own_files(&trial.settings.array.files)).collect();
    let overrides = if record.overrides.is_empty() { MISSING.to_owned() } else { record.overrides.join(" ") };
    let code = vec![
        ("commit", record.commit.clone().unwrap_or_else(|| MISSING.to_owned())),
        ("expctl", record.expctl_version.clone()),
        ("worker", of(|e| e.worker_version.clone())),
        ("libtorch", of(|e| e.libtorch_version.clone())),
    ];
    let config = vec![
        ("config file", record.config_path.display().to_string()),
        ("overrides", overrides),
        ("study", study(job)),
    ];
    let ranks = vec![
        ("device", of(|e| e.device.clone())),
        ("process group", of(|e| e.backend.clone())),
        ("threads per rank", of(|e| e.threads.to_string())),
        ("hardware", distinct(hardware.collect())),
    ];
    let lines = [
        ("environment", distinct(variables.collect())),
        ("data set", distinct(data.into_iter().map(data_set).chain(own).collect())),
    ];
    let lazy = lazy_model(job).map(|words| ("lazy model", words));
    let of_gpus = gpus(job).into_iter().map(|(name, values)| (name, distinct(values)));
    let of_gpus = of_gpus.filter(|(_, value)| value != MISSING);
    let programs = distinct(environments().filter_map(|e| e.program.as_ref()).map(program).collect());
    let programs = (programs != MISSING).then_some(("program", programs));
    let lines = lines.into_iter().chain(lazy).chain(of_gpus).chain(programs).map(|fact| vec![fact]);
    let said = |facts: Vec<(&str, String)>| {
        let facts: Vec<String> = facts.into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
        format!("- {}", facts.join(" · "))
    };
    [code, config, ranks].into_iter().chain(lines).map(said).collect::<Vec<_>>().join("\n")
}

/// The study; `–` where all trials read the user's own files and the study is only that of the data set which they replace.
fn study(job: &MeasuredJob) -> String {
    let is_replaced = |run: &Run| {
        let settings = &run.trial.settings;
        !settings.array.files.is_empty() && settings.data.set == job.record.study
    };
    let own = !job.runs.is_empty() && job.runs.iter().all(is_replaced);
    if own { MISSING.to_owned() } else { job.record.study.clone() }
}

/// The implementation of the lazy model that ran, by the requested one and the device; with its variants if there were several. `None` if no
/// layer was computed.
fn lazy_model(job: &MeasuredJob) -> Option<String> {
    let mut found: BTreeMap<&'static str, BTreeSet<&str>> = BTreeMap::new();
    for run in &job.runs {
        let Settings { model, train, .. } = &run.trial.settings;
        let computes =
            !run.trial.settings.runs_command() && train.mode.computes_model() && train.mode != Mode::ZeroLoss;
        if computes && model.kind == ModelKind::Lazy {
            for environment in run.environments() {
                let running = model.implementation.running(environment.device == "cpu");
                found.entry(running.words()).or_default().insert(&run.trial.variant);
            }
        }
    }
    match found.len() {
        0 => None,
        1 => found.into_keys().next().map(str::to_owned),
        _ => {
            let named = |(words, variants): (&str, BTreeSet<&str>)| {
                let variants: Vec<&str> = variants.into_iter().collect();
                format!("{words} ({})", variants.join(", "))
            };
            Some(found.into_iter().map(named).collect::<Vec<_>>().join("; "))
        }
    }
}

/// GPU models, CUDA, NCCL and topology; empty for ranks on the host. The table of the ranks has the GPU of each.
fn gpus(job: &MeasuredJob) -> [(&'static str, BTreeSet<String>); 4] {
    let environments = || job.runs.iter().flat_map(Run::environments);
    let devices = environments().flat_map(|e| &e.ranks).filter_map(|rank| {
        let RankDevice { name, memory_bytes, capability, .. } = rank.device.as_ref()?;
        let named =
            |what: &str, value: &str| if value.is_empty() { String::new() } else { format!(", {what} {value}") };
        let (capability, driver) = (named("compute capability", capability), named("driver", &rank.gpu_driver));
        Some(format!("{name}, {}{capability}{driver}", format::bytes(*memory_bytes as f64)))
    });
    let of =
        |words: fn(&CudaFacts) -> Vec<String>| environments().filter_map(|e| e.cuda.as_ref()).flat_map(words).collect();
    [
        ("GPU", devices.collect()),
        ("CUDA", of(|cuda| vec![format!("runtime {}, driver for up to {}", cuda.runtime, cuda.driver)])),
        ("NCCL", of(|cuda| vec![cuda.nccl.clone()])),
        ("between GPUs", of(|cuda| cuda.topology.clone())),
    ]
}

/// A program with the versions, settings and counts that it reports.
fn program(facts: &ProgramFacts) -> String {
    let settings = facts.settings.iter().map(|(name, value)| format!("{name} = {}", setting_text(value)));
    let counts = [
        ("samples per epoch", facts.samples_per_epoch.map(format::thousands)),
        ("samples", facts.samples_total.map(format::thousands)),
        ("on disk", facts.stored_bytes.map(|n| format::bytes(n as f64))),
    ];
    let counts = counts.into_iter().filter_map(|(name, count)| Some(format!("{name} {}", count?)));
    let said: Vec<String> = settings.chain(counts).collect();
    if said.is_empty() { facts.words() } else { format!("{}: {}", facts.words(), said.join(", ")) }
}

/// Number of own files up to which all are named.
const NAMED_FILES: usize = 3;

/// `own files: cells/a.h5ad, cells/b.h5ad, … (12 files)`.
fn own_files(files: &[String]) -> String {
    // As of a data set, the last two components.
    let short = |file: &String| {
        let parts: Vec<&str> = file.split('/').collect();
        parts[parts.len().saturating_sub(2)..].join("/")
    };
    let mut named: Vec<String> = files.iter().take(NAMED_FILES).map(short).collect();
    if files.len() > NAMED_FILES {
        named.push("…".to_owned());
    }
    format!("own files: {} ({})", named.join(", "), format::count(files.len() as u64, "file"))
}

/// A data set by name, with the real and generated edges of each network by its `manifest.json`, if that can be read.
fn data_set(folder: &Path) -> String {
    // The last two components identify it; the rest of the path means nothing elsewhere.
    let components: Vec<_> = folder.components().rev().take(2).map(|c| c.as_os_str().to_string_lossy()).collect();
    let name = components.into_iter().rev().collect::<Vec<_>>().join("/");
    let manifest = std::fs::read(folder.join("manifest.json")).ok();
    let manifest: Option<Value> = manifest.and_then(|text| serde_json::from_slice(&text).ok());
    let Some(networks) = manifest.as_ref().and_then(|m| m.get("networks")).and_then(Value::as_array) else {
        return format!("{name} (no manifest says what in it is real and what is generated)");
    };
    let said: Vec<String> = networks.iter().map(network).collect();
    let labels = match manifest.as_ref().and_then(|m| m.pointer("/data/labels")).and_then(Value::as_str) {
        Some("planted") => "samples and labels generated, labels planted: a function of the perturbed genes",
        _ => "samples and labels generated",
    };
    format!("{name}; edges without self-loops: {}; {labels}", said.join(", "))
}

/// `physical 137,604 generated`, `string12_0_fusion 1,361 real + 10,426 generated`.
fn network(entry: &Value) -> String {
    let name = entry.get("name").and_then(Value::as_str).unwrap_or("unnamed");
    let edges = |kind: &str| entry.get(kind).and_then(Value::as_u64).filter(|n| *n > 0);
    let said: Vec<String> = ["real", "generated"]
        .iter()
        .filter_map(|kind| edges(kind).map(|n| format!("{} {kind}", format::thousands(n))))
        .collect();
    if said.is_empty() { format!("{name} (origin unknown)") } else { format!("{name} {}", said.join(" + ")) }
}

const SLURM_COLUMNS: [&str; 12] = [
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

/// Slurm's accounting of each trial, with notes; `None` if Slurm was never asked about the job.
pub fn slurm_usage(job: &MeasuredJob) -> Option<(Table, Vec<&'static str>)> {
    if job.runs.iter().all(|run| run.slurm.is_none()) {
        return None;
    }
    let mut table = Table::new(SLURM_COLUMNS).right([5, 6, 7, 8, 9, 10, 11]);
    for run in &job.runs {
        table.row(slurm_row(run));
    }
    let seen = || job.runs.iter().filter_map(|run| run.slurm.as_ref());
    let mut notes = Vec::new();
    if seen().any(|usage| usage.source == "scontrol") {
        notes.push("Of some trials there is no accounting: their CPU time and MaxRSS are not known.");
    }
    let shared = |packed: bool| {
        let is_packed = |run: &Run| run.trial.settings.slurm.pack > 1;
        job.runs
            .iter()
            .any(|run| is_packed(run) == packed && run.slurm.as_ref().is_some_and(|usage| usage.attempts_in_try > 1))
    };
    if shared(true) {
        notes.push("⁺ of trials side by side: all figures are those of their task together; Slurm does not say which step was whose.");
    }
    if shared(false) {
        notes.push(
            "⁺: shared an array task, so state and times are those of all its trials together. CPU time, MaxRSS and \
             memory used are the trial's own where each had an srun of its own.",
        );
    }
    Some((table, notes))
}

fn slurm_row(run: &Run) -> Vec<String> {
    let Some(slurm) = &run.slurm else {
        return std::iter::once(run.trial.id.clone())
            .chain(std::iter::repeat_n(missing(), SLURM_COLUMNS.len() - 1))
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

/// A duration: seconds with at most one decimal below a minute, else `h:mm:ss`.
fn duration(seconds: f64) -> String {
    if seconds < 60.0 {
        return format!("{} s", format::rate((seconds * 10.0).round() / 10.0));
    }
    let whole = seconds.round() as u64;
    format!("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
}

#[cfg(test)]
mod tests {
    use super::own_files;

    #[test]
    fn own_files_are_named_by_their_last_parts() {
        let named = |files: &[&str]| own_files(&files.iter().map(|&file| file.to_owned()).collect::<Vec<_>>());
        assert_eq!(named(&["/home/me/cells/a.h5ad"]), "own files: cells/a.h5ad (1 file)");
        assert_eq!(
            named(&["/x/cells/a.h5ad", "/x/cells/b.h5ad", "s3://bucket/c.h5ad", "/x/d.h5ad"]),
            "own files: cells/a.h5ad, cells/b.h5ad, bucket/c.h5ad, … (4 files)"
        );
    }
}
