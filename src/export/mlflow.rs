//! The file store of MLflow: an experiment for the config, a run for the job, and below it one for each trial.
//!
//! ```text
//! 0/meta.yaml                    the experiment that every store has
//! <experiment>/meta.yaml
//! <experiment>/<run>/meta.yaml   times and state
//!                    params/KEY  a setting
//!                    metrics/KEY a line for each step: time in ms, value, step
//!                    tags/KEY
//! ```
//!
//! Experiments and runs have the same ids in every export of the same submission, so that exports of several jobs can be copied into one store.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use expctl_ledger::{JobRecord, JobVerdictError, RunState};
use serde_json::Value;

use super::ExportError;
use super::step_series::StepSeries;
use super::trial_facts::{TrialFacts, TrialOutcome};

/// Longest value of a parameter in databases of MLflow.
const MAX_PARAMETER: usize = 6000;

/// States of runs.
const RUNNING: u8 = 1;
const FINISHED: u8 = 3;
const FAILED: u8 = 4;
const KILLED: u8 = 5;

/// A file store that is being written.
pub struct MlflowStore {
    /// Folder of the experiment while it is written.
    folder: PathBuf,
    /// The same as it will be called.
    target: PathBuf,
    experiment: String,
    /// What tells the submission from all others.
    identity: String,
    parent: String,
}

/// A run of the store.
struct StoredRun<'a> {
    id: &'a str,
    name: &'a str,
    /// Seconds since 1970.
    start: i64,
    /// `None`: it has not ended.
    end: Option<i64>,
    status: u8,
    tags: Vec<(String, String)>,
}

impl MlflowStore {
    /// Begin a store in `folder`, which will be called `target`. `identity` is the same in every export of the same submission, and in no other.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn new(folder: &Path, target: &Path, config: &str, identity: &str, at: i64) -> Result<Self, ExportError> {
        let target = std::path::absolute(target).map_err(ExportError::write(target))?;
        // Numbers of as many digits as MLflow's own.
        let number = u64::from_le_bytes(first_bytes(&format!("experiment {config}"))) % 900_000_000_000_000_000;
        let experiment = (number + 100_000_000_000_000_000).to_string();
        for (id, name) in [("0", "Default"), (experiment.as_str(), config)] {
            let meta = [
                ("artifact_location", quoted(&uri(&target.join(id)))),
                ("creation_time", (at * 1000).to_string()),
                ("experiment_id", quoted(id)),
                ("last_update_time", (at * 1000).to_string()),
                ("lifecycle_stage", "active".to_owned()),
                ("name", quoted(name)),
            ];
            write(&folder.join(id).join("meta.yaml"), &yaml(&meta))?;
        }
        Ok(Self {
            folder: folder.join(&experiment),
            target: target.join(&experiment),
            parent: run_id(identity, "job"),
            identity: identity.to_owned(),
            experiment,
        })
    }

    /// Write the run of a trial. `series`: its steps, if it has any. `at`: the time of a run that has no other, seconds since 1970.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_trial(&self, facts: &TrialFacts, series: Option<&StepSeries<'_>>, at: i64) -> Result<(), ExportError> {
        let id = run_id(&self.identity, &facts.trial);
        let start = series.map(StepSeries::start).filter(|start| *start > 0).or(facts.started).unwrap_or(at);
        let status = match &facts.outcome {
            TrialOutcome::Run(RunState::Completed) | TrialOutcome::Imported => FINISHED,
            TrialOutcome::Run(RunState::Failed(_) | RunState::Unreadable(_)) => FAILED,
            TrialOutcome::Run(RunState::Interrupted) => KILLED,
            TrialOutcome::Run(RunState::Unfinished | RunState::NotStarted) => RUNNING,
        };
        let own = facts.tags().into_iter().map(|(key, text)| (format!("expctl.{key}"), text));
        let mut tags: Vec<(String, String)> = own.collect();
        tags.push(("mlflow.parentRunId".to_owned(), self.parent.clone()));
        let name = facts.name();
        let end = facts.ended.or((status == FINISHED).then_some(start));
        self.write_run(&StoredRun { id: &id, name: &name, start, end, status, tags })?;
        let folder = self.folder.join(&id);
        for (key, value) in &facts.settings {
            let text = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            write(&folder.join("params").join(file_name(key)), &text.chars().take(MAX_PARAMETER).collect::<String>())?;
        }
        let mut metrics = MetricFiles { folder: folder.join("metrics"), files: BTreeMap::new() };
        let mut last = (0, start as f64);
        for point in series.iter().flat_map(|series| series.points()) {
            last = (point.step, point.at);
            metrics.add(point.step, point.at, &point.values)?;
        }
        metrics.add(last.0, last.1, &facts.figures())?;
        metrics.finish()
    }

    /// Write the run of the job, which those of its trials are nested in.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_job(&self, record: &JobRecord, verdict: &Result<(), JobVerdictError>) -> Result<(), ExportError> {
        let status = match verdict {
            Ok(()) => FINISHED,
            Err(JobVerdictError::Failed { .. }) => FAILED,
            Err(JobVerdictError::Incomplete { .. }) => RUNNING,
        };
        let commit = record.commit.clone().unwrap_or_default();
        let tags = [
            ("expctl.job", record.job.to_string()),
            ("expctl.config", record.config.clone()),
            ("expctl.study", record.study.clone()),
            ("expctl.backend", record.backend.clone()),
            ("expctl.version", record.expctl_version.clone()),
            ("expctl.commit", commit.clone()),
            ("expctl.overrides", record.overrides.join(" ")),
            ("expctl.baseline", record.baseline.clone().unwrap_or_default()),
            ("mlflow.source.name", record.config_path.display().to_string()),
            // A commit of a tree with changes is none.
            ("mlflow.source.git.commit", if commit.ends_with("-dirty") { String::new() } else { commit }),
        ];
        let tags = tags.into_iter().map(|(key, text)| (key.to_owned(), text)).collect();
        let (name, start) = (format!("job {}", record.job), record.submitted);
        let end = (status != RUNNING).then_some(start);
        self.write_run(&StoredRun { id: &self.parent, name: &name, start, end, status, tags })
    }

    /// Write the run of a job that others published.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_published(&self, job: &str, source: &str, at: i64) -> Result<(), ExportError> {
        let tags = [("expctl.job", job), ("expctl.class", "imported"), ("expctl.source", source)];
        let tags = tags.into_iter().map(|(key, text)| (key.to_owned(), text.to_owned())).collect();
        let name = format!("job {job} (imported)");
        self.write_run(&StoredRun { id: &self.parent, name: &name, start: at, end: Some(at), status: FINISHED, tags })
    }

    fn write_run(&self, run: &StoredRun<'_>) -> Result<(), ExportError> {
        let folder = self.folder.join(run.id);
        let meta = [
            ("artifact_uri", quoted(&uri(&self.target.join(run.id).join("artifacts")))),
            ("end_time", run.end.map_or_else(|| "null".to_owned(), |end| (end * 1000).to_string())),
            ("entry_point_name", quoted("")),
            ("experiment_id", quoted(&self.experiment)),
            ("lifecycle_stage", "active".to_owned()),
            ("run_id", quoted(run.id)),
            ("run_name", quoted(run.name)),
            // The name of the id in versions before 3.
            ("run_uuid", quoted(run.id)),
            ("source_name", quoted("")),
            ("source_type", "4".to_owned()),
            ("source_version", quoted("")),
            ("start_time", (run.start * 1000).to_string()),
            ("status", run.status.to_string()),
            ("tags", "[]".to_owned()),
            ("user_id", quoted("expctl")),
        ];
        write(&folder.join("meta.yaml"), &yaml(&meta))?;
        for kind in ["params", "metrics", "artifacts"] {
            let path = folder.join(kind);
            std::fs::create_dir_all(&path).map_err(ExportError::write(&path))?;
        }
        let named =
            [("mlflow.runName".to_owned(), run.name.to_owned()), ("mlflow.user".to_owned(), "expctl".to_owned())];
        for (key, text) in run.tags.iter().chain(&named).filter(|(_, text)| !text.is_empty()) {
            write(&folder.join("tags").join(file_name(key)), text)?;
        }
        Ok(())
    }
}

