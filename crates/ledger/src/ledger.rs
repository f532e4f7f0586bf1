//! All jobs of a project: those that it measured, and those that others published.
//!
//! Invariant: reading never writes, and a figure keeps its origin: published ones stay marked as such.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::{JobDir, LedgerError, MeasuredJob, PublishedBreakdown, PublishedError, PublishedFile, PublishedRow};

/// A job of the ledger.
#[derive(Clone, Debug)]
pub enum LedgerJob {
    /// Measured by this project.
    Measured(Box<MeasuredJob>),
    /// Published by others: the rows of one job.
    Published(Vec<PublishedRow>),
    /// Several jobs that were measured by this project, seen as one.
    Pooled(Vec<MeasuredJob>),
}

/// A job that was found by its name.
#[derive(Clone, Debug)]
pub struct FoundJob {
    /// The job.
    pub job: LedgerJob,
    /// Published breakdowns of the time of its steps; empty for a measured job.
    pub breakdowns: Vec<PublishedBreakdown>,
    /// A remark for the reader on how it was found.
    pub note: Option<String>,
}

/// Folders of a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerFolders {
    /// Folders of measured jobs, named by their numbers.
    pub runs: PathBuf,
    /// Files of published results that the user imported.
    pub imported: PathBuf,
    /// Folders of studies, each with files of published results in `published/`.
    pub studies: PathBuf,
}

impl LedgerFolders {
    fn job(&self, id: u64) -> JobDir {
        JobDir::new(self.runs.join(id.to_string()))
    }
}

/// Why there is no job of a name.
#[derive(Debug, thiserror::Error)]
pub enum FindJobError {
    /// The name has not the form of a job's.
    #[error("'{name}' is not a job: a number is expected")]
    NotAJob {
        /// The name.
        name: String,
    },
    /// Only some of several jobs were measured here.
    #[error("of {name}, job {measured} was measured here and others were not: they cannot be pooled")]
    PartlyMeasured {
        /// The name.
        name: String,
        /// A measured one.
        measured: u64,
        /// All of them.
        ids: Vec<u64>,
    },
    /// The job was published by others.
    #[error("job {id} was published by others; it never ran here")]
    OnlyPublished {
        /// The job.
        id: u64,
    },
    /// There is no such job.
    #[error("there is no job {name}")]
    Unknown {
        /// The name.
        name: String,
        /// Folder of the measured jobs.
        runs: PathBuf,
        /// Measured jobs.
        measured: Vec<u64>,
        /// Names of published jobs.
        published: Vec<String>,
    },
    /// The job cannot be read.
    #[error(transparent)]
    Record(#[from] LedgerError),
}

/// All jobs that a project can report on or compare.
#[derive(Debug)]
pub struct Ledger {
    folders: LedgerFolders,
    published: Vec<PublishedRow>,
    breakdowns: Vec<PublishedBreakdown>,
    notes: Vec<String>,
}

impl Ledger {
    /// Read all published results of a project. Measured jobs are read when they are asked for.
    ///
    /// # Errors
    /// A published file cannot be read, or does not have the documented form.
    pub fn open(folders: impl Into<LedgerFolders>) -> Result<Self, PublishedError> {
        let folders = folders.into();
        // Imported files come first: importing is the later decision.
        let mut files = toml_files(&folders.imported)?;
        for study in subfolders(&folders.studies)? {
            files.extend(toml_files(&study.join("published"))?);
        }
        let mut ledger = Self { folders, published: Vec::new(), breakdowns: Vec::new(), notes: Vec::new() };
        for path in files {
            let PublishedFile { rows, breakdowns } = PublishedFile::read(&path)?;
            let taken: BTreeSet<u64> = ledger.published.iter().flat_map(|r| r.jobs.clone()).collect();
            for row in rows {
                match row.jobs.iter().find(|j| taken.contains(j)) {
                    None => ledger.published.push(row),
                    Some(_) if ledger.published.contains(&row) => {}
                    Some(job) => {
                        ledger.notes.push(format!("job {job} in {} is hidden by another file", path.display()));
                    }
                }
            }
            let free = |breakdown: &PublishedBreakdown| breakdown.jobs.iter().all(|job| !taken.contains(job));
            ledger.breakdowns.extend(breakdowns.into_iter().filter(free));
        }
        Ok(ledger)
    }

    /// Remarks on the published files for the reader.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// All published rows.
    pub fn published_rows(&self) -> &[PublishedRow] {
        &self.published
    }

    /// All published breakdowns.
    pub fn published_breakdowns(&self) -> &[PublishedBreakdown] {
        &self.breakdowns
    }

    /// Numbers of all published jobs.
    pub fn published_jobs(&self) -> impl Iterator<Item = u64> {
        self.published.iter().flat_map(|row| row.jobs.iter().copied())
    }

