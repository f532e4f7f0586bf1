//! Changes since a job was submitted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use expctl_ledger::{JobDir, JobRecord, Provenance, SourceState, Trial};

use super::origin::{file_hash, resolved_hash};
use super::source_tree::SourceTree;
use crate::conf;
use crate::ledger::flatten_all;
use crate::plan::{self, is_isolation};
use crate::project::Project;

/// Maximum number of settings that are named one by one.
const MAX_NAMED_KEYS: usize = 6;
/// Maximum difference between the clocks of a file system and of this machine, seconds.
const CLOCK_DIFFERENCE_S: i64 = 60;

/// Changes of config, code and worker since a job was submitted, a line each. Empty if there are none, or if the job is older than
/// `provenance.json`.
pub fn changes_since_submit(project: &Project, job: &JobDir, record: &JobRecord) -> Vec<String> {
    let submitted = match Provenance::read(job) {
        Ok(Some(submitted)) => submitted,
        Ok(None) => return Vec::new(),
        Err(e) => return vec![format!("what it was submitted with cannot be read: {e}")],
    };
    let mut changes = config_changes(project, record, &submitted);
    changes
        .extend(source_change(submitted.source.as_ref(), SourceTree::read(project).map(|tree| tree.source).as_ref()));
    if let Some(worker) = &submitted.worker
        && let Some(hash) = &worker.hash
    {
        let path = worker.path.display();
        let untouched = untouched_since(&worker.path, record.submitted - CLOCK_DIFFERENCE_S);
        match if untouched { Some(hash.clone()) } else { file_hash(&worker.path) } {
            Some(now) if now == *hash => {}
            Some(_) => changes.push(format!("worker: {path} is another program now")),
            None => changes.push(format!("worker: {path} is gone")),
        }
    }
    changes
}

/// Whether a file has not changed since `time` (seconds since the epoch). Writing or replacing it changes the time of its inode, whatever date
/// the file is given. A hash of 100 MB would cost more than the rest of a status.
fn untouched_since(path: &Path, time: i64) -> bool {
    use std::os::unix::fs::MetadataExt;
    path.metadata().is_ok_and(|file| file.ctime() < time)
}

fn config_changes(project: &Project, record: &JobRecord, submitted: &Provenance) -> Vec<String> {
    // The config of an isolation job comes from a past job, and is in no file that could have changed.
    if is_isolation(&record.config_path) {
        return Vec::new();
    }
    let path = submitted.folder.join(&record.config_path);
    let gone = |e: &dyn std::fmt::Display| {
        let first = e.to_string();
        let first = first.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned();
        vec![format!("config: {} no longer makes a plan: {first}", path.display())]
    };
    let config = match conf::load(project, &path, &record.overrides) {
        Ok(config) => config,
        Err(e) => return gone(&e),
    };
    if resolved_hash(&config) == submitted.config.hash {
        return Vec::new();
    }
    match plan::expand(project, &config) {
        Ok(plan) => differences(record, &plan.trials, &submitted.config.rows),
        Err(e) => gone(&e),
    }
}

/// Differences between the plan of a job and the plan now: settings by key, rows that are gone, and new rows.
fn differences(record: &JobRecord, now: &[Trial], known_rows: &[String]) -> Vec<String> {
    let mut changed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut gone: Vec<String> = Vec::new();
    let mut seen = BTreeSet::new();
    // Repeats share their settings.
    for trial in record.trials.iter().filter(|trial| seen.insert(trial.label())) {
        let label = trial.label();
        let Some(other) = now.iter().find(|t| t.label() == label) else {
            gone.push(label);
            continue;
        };
        let (was, is) = (flatten_all(&trial.settings), flatten_all(&other.settings));
        let keys: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
        for key in keys.into_iter().filter(|key| was.get(*key) != is.get(*key)) {
            let shown =
                |side: &BTreeMap<String, String>| side.get(key).cloned().unwrap_or_else(|| "not set".to_owned());
            changed.entry(key.clone()).or_default().insert(format!("{} is {} now", shown(&was), shown(&is)));
        }
        if trial.method != other.method {
            let said = format!("{:?} is {:?} now", trial.method, other.method);
            changed.entry("method".to_owned()).or_default().insert(said);
        }
    }
    let mut lines: Vec<String> = changed
        .iter()
        .take(MAX_NAMED_KEYS)
        .map(|(key, said)| format!("config: {key}: {}", said.iter().cloned().collect::<Vec<_>>().join("; ")))
        .collect();
    if changed.len() > MAX_NAMED_KEYS {
        lines.push(format!("config: {} more keys differ", changed.len() - MAX_NAMED_KEYS));
    }
    let mut new: Vec<String> = Vec::new();
    for label in now.iter().map(Trial::label) {
        if !known_rows.contains(&label) && !new.contains(&label) {
            new.push(label);
        }
    }
    lines.extend(
        Some(gone).filter(|rows| !rows.is_empty()).map(|rows| format!("config: no longer has {}", rows.join(", "))),
    );
    lines.extend(
        Some(new).filter(|rows| !rows.is_empty()).map(|rows| format!("config: has {} besides", rows.join(", "))),
    );
    lines
}

fn source_change(was: Option<&SourceState>, is: Option<&SourceState>) -> Option<String> {
    match (was, is) {
        (Some(was), Some(is)) if was.commit != is.commit => {
            Some(format!("code: commit {} is {} now", was.short(), is.short()))
        }
        (Some(was), Some(is)) if was.hash != is.hash => Some(match (&was.hash, &is.hash) {
            (None, _) => format!("code: changed since commit {}", was.short()),
            (_, None) => format!("code: the changes that lay on top of commit {} are gone", is.short()),
            _ => format!("code: other changes than then lie on top of commit {}", is.short()),
        }),
        (Some(was), None) => Some(format!("code: was at commit {}; no repository is found now", was.short())),
        _ => None,
    }
}
