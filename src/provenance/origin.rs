use std::path::{Path, PathBuf};

use expctl_record::{JobDir, looks_secret, write_atomic, write_json};

use super::programs::{expctl, libtorch, worker};
use super::record::{ConfigFile, ConfigOrigin, PROVENANCE_SCHEMA_VERSION, Provenance};
use super::secrets::{LEFT_OUT, Secrets};
use super::source_tree::SourceTree;
use super::variables::variables;
use crate::conf::Config;
use crate::exit::Failure;
use crate::plan::Plan;
use crate::project::Project;

/// Where a job comes from, with the files that tell. Taken before anything runs, written when the job has its folder.
pub struct Origin {
    provenance: Provenance,
    /// Further files of the job's folder, with their content.
    files: Vec<(PathBuf, String)>,
}

impl Origin {
    /// Look at everything; writes nothing. `plan` is all that the config makes, before `--only`.
    ///
    /// # Errors
    /// Exit 70 if there is no worker.
    pub fn gather(project: &Project, config: &Config, plan: &Plan) -> Result<Self, Failure> {
        let secrets = Secrets::of_environment();
        let (copies, mut files) = config_files(config, &secrets);
        let tree = SourceTree::of(project);
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

    /// Commit of the working tree in short, with `-dirty` if tracked files differ from it.
    pub fn commit(&self) -> Option<String> {
        self.provenance.source.as_ref().map(super::record::Source::short)
    }

    /// Write `provenance.json` and what belongs to it into the folder of a job.
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

/// The texts that a config was read from, and their copies: the file itself as `config.toml`, the others in `config/`.
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

/// Last part of a path, as a plain name; what is compiled in says so behind a comma.
fn file_name(path: &str) -> String {
    let path = path.strip_suffix(", compiled in").unwrap_or(path);
    let name =
        Path::new(path).file_name().map_or_else(|| "file".to_owned(), |name| name.to_string_lossy().into_owned());
    name.chars().map(|c| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect()
}

/// Over the resolved settings of every row: canonical JSON (keys sorted, no spaces).
pub(super) fn resolved_hash(config: &Config) -> String {
    let rows: Vec<_> = config.runs.iter().map(|run| (&run.variant, &run.method, run.values.flat())).collect();
    // Texts and plain values, which always can be written.
    let canonical = serde_json::to_vec(&rows).unwrap_or_default();
    blake3::hash(&canonical).to_hex().to_string()
}

/// Labels of a plan's rows, each once.
fn rows(plan: &Plan) -> Vec<String> {
    let mut rows: Vec<String> =
        plan.trials.iter().filter(|trial| trial.repeat == 1).map(expctl_record::Trial::label).collect();
    rows.dedup();
    rows
}

/// The command line without secrets, however they were given.
fn command(secrets: &Secrets) -> Vec<String> {
    let words = std::env::args_os().map(|word| secrets.cleaned(&word.to_string_lossy()));
    words
        .map(|word| match word.split_once('=') {
            Some((name, _)) if looks_secret(name) => format!("{name}={LEFT_OUT}"),
            _ => word,
        })
        .collect()
}

/// Name of the user, as the system knows it; else the number.
fn user() -> String {
    let id = nix::unistd::Uid::current();
    let name = nix::unistd::User::from_uid(id).ok().flatten().map(|user| user.name);
    name.unwrap_or_else(|| id.to_string())
}
