//! [`JobOrigin`]: what a job is submitted with; and [`changes_since_submit`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use expctl_config::{Config, Plan, ProjectFiles, expand, is_isolation, is_rerun, is_verification, load_only};
use expctl_ledger::{
    ConfigFile, ConfigOrigin, JobDir, JobRecord, LibtorchFound, PROVENANCE_SCHEMA_VERSION, Program, Provenance,
    SourceState, write_atomic, write_json,
};
use expctl_settings::{Trial, looks_secret};

use super::secrets::{LEFT_OUT, Secrets, variables};
use super::source_tree::{SourceTree, source_state};
use crate::exit::Failure;
use crate::ledger::flatten_all;
use crate::program::{FoundWorker, libtorch_folder, libtorch_version, needed_worker_of_this_version};
use crate::project::{Project, SENT_SOURCE};

/// The config that a job runs.
#[derive(Clone, Copy, Debug)]
pub enum ConfigOf<'a> {
    /// One that was read.
    Read(&'a Config),
    /// That of a past job, once more.
    Past(&'a JobDir),
}

/// The code that the programs of a job run.
#[derive(Clone, Debug)]
pub enum CodeOf {
    /// A copy of the project's files as they are now.
    Now,
    /// The project's folder, whatever is in it when they start.
    Live,
    /// That of a past job.
    Job(JobDir),
}

/// Provenance of a job with its files. It is gathered before anything runs, and written when the job has its folder.
pub struct JobOrigin {
    provenance: Provenance,
    /// Further files of the job's folder, with their content.
    files: Vec<(PathBuf, String)>,
}

impl JobOrigin {
    /// Gather it; nothing is written. `plan` holds all trials of the config, before `--only`. A job that runs live code has the differences
    /// from the commit in `source.diff`: there is no snapshot that would tell.
    ///
    /// # Errors
    /// There is no worker, or one of another version (exit 70), or the provenance of the past job cannot be read (exit 6).
    pub fn gather(project: &Project, config: ConfigOf<'_>, plan: &Plan, code: &CodeOf) -> Result<Self, Failure> {
        let secrets = Secrets::from_environment();
        let (config, mut files) = match config {
            ConfigOf::Read(config) => {
                let (copies, files) = config_files(config, &secrets);
                (ConfigOrigin { hash: resolved_hash(config), rows: rows(plan), files: copies }, files)
            }
            ConfigOf::Past(job) => past_config(job, plan)?,
        };
        let source = match (code, std::env::var(SENT_SOURCE)) {
            (CodeOf::Job(past), _) => Provenance::read(past)?.and_then(|past| past.source),
            (CodeOf::Now | CodeOf::Live, Ok(sent)) => serde_json::from_str(&sent).unwrap_or_default(),
            (CodeOf::Now | CodeOf::Live, Err(_)) => SourceTree::read(project).map(|tree| {
                let diff = tree.diff.filter(|_| matches!(code, CodeOf::Live));
                files.extend(diff.map(|diff| (PathBuf::from("source.diff"), diff.text)));
                tree.source
            }),
        };
        let (variables, left_out) = variables(&secrets);
        let worker = worker(&plan.trials)?;
        let name = |name: nix::Result<std::ffi::OsString>| name.map(|n| n.to_string_lossy().into_owned());
        let provenance = Provenance {
            schema: PROVENANCE_SCHEMA_VERSION,
            source,
            config,
            command: command(&secrets),
            user: user(),
            host: name(nix::unistd::gethostname()).unwrap_or_default(),
            folder: std::env::current_dir().unwrap_or_default(),
            expctl: expctl(),
            libtorch: worker.as_ref().and_then(|worker| libtorch(&worker.path)),
            worker,
            variables,
            left_out,
        };
        Ok(Self { provenance, files })
    }

    /// First digits of the commit of the working tree, with `-dirty` if tracked files differ from it.
    pub fn commit(&self) -> Option<String> {
        self.provenance.source.as_ref().map(SourceState::short)
    }

    /// Write `provenance.json` and its files into the folder of a job.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn write(&self, job: &JobDir) -> Result<(), Failure> {
        for (name, text) in &self.files {
            write_atomic(&job.path().join(name), text.as_bytes())?;
        }
        Ok(write_json(&Provenance::path(job), &self.provenance)?)
    }
}

/// The files that a config was read from, and their copies: the config itself as `config.toml`, the others in `config/`.
fn config_files(config: &Config, secrets: &Secrets) -> (Vec<ConfigFile>, Vec<(PathBuf, String)>) {
    let mut described = Vec::new();
    let mut copies = Vec::new();
    for (i, (path, text)) in config.sources.files().into_iter().enumerate() {
        let copy = match i {
            0 => PathBuf::from("config.toml"),
            // Files of several folders may have one name.
            i => Path::new("config").join(format!("{i}-{}", file_name(path))),
        };
        let hash = blake3::hash(text.as_bytes()).to_hex().to_string();
        described.push(ConfigFile { path: path.to_owned(), copy: copy.clone(), hash });
        copies.push((copy, secrets.cleaned(text)));
    }
    (described, copies)
}

/// The config of a past job, with the copies of its files. A job that is older than `provenance.json` has none.
fn past_config(job: &JobDir, plan: &Plan) -> Result<(ConfigOrigin, Vec<(PathBuf, String)>), Failure> {
    let Some(Provenance { config, .. }) = Provenance::read(job)? else {
        return Ok((ConfigOrigin { hash: String::new(), rows: rows(plan), files: Vec::new() }, Vec::new()));
    };
    // A copy that is gone is no reason not to run again.
    let read =
        |file: &ConfigFile| Some((file.copy.clone(), std::fs::read_to_string(job.path().join(&file.copy)).ok()?));
    let files = config.files.iter().filter_map(read).collect();
    Ok((config, files))
}

