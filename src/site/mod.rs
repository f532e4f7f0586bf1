//! All jobs of a ledger as a folder of pages: `index.html` with every job, `history.html` with the rates over the jobs, and below `jobs/` the
//! pages of the newest jobs that have ended.
//!
//! Invariants: text from a config or a ledger is never markup; a page fetches nothing; a page of a job is made again only when the job has
//! changed; nothing of the ledger is written.

mod history_page;
mod job_entry;
mod job_pages;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use expctl_ledger::{JobDir, Ledger, write_atomic};
use serde_json::json;

use self::history_page::HistoryPage;
use self::job_entry::JobEntry;
use self::job_pages::JobPages;
use crate::console::say;
use crate::exit::{Exit, Failure};
use crate::launch::status::ListedJobs;
use crate::ledger::ListedJob;
use crate::project::Project;
use crate::report::html::{PAGE_STYLE, THEME_SCRIPT};
use crate::report::note::NoteOptions;

const INDEX: &str = include_str!("index.html.j2");
const STYLE: &str = include_str!("index.css");
const SCRIPT: &str = include_str!("index.js");

/// A site that was written.
pub struct Site {
    /// Its first page.
    pub index: PathBuf,
    /// Jobs that cannot be read, and why.
    pub unreadable: Vec<(JobDir, Failure)>,
}

/// Write the pages of a project's ledger into `folder`. The newest `pages` jobs get pages of their own, with notes as `options` say. With
/// `refresh_s` a browser loads the first page again after so many seconds while jobs wait or run.
///
/// # Errors
/// Exit 2 if `folder` has files of others; 6 if the ledger cannot be read; 70 if a page cannot be written.
pub fn write_site(
    project: &Project,
    folder: &Path,
    pages: usize,
    refresh_s: Option<u64>,
    options: &NoteOptions,
) -> Result<Site, Failure> {
    refuse_others(folder)?;
    let ledger = Ledger::open(project)?;
    let folders: Vec<JobDir> = ledger.measured_ids().iter().map(|id| ledger.measured(*id)).collect::<Result<_, _>>()?;
    let listed = ListedJobs::load(project, &folders)?;
    if let Some(trouble) = &listed.trouble {
        say(format!("note: Slurm cannot be asked: {trouble}"));
    }
    std::fs::create_dir_all(folder.join("jobs")).map_err(Failure::internal)?;
    let jobs = Arc::new(listed.jobs);
    let options = NoteOptions { listed: Some(Arc::clone(&jobs)), ..options.clone() };
    let mut job_pages = JobPages::open(folder)?;
    let mut entries = Vec::with_capacity(jobs.len());
    for (position, job) in jobs.iter().enumerate() {
        let page = match position < pages && !job.is_active() {
            true => job_pages.current(project, job, &options)?,
            false => None,
        };
        entries.push(JobEntry::new(job, page));
    }
    job_pages.save()?;
    let title =
        project.root().file_name().map_or_else(|| "expctl".to_owned(), |name| name.to_string_lossy().into_owned());
    HistoryPage::open(folder).write(project, &ledger, &jobs, &title)?;
    let is_active = jobs.iter().any(ListedJob::is_active);
    let index = folder.join("index.html");
    write_atomic(&index, index_page(&title, &entries, refresh_s.filter(|_| is_active))?.as_bytes())?;
    Ok(Site { index, unreadable: listed.unreadable })
}

/// Refuse a folder that is not empty and has no site in it.
fn refuse_others(folder: &Path) -> Result<(), Failure> {
    let mut entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Failure::new(Exit::Usage, format!("cannot read {}: {e}", folder.display()))),
    };
    if entries.next().is_none() || folder.join(job_pages::FILE).is_file() {
        return Ok(());
    }
    Err(Failure::new(Exit::Usage, format!("{} has files, and none of `expctl site`", folder.display()))
        .hint("name a new or an empty folder"))
}

/// The first page: the jobs as data, and a script that shows them.
fn index_page(title: &str, entries: &[JobEntry], refresh_s: Option<u64>) -> Result<String, Failure> {
    let data = json!({ "jobs": entries, "made": jiff::Timestamp::now().as_second() });
    // Within a script only these could end it.
    let data = data.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    let nonce = &blake3::hash(data.as_bytes()).to_hex()[..32];
    let mut templates = minijinja::Environment::new();
    templates.set_auto_escape_callback(|_| minijinja::AutoEscape::Html);
    templates.add_template("index.html", INDEX).map_err(Failure::internal)?;
    let page = templates.get_template("index.html").map_err(Failure::internal)?;
    page.render(minijinja::context! {
        title, nonce, refresh_s,
        history => history_page::PAGE,
        style => minijinja::Value::from_safe_string(format!("{PAGE_STYLE}{STYLE}")),
        data => minijinja::Value::from_safe_string(data),
        script => minijinja::Value::from_safe_string(format!("{THEME_SCRIPT}{SCRIPT}")),
        version => env!("CARGO_PKG_VERSION"),
    })
    .map_err(Failure::internal)
}