/// The metrics of a run, a file each, that are being written.
struct MetricFiles {
    folder: PathBuf,
    files: BTreeMap<String, (PathBuf, BufWriter<File>)>,
}

impl MetricFiles {
    fn add(&mut self, step: u64, at: f64, values: &[(String, f64)]) -> Result<(), ExportError> {
        let milliseconds = (at * 1e3).round() as i64;
        for (name, value) in values {
            let (path, file) = match self.files.entry(name.clone()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let path = self.folder.join(name);
                    let made = make_parent(&path).and_then(|()| File::create_new(&path));
                    let file = BufWriter::new(made.map_err(ExportError::write(&path))?);
                    new.insert((path, file))
                }
            };
            writeln!(file, "{milliseconds} {value} {step}").map_err(ExportError::write(path))?;
        }
        Ok(())
    }

    fn finish(self) -> Result<(), ExportError> {
        for (path, mut file) in self.files.into_values() {
            file.flush().map_err(ExportError::write(&path))?;
        }
        Ok(())
    }
}

/// An id of 32 hexadecimal digits.
fn run_id(identity: &str, name: &str) -> String {
    blake3::hash(format!("{identity} {name}").as_bytes()).to_hex()[..32].to_owned()
}

fn first_bytes(text: &str) -> [u8; 8] {
    let mut first = [0; 8];
    first.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..8]);
    first
}

/// A name that MLflow takes, and that is no path: letters, digits, `_`, `-`, `.`, `:` and spaces.
fn file_name(key: &str) -> String {
    let name: String = key.chars().map(|c| if c.is_alphanumeric() || "_-.: ".contains(c) { c } else { '_' }).collect();
    if name.chars().all(|c| c == '.') { name.replace('.', "_") } else { name }
}

/// A path as `file://` address.
fn uri(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let bytes = path.as_os_str().as_encoded_bytes().iter();
    let escaped: String =
        bytes.map(|byte| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") }).collect();
    format!("file://{escaped}")
}

/// A text as YAML has it: a JSON string is one.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn yaml(entries: &[(&str, String)]) -> String {
    entries.iter().map(|(key, value)| format!("{key}: {value}\n")).collect()
}

fn make_parent(path: &Path) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)
}

fn write(path: &Path, text: &str) -> Result<(), ExportError> {
    make_parent(path).and_then(|()| std::fs::write(path, text)).map_err(ExportError::write(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_ones_that_mlflow_takes() {
        assert_eq!(file_name("program.amp=on/\u{1f600}"), "program.amp_on__");
        assert_eq!((file_name("..").as_str(), file_name("../x").as_str()), ("__", ".._x"));
        assert_eq!(uri(Path::new("/a b/ü")), "file:///a%20b/%C3%BC");
        assert_eq!(quoted("a: \"b\"\n"), r#""a: \"b\"\n""#);
        assert_eq!(yaml(&[("a", "1".to_owned()), ("b", quoted("2"))]), "a: 1\nb: \"2\"\n");
        let id = run_id("12 1700000000", "lazy-r1");
        assert!(id.len() == 32 && id != run_id("13 1700000000", "lazy-r1") && id == run_id("12 1700000000", "lazy-r1"));
    }
}