    /// Find the job of a name: a number, several together (`428/430`: published as one, or measured one by one), or `published:392`.
    ///
    /// A number that is both measured and published is the measured job. It is read without its hardware samples, for a comparison.
    ///
    /// # Errors
    /// There is no such job, only some of several were measured here, or the job cannot be read.
    pub fn find(&self, name: &str) -> Result<FoundJob, FindJobError> {
        let (only_published, numbers) = match name.strip_prefix("published:") {
            Some(rest) => (true, rest),
            None => (false, name),
        };
        let ids: Option<Vec<u64>> = numbers.split('/').map(|n| n.trim().parse().ok()).collect();
        let Some(ids) = ids else {
            return Err(FindJobError::NotAJob { name: name.to_owned() });
        };
        let published: Vec<PublishedRow> =
            self.published.iter().filter(|r| ids.iter().all(|id| r.jobs.contains(id))).cloned().collect();
        let mut once: Vec<u64> = Vec::new();
        ids.iter().for_each(|id| {
            if !once.contains(id) {
                once.push(*id)
            }
        });
        let is_measured = |id: &u64| !only_published && self.folders.job(*id).record_path().exists();
        let load = |id: u64| MeasuredJob::load_without_samples(&self.folders.job(id));
        let both = |name: &str| {
            format!(
                "job {name} exists measured and published; showing the measured one (published:{name} is the other)"
            )
        };
        let job = match once[..] {
            [id] if is_measured(&id) => Some(LedgerJob::Measured(Box::new(load(id)?))),
            [_, _, ..] if once.iter().all(is_measured) => {
                Some(LedgerJob::Pooled(once.iter().map(|id| load(*id)).collect::<Result<_, _>>()?))
            }
            _ => None,
        };
        if let Some(job) = job {
            let note = (!published.is_empty()).then(|| both(numbers));
            return Ok(FoundJob { job, breakdowns: Vec::new(), note });
        }
        if !published.is_empty() {
            let of_job = |breakdown: &&PublishedBreakdown| ids.iter().all(|id| breakdown.jobs.contains(id));
            let breakdowns = self.breakdowns.iter().filter(of_job).cloned().collect();
            return Ok(FoundJob { job: LedgerJob::Published(published), breakdowns, note: None });
        }
        match once.iter().find(|id| is_measured(id)) {
            Some(id) => Err(FindJobError::PartlyMeasured { name: name.to_owned(), measured: *id, ids: once }),
            None => Err(self.unknown(name)),
        }
    }

    /// The folder of a job that was measured here.
    ///
    /// # Errors
    /// There is none.
    pub fn measured(&self, id: u64) -> Result<JobDir, FindJobError> {
        let folder = self.folders.job(id);
        if folder.record_path().exists() {
            return Ok(folder);
        }
        if self.published_jobs().any(|published| published == id) {
            return Err(FindJobError::OnlyPublished { id });
        }
        Err(self.unknown(&id.to_string()))
    }

    fn unknown(&self, name: &str) -> FindJobError {
        let mut published: Vec<String> = Vec::new();
        for row in &self.published {
            if !published.contains(&row.job_name()) {
                published.push(row.job_name());
            }
        }
        let (name, runs) = (name.to_owned(), self.folders.runs.clone());
        FindJobError::Unknown { name, runs, measured: self.measured_ids().into_iter().collect(), published }
    }

    /// Numbers of all jobs that were measured here.
    pub fn measured_ids(&self) -> BTreeSet<u64> {
        let entries = std::fs::read_dir(&self.folders.runs).into_iter().flatten().flatten();
        entries
            .filter_map(|e| e.file_name().to_str()?.parse().ok())
            .filter(|id| self.folders.job(*id).record_path().exists())
            .collect()
    }
}

fn subfolders(path: &Path) -> Result<Vec<PathBuf>, PublishedError> {
    let mut found: Vec<_> = entries(path)?.into_iter().filter(|p| p.is_dir()).collect();
    found.sort();
    Ok(found)
}

fn toml_files(path: &Path) -> Result<Vec<PathBuf>, PublishedError> {
    let is_toml = |path: &PathBuf| path.extension().is_some_and(|e| e == "toml") && path.is_file();
    let mut found: Vec<_> = entries(path)?.into_iter().filter(is_toml).collect();
    found.sort();
    Ok(found)
}

/// Entries of a folder; none if it does not exist.
fn entries(path: &Path) -> Result<Vec<PathBuf>, PublishedError> {
    match std::fs::read_dir(path) {
        Ok(all) => Ok(all.flatten().map(|e| e.path()).collect()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(PublishedError::Folder { path: path.to_owned(), source }),
    }
}
