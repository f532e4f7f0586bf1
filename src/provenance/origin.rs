use std::path::{Path, PathBuf};
use std::time::Duration;

use expctl_ledger::{
    ConfigFile, ConfigOrigin, JobDir, LibtorchFound, PROVENANCE_SCHEMA_VERSION, Program, Provenance, SourceState,
    Trial, looks_secret, write_atomic, write_json,
};

use super::secrets::{LEFT_OUT, Secrets, variables};
use super::source_tree::SourceTree;
use crate::conf::Config;
use crate::exit::Failure;
use crate::launch::{libtorch_folder, libtorch_version, needed_worker, worker_version};
use crate::plan::Plan;
use crate::project::Project;

/// How long the worker may take to print its version. Without an answer the version stays open: each attempt also writes it into its
/// `env.json`.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

/// Provenance of a job with its files. It is gathered before anything runs, and written when the job has its folder.
pub struct Origin {
    provenance: Provenance,
    /// Further files of the job's folder, with their content.
    files: Vec<(PathBuf, String)>,
}

impl Origin {
    /// Gather it; nothing is written. `plan` holds all trials of the config, before `--only`.
    ///
    /// # Errors
    /// There is no worker (exit 70).
    pub fn gather(project: &Project, config: &Config, plan: &Plan) -> Result<Self, Failure> {
        let secrets = Secrets::from_environment();
        let (copies, mut files) = config_files(config, &secrets);
        let tree = SourceTree::read(project);
        if let Some(diff) = tree.as_ref().and_then(|tree| tree.diff.as_ref()) {
            files.push((PathBuf::from("source.diff"), diff.text.clone()));
        }
        let (variables, left_out) = variables(&secrets);
        let worker = worker(&plan.trials)?;
        let name = |name: nix::Result<std::ffi::OsString>| name.map(|n| n.to_string_lossy().into_owned());
        let provenance = Provenance {
            schema: PROVENANCE_SCHEMA_VERSION,
            source: tree.map(|tree| tree.source),
            config: ConfigOrigin { hash: resolved_hash(config), rows: rows(plan), files: copies },
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

/// Last part of a path, as a plain name. Paths of compiled-in files end in `, compiled in`.
fn file_name(path: &str) -> String {
    let path = path.strip_suffix(", compiled in").unwrap_or(path);
    let name =
        Path::new(path).file_name().map_or_else(|| "file".to_owned(), |name| name.to_string_lossy().into_owned());
    name.chars().map(|c| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect()
}

/// Hash over the resolved settings of every row, as canonical JSON (keys sorted, no spaces).
pub(crate) fn resolved_hash(config: &Config) -> String {
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
    let Some(path) = needed_worker(trials)? else { return Ok(None) };
    let version =
        worker_version(&path, VERSION_TIMEOUT).ok().map(|line| line.trim_start_matches("expctl-worker ").to_owned());
    // The hash distinguishes builds of one version.
    Ok(Some(Program { version, commit: None, hash: file_hash(&path), path }))
}

/// The libtorch of a worker. `None`: it is not found.
fn libtorch(worker: &Path) -> Option<LibtorchFound> {
    let folder = libtorch_folder(worker)?;
    Some(LibtorchFound { version: libtorch_version(&folder), folder })
}