/// Last part of a path, as a plain name. Paths of compiled-in files end in `, compiled in`.
fn file_name(path: &str) -> String {
    let path = path.strip_suffix(", compiled in").unwrap_or(path);
    let name =
        Path::new(path).file_name().map_or_else(|| "file".to_owned(), |name| name.to_string_lossy().into_owned());
    name.chars().map(|c| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect()
}

/// Hash over the resolved settings of every row, as canonical JSON (keys sorted, no spaces).
fn resolved_hash(config: &Config) -> String {
    let rows: Vec<_> = config.runs.iter().map(|run| (&run.variant, &run.method, run.values.flat())).collect();
    // Texts and plain values can always be serialized.
    let canonical = serde_json::to_vec(&rows).unwrap_or_default();
    blake3::hash(&canonical).to_hex().to_string()
}

/// Labels of a plan's rows, each once.
fn rows(plan: &Plan) -> Vec<String> {
    let mut rows: Vec<String> = plan.trials.iter().filter(|trial| trial.repeat == 1).map(Trial::label).collect();
    rows.dedup();
    rows
}

/// The command line without secrets.
fn command(secrets: &Secrets) -> Vec<String> {
    let words = std::env::args_os().map(|word| secrets.cleaned(&word.to_string_lossy()));
    words
        .map(|word| match word.split_once('=') {
            Some((name, _)) if looks_secret(name) => format!("{name}={LEFT_OUT}"),
            _ => word,
        })
        .collect()
}

/// Name of the user; the number, if the system has no name.
fn user() -> String {
    let id = nix::unistd::Uid::current();
    let name = nix::unistd::User::from_uid(id).ok().flatten().map(|user| user.name);
    name.unwrap_or_else(|| id.to_string())
}

/// Hash of a file. `None`: it cannot be read.
pub(crate) fn file_hash(path: &Path) -> Option<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(std::fs::File::open(path).ok()?).ok()?;
    Some(hasher.finalize().to_hex().to_string())
}

/// This program. The build sets its commit in `EXPCTL_BUILD_COMMIT`.
fn expctl() -> Program {
    let path = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("expctl"));
    Program {
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        commit: option_env!("EXPCTL_BUILD_COMMIT").filter(|commit| !commit.is_empty()).map(str::to_owned),
        hash: file_hash(&path),
        path,
    }
}

/// The worker. `None`: none of `trials` needs it.
fn worker(trials: &[Trial]) -> Result<Option<Program>, Failure> {
    let Some(FoundWorker { path, version }) = needed_worker_of_this_version(trials)? else { return Ok(None) };
    // The hash distinguishes builds of one version.
    Ok(Some(Program { version, commit: None, hash: file_hash(&path), path }))
}

/// The libtorch of a worker. `None`: it is not found.
fn libtorch(worker: &Path) -> Option<LibtorchFound> {
    let folder = libtorch_folder(worker)?;
    Some(LibtorchFound { version: libtorch_version(&folder), folder })
}

/// Maximum number of settings that are named one by one.
const MAX_NAMED_KEYS: usize = 6;
/// Maximum difference between the clocks of a file system and of this machine, seconds.
const CLOCK_DIFFERENCE_S: i64 = 60;

/// Changes of config, code and worker since a job was submitted, a line each. Empty if there are none, or if the job is older than
/// `provenance.json`.
pub fn changes_since_submit(
    project: &Project,
    files: &dyn ProjectFiles,
    job: &JobDir,
    record: &JobRecord,
) -> Vec<String> {
    let submitted = match Provenance::read(job) {
        Ok(Some(submitted)) => submitted,
        Ok(None) => return Vec::new(),
        Err(e) => return vec![format!("what it was submitted with cannot be read: {e}")],
    };
    let mut changes = config_changes(files, record, &submitted);
    // Code that was sent from another machine never changes.
    if std::env::var_os(SENT_SOURCE).is_none() {
        changes.extend(source_change(submitted.source.as_ref(), source_state(project).as_ref()));
    }
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

fn config_changes(files: &dyn ProjectFiles, record: &JobRecord, submitted: &Provenance) -> Vec<String> {
    // A config that was derived from a past job is in no file that could have changed, and `expctl search` knows by itself what has.
    let path = &record.config_path;
    let is_derived = is_isolation(path) || is_verification(path) || is_rerun(path);
    if is_derived || record.search.is_some() {
        return Vec::new();
    }
    let path = submitted.folder.join(&record.config_path);
    let gone = |e: &dyn std::fmt::Display| {
        let first = e.to_string();
        let first = first.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned();
        vec![format!("config: {} no longer makes a plan: {first}", path.display())]
    };
    // Variants that were left out need not have fitted the overrides.
    let ran: BTreeSet<String> = record.trials.iter().map(|trial| trial.variant.clone()).collect();
    let config = match load_only(files, &path, &record.overrides, &ran.into_iter().collect::<Vec<_>>()) {
        Ok(config) => config,
        Err(e) => return gone(&e),
    };
    if resolved_hash(&config) == submitted.config.hash {
        return Vec::new();
    }
    match expand(files, &config) {
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
