use std::collections::BTreeSet;
use std::path::Path;

use expctl_record::JobDir;

use super::{MeasuredJob, PublishedBreakdown, PublishedFile, PublishedRow};
use crate::exit::{Exit, Failure};
use crate::project::Project;

/// A job of the ledger, wherever it comes from.
#[derive(Clone, Debug)]
pub enum Job {
    /// Measured by this project.
    Measured(Box<MeasuredJob>),
    /// Published by others: the rows of one job.
    Published(Vec<PublishedRow>),
    /// Several measured by this project, to be looked at together.
    Pooled(Vec<MeasuredJob>),
}

/// A job, with what the reader should be told about how it was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The job.
    pub job: Job,
    /// Where its source says that the time goes; empty of a measured job.
    pub breakdowns: Vec<PublishedBreakdown>,
    /// Said on stderr.
    pub note: Option<String>,
}

/// All jobs that a project can report on or compare.
#[derive(Debug)]
pub struct Ledger<'a> {
    project: &'a Project,
    published: Vec<PublishedRow>,
    breakdowns: Vec<PublishedBreakdown>,
    notes: Vec<String>,
}

impl<'a> Ledger<'a> {
    /// Read all published results of a project; measured jobs are read when they are asked for.
    ///
    /// # Errors
    /// A published file that does not have the documented form, by file and line.
    pub fn open(project: &'a Project) -> Result<Self, Failure> {
        // What the user took in comes first: it is the later decision.
        let mut files = toml_files(&project.imported())?;
        for study in folders(&project.studies())? {
            files.extend(toml_files(&study.join("published"))?);
        }
        let mut ledger = Self { project, published: Vec::new(), breakdowns: Vec::new(), notes: Vec::new() };
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

    /// What the reader should know about the published files.
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

    /// The job that `name` means: a number, several together (`428/430`: published as one, or measured one by one), or
    /// `published:392`.
    ///
    /// A number that is both measured and published is the measured one.
    ///
    /// # Errors
    /// Exit 7 and the jobs that exist, if there is no such job, or if only some of several were measured here.
    pub fn find(&self, name: &str) -> Result<Found, Failure> {
        let (only_published, numbers) = match name.strip_prefix("published:") {
            Some(rest) => (true, rest),
            None => (false, name),
        };
        let ids: Option<Vec<u64>> = numbers.split('/').map(|n| n.trim().parse().ok()).collect();
        let Some(ids) = ids else {
            return Err(Failure::new(Exit::Usage, format!("'{name}' is not a job: a number is expected"))
                .hint("examples: 392, 428/430, published:392"));
        };
        let published: Vec<PublishedRow> =
            self.published.iter().filter(|r| ids.iter().all(|id| r.jobs.contains(id))).cloned().collect();
        let mut once: Vec<u64> = Vec::new();
        ids.iter().for_each(|id| {
            if !once.contains(id) {
                once.push(*id)
            }
        });
        let is_measured = |id: &u64| !only_published && self.project.job(*id).record_path().exists();
        let load = |id: u64| MeasuredJob::load(&self.project.job(id));
        let both = |name: &str| {
            format!(
                "job {name} exists measured and published; showing the measured one (published:{name} is the other)"
            )
        };
        let job = match once[..] {
            [id] if is_measured(&id) => Some(Job::Measured(Box::new(load(id)?))),
            [_, _, ..] if once.iter().all(is_measured) => {
                Some(Job::Pooled(once.iter().map(|id| load(*id)).collect::<Result<_, _>>()?))
            }
            _ => None,
        };
        if let Some(job) = job {
            let note = (!published.is_empty()).then(|| both(numbers));
            return Ok(Found { job, breakdowns: Vec::new(), note });
        }
        if !published.is_empty() {
            let of_job = |breakdown: &&PublishedBreakdown| ids.iter().all(|id| breakdown.jobs.contains(id));
            let breakdowns = self.breakdowns.iter().filter(of_job).cloned().collect();
            return Ok(Found { job: Job::Published(published), breakdowns, note: None });
        }
        match once.iter().find(|id| is_measured(id)) {
            Some(some) => Err(Failure::new(
                Exit::Refused,
                format!("of {name}, job {some} was measured here and others were not: they cannot be pooled"),
            )
            .hint(format!("name them apart: {}", once.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")))),
            None => Err(self.unknown(name)),
        }
    }

    /// The folder of a job that was measured here.
    ///
    /// # Errors
    /// Exit 7 if there is none, with the jobs that exist.
    pub fn measured(&self, id: u64) -> Result<JobDir, Failure> {
        let folder = self.project.job(id);
        if folder.record_path().exists() {
            return Ok(folder);
        }
        if self.published_jobs().any(|published| published == id) {
            return Err(Failure::new(Exit::Refused, format!("job {id} was published by others; it never ran here")));
        }
        Err(self.unknown(&id.to_string()))
    }

    fn unknown(&self, name: &str) -> Failure {
        let list = |all: Vec<String>| if all.is_empty() { "none".to_owned() } else { all.join(", ") };
        let mut published: Vec<String> = Vec::new();
        for row in &self.published {
            if !published.contains(&row.job_name()) {
                published.push(row.job_name());
            }
        }
        let measured = list(self.measured_ids().iter().map(u64::to_string).collect());
        Failure::new(Exit::Refused, format!("there is no job {name}"))
            .hint(format!("measured jobs in {}: {measured}", self.project.runs().display()))
            .hint(format!("published jobs: {}", list(published)))
    }

    /// Numbers of all jobs that were measured here.
    pub fn measured_ids(&self) -> BTreeSet<u64> {
        let entries = std::fs::read_dir(self.project.runs()).into_iter().flatten().flatten();
        entries
            .filter_map(|e| e.file_name().to_str()?.parse().ok())
            .filter(|id| self.project.job(*id).record_path().exists())
            .collect()
    }
}

fn folders(path: &Path) -> Result<Vec<std::path::PathBuf>, Failure> {
    let mut found: Vec<_> = entries(path)?.into_iter().filter(|p| p.is_dir()).collect();
    found.sort();
    Ok(found)
}

fn toml_files(path: &Path) -> Result<Vec<std::path::PathBuf>, Failure> {
    let mut found: Vec<_> =
        entries(path)?.into_iter().filter(|p| p.extension().is_some_and(|e| e == "toml") && p.is_file()).collect();
    found.sort();
    Ok(found)
}

/// What a folder holds; nothing, if it does not exist.
fn entries(path: &Path) -> Result<Vec<std::path::PathBuf>, Failure> {
    match std::fs::read_dir(path) {
        Ok(all) => Ok(all.flatten().map(|e| e.path()).collect()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(Failure::internal(format!("cannot read {}: {e}", path.display()))),
    }
}
