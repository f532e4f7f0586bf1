use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::ledger::{MeasuredJob, RunState};
use crate::report::Table;
use crate::report::format::{self, MISSING};

/// Every trial, with how it ended and why.
pub fn trials(job: &MeasuredJob) -> Table {
    let mut table = Table::new(["Trial", "Repeat", "State", "Attempts", "Steps", "Started", "Reason"]);
    for run in &job.runs {
        let reason = match &run.state {
            RunState::Failed(reason) => reason.clone(),
            RunState::Unfinished => "no outcome was written".to_owned(),
            _ => String::new(),
        };
        let steps = run.ranks.iter().map(Vec::len).min().unwrap_or(0);
        table.row([
            run.trial.id.clone(),
            run.trial.repeat.to_string(),
            run.state.name().to_owned(),
            run.attempts.to_string(),
            steps.to_string(),
            run.outcome.as_ref().map_or_else(|| MISSING.to_owned(), |o| format::moment(o.started)),
            reason,
        ]);
    }
    table
}

/// What ran, where, on which data.
pub fn provenance(job: &MeasuredJob) -> String {
    let record = &job.record;
    let environments = || job.runs.iter().filter_map(|r| r.environment.as_ref());
    let distinct = |values: BTreeSet<String>| {
        let values: Vec<String> = values.into_iter().filter(|v| !v.is_empty()).collect();
        if values.is_empty() { MISSING.to_owned() } else { values.join("; ") }
    };
    let of = |get: fn(&expctl_record::Environment) -> String| distinct(environments().map(get).collect());
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
    let data = job.runs.iter().map(|r| data_set(&r.trial.data_dir));
    let overrides = if record.overrides.is_empty() { MISSING.to_owned() } else { record.overrides.join(" ") };
    let lines = [
        ("commit", record.commit.clone().unwrap_or_else(|| MISSING.to_owned())),
        ("config file", record.config_path.display().to_string()),
        ("overrides", overrides),
        ("study", record.study.clone()),
        ("expctl", record.expctl_version.clone()),
        ("worker", of(|e| e.worker_version.clone())),
        ("libtorch", of(|e| e.libtorch_version.clone())),
        ("device", of(|e| e.device.clone())),
        ("process group", of(|e| e.backend.clone())),
        ("threads per rank", of(|e| e.threads.to_string())),
        ("hardware", distinct(hardware.collect())),
        ("environment", distinct(variables.collect())),
        ("data set", distinct(data.collect())),
    ];
    lines.into_iter().map(|(name, value)| format!("- {name}: {value}")).collect::<Vec<_>>().join("\n")
}

/// A data set's folder, and which of its networks are real, as its `manifest.json` says, where that can be read.
fn data_set(folder: &Path) -> String {
    let name = folder.display();
    let manifest = std::fs::read(folder.join("manifest.json")).ok();
    let manifest: Option<Value> = manifest.and_then(|text| serde_json::from_slice(&text).ok());
    let Some(networks) = manifest.as_ref().and_then(|m| m.get("networks")).and_then(Value::as_array) else {
        return format!("{name} (no manifest says what in it is real and what is generated)");
    };
    let mut by_class: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for network in networks {
        let class = network.get("class").and_then(Value::as_str).unwrap_or("origin unknown");
        let name = network.get("name").and_then(Value::as_str).unwrap_or("unnamed");
        by_class.entry(class.to_owned()).or_default().push(name);
    }
    let said: Vec<String> =
        by_class.into_iter().map(|(class, names)| format!("{class}: {}", names.join(", "))).collect();
    format!("{name} (networks {})", said.join("; "))
}
