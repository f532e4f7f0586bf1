//! [`JobPages`]: the pages of jobs, and which state of a job each was made of.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use expctl_ledger::{MeasuredJob, write_atomic};
use expctl_stats::median;
use serde::{Deserialize, Serialize};

use super::job_entry::{PageSummary, VariantRate};
use crate::console::say;
use crate::exit::Failure;
use crate::ledger::ListedJob;
use crate::project::Project;
use crate::report::html::write_page;
use crate::report::note::{NoteOptions, answers};
use crate::report::variant_row::{VariantRow, measured_rows};

/// The file by which a folder is known as a site.
pub const FILE: &str = "expctl-site.json";

/// The pages of a site.
pub struct JobPages {
    folder: PathBuf,
    made: BTreeMap<u64, MadePage>,
}

/// A page, and what it was made of.
#[derive(Serialize, Deserialize)]
struct MadePage {
    /// Version of expctl, submission of the job, and the newest outcome of its trials, ns since 1970.
    of: (String, i64, u64),
    #[serde(flatten)]
    summary: PageSummary,
}

impl JobPages {
    /// The pages that a folder has. A file that cannot be read counts as none: all pages are made again.
    pub fn open(folder: &Path) -> Result<Self, Failure> {
        let made = match std::fs::read(folder.join(FILE)) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_default(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(e) => return Err(Failure::internal(format!("cannot read {}: {e}", folder.join(FILE).display()))),
        };
        let pages = Self { folder: folder.to_owned(), made };
        // From now on the folder is one of a site, even if this is interrupted.
        pages.save()?;
        Ok(pages)
    }

    /// Write down which pages there are.
    pub fn save(&self) -> Result<(), Failure> {
        let text = serde_json::to_vec(&self.made).map_err(Failure::internal)?;
        Ok(write_atomic(&self.folder.join(FILE), &text)?)
    }

    /// What the page of a job says; the page is made if there is none of the job as it is now. `None`, with a warning, if it cannot be.
    pub fn current(
        &mut self,
        project: &Project,
        listed: &ListedJob,
        options: &NoteOptions,
    ) -> Result<Option<PageSummary>, Failure> {
        let job = listed.job;
        let of = (env!("CARGO_PKG_VERSION").to_owned(), listed.submitted, listed.newest_outcome_ns);
        if let Some(made) = self.made.get(&job).filter(|made| made.of == of)
            && self.folder.join(&made.summary.page).is_file()
        {
            return Ok(Some(made.summary.clone()));
        }
        // A large job takes seconds.
        say(format!("page of job {job}"));
        match self.make(project, job, options) {
            Ok(summary) => {
                self.made.insert(job, MadePage { of, summary: summary.clone() });
                Ok(Some(summary))
            }
            Err(failure) => {
                say(format!("warning: no page of job {job}: {}", failure.message));
                Ok(None)
            }
        }
    }

    fn make(&self, project: &Project, job: u64, options: &NoteOptions) -> Result<PageSummary, Failure> {
        let job = MeasuredJob::load(&project.job(job))?;
        let page = format!("jobs/{}.html", job.record.job);
        // A page of another submission of this number would be kept, and this one written beside it.
        let path = self.folder.join(&page);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(Failure::internal(e)),
            _ => {}
        }
        write_page(project, &job, &path.with_extension("md"), options)?;
        let rates = measured_rows(&job).iter().filter_map(rate).collect();
        Ok(PageSummary { page, answer: answers(&job).into_iter().next().unwrap_or_default(), rates })
    }
}

/// The rate of a row; `None` without a completed run.
fn rate(row: &VariantRow) -> Option<VariantRate> {
    let interval = row.samples_per_s_rate.as_ref().and_then(|rate| rate.interval);
    Some(VariantRate {
        label: row.label.clone(),
        samples_per_s: median(&row.samples_per_s)?,
        it_per_s: median(&row.it_per_s)?,
        low: interval.map(|interval| interval.low),
        high: interval.map(|interval| interval.high),
        n: row.n,
    })
}
