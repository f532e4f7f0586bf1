//! [`fn@fetch`]: copies the records of jobs from a cluster into the ledger of that cluster here, as far as they are not here yet.
//!
//! Invariant: a file is complete under its name, and lies in the folder of its job, whatever the other side sends. Records of two jobs that have
//! had one number are never in one folder, and none are removed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use atomic_file::TEMPORARY_PREFIX;
use expctl_ledger::{JobDir, write_json};
use serde::{Deserialize, Serialize};

use super::error::RemoteError;
use super::job_files::{FetchExtent, ListedFile, ListedJob, files_of_job, is_file_of_job, job_of_path};
use super::once_submission::read_json;
use super::protocol::{HostReply, HostRequest};
use super::session::HostSession;
use super::transfer::{Transfer, Transferred};
use crate::console::say;

/// What was fetched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchedJobs {
    /// Jobs that are here now as they are there.
    pub jobs: Vec<u64>,
    /// Jobs that were asked for and are not there.
    pub unknown: Vec<u64>,
    /// Files that were not here, or not as they are.
    pub transferred: Transferred,
}

/// Jobs whose files are listed in one answer.
const JOBS_PER_LIST: usize = 50;

/// `fetched/<job>.json`: the job had completed when all its files were fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FetchMark {
    /// Which files.
    extent: FetchExtent,
    /// When it was submitted, seconds since the epoch: a later job may have its number.
    submitted: i64,
}

/// Copy the files of `jobs`, or of all jobs if none is named, into `folder`, the one of the host here.
///
/// # Errors
/// The connection was lost: what had come is kept. Or the folder is of another host, the other side sends what was not asked for, or the disk
/// is full.
pub fn fetch(
    session: &mut HostSession,
    folder: &Path,
    jobs: &[u64],
    extent: FetchExtent,
) -> Result<FetchedJobs, RemoteError> {
    let (runs, marks) = (folder.join("runs"), folder.join("fetched"));
    for folder in [&runs, &marks] {
        std::fs::create_dir_all(folder).map_err(RemoteError::io("create", folder))?;
    }
    session.claim(folder)?;
    let complete = complete_jobs(folder, extent)?;
    let mut fetched = FetchedJobs::default();
    let mut transfer = Transfer::new(format!("fetching from {}", session.host()));
    let asked = if jobs.is_empty() { numbers(session)? } else { jobs.to_vec() };
    for batch in asked.chunks(JOBS_PER_LIST) {
        let skip: Vec<(u64, i64)> =
            batch.iter().filter_map(|job| complete.get_key_value(job)).map(|(a, b)| (*a, *b)).collect();
        let request = HostRequest::List { jobs: batch.to_vec(), skip: skip.clone(), extent };
        let HostReply::Jobs { jobs: listed, unknown } = session.ask(&request)? else {
            return Err(session.other_answer());
        };
        if listed.iter().any(|job| !batch.contains(&job.job)) {
            return Err(session.other_answer());
        }
        fetched.jobs.extend(skip.iter().map(|(job, _)| *job).filter(|job| !unknown.contains(job)));
        for job in &listed {
            move_earlier(session.host(), folder, job)?;
        }
        let differences: Vec<FilesToFetch> =
            listed.iter().map(|job| FilesToFetch::of(&runs, job, extent)).collect::<Result<_, _>>()?;
        differences.iter().for_each(|files| transfer.expect(files.asked.len() as u64, files.bytes));
        for (job, files) in listed.iter().zip(differences) {
            // Of an earlier job of this number.
            ask_again(folder, job.job)?;
            fetch_job(session, &runs, files, &mut transfer)?;
            fetched.jobs.push(job.job);
            if job.completed {
                write_json(&mark(&marks, job.job), &FetchMark { extent, submitted: job.submitted })?;
            }
        }
        if !jobs.is_empty() {
            fetched.unknown.extend(unknown);
        }
    }
    fetched.jobs.sort_unstable();
    fetched.jobs.dedup();
    fetched.transferred = transfer.end();
    Ok(fetched)
}

/// What [`fetch`] would return, if all of `jobs` are here and will not change; known without a connection.
///
/// # Errors
/// The marks in `folder` cannot be read.
pub fn fetched_before(folder: &Path, jobs: &[u64], extent: FetchExtent) -> Result<Option<FetchedJobs>, RemoteError> {
    let complete = complete_jobs(folder, extent)?;
    let are_here = !jobs.is_empty() && jobs.iter().all(|job| complete.contains_key(job));
    Ok(are_here.then(|| FetchedJobs { jobs: jobs.to_vec(), ..FetchedJobs::default() }))
}

/// Have [`fetch`] ask for a job of the host whose folder here this is, also if one of its number had completed when it was fetched: it was
/// submitted since.
///
/// # Errors
/// The mark of the earlier one cannot be removed.
pub fn ask_again(folder: &Path, job: u64) -> Result<(), RemoteError> {
    let mark = mark(&folder.join("fetched"), job);
    ignore_gone(std::fs::remove_file(&mark)).map_err(RemoteError::io("remove", &mark))
}

/// Move the records of another job of this number out of the way. It is not there any more: they may be all that is left of it.
fn move_earlier(host: &str, folder: &Path, job: &ListedJob) -> Result<(), RemoteError> {
    let here = JobDir::new(folder.join("runs").join(job.job.to_string()));
    // Nobody knows whether one is another that cannot be read here, or there.
    let Ok(head) = here.head() else { return Ok(()) };
    if job.submitted == 0 || head.submitted == job.submitted {
        return Ok(());
    }
    let replaced = folder.join("replaced");
    std::fs::create_dir_all(&replaced).map_err(RemoteError::io("create", &replaced))?;
    let name = format!("{}-{}", job.job, head.submitted);
    let mut target = replaced.join(&name);
    let mut again = 1;
    while target.exists() {
        again += 1;
        target = replaced.join(format!("{name}-{again}"));
    }
    // Another `fetch` at the same time may be faster.
    ignore_gone(std::fs::rename(here.path(), &target)).map_err(RemoteError::io("move", here.path()))?;
    say(format!(
        "{host}:{} is another job than the one that was fetched before, whose records are in {} now",
        job.job,
        target.display()
    ));
    Ok(())
}

fn numbers(session: &mut HostSession) -> Result<Vec<u64>, RemoteError> {
    match session.ask(&HostRequest::Numbers)? {
        HostReply::Numbers { jobs } => Ok(jobs),
        _ => Err(session.other_answer()),
    }
}

/// Jobs that had completed when all their files were fetched, each with the time of its submission.
fn complete_jobs(folder: &Path, extent: FetchExtent) -> Result<BTreeMap<u64, i64>, RemoteError> {
    let (runs, marks) = (folder.join("runs"), folder.join("fetched"));
    let entries = match std::fs::read_dir(&marks) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        other => other.map_err(RemoteError::io("list", &marks))?,
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let jobs = names.filter_map(|name| name.strip_suffix(".json")?.parse::<u64>().ok());
    let complete = |job: u64| {
        let mark: FetchMark = read_json(&mark(&marks, job)).ok().flatten()?;
        let head = JobDir::new(runs.join(job.to_string())).head().ok()?;
        (mark.extent >= extent && head.submitted == mark.submitted).then_some((job, mark.submitted))
    };
    Ok(jobs.filter_map(complete).collect())
}

fn mark(marks: &Path, job: u64) -> PathBuf {
    marks.join(format!("{job}.json"))
}

/// Another `fetch` at the same time may have removed it.
fn ignore_gone(removed: std::io::Result<()>) -> std::io::Result<()> {
    removed.or_else(|e| if e.kind() == ErrorKind::NotFound { Ok(()) } else { Err(e) })
}

/// What of a job is here otherwise than there.
struct FilesToFetch {
    /// Files that are not here, or not as they are; the record is the last.
    asked: Vec<String>,
    /// Their bytes.
    bytes: u64,
    /// Files that are not there any more: a journal that became a table.
    gone: Vec<String>,
}

impl FilesToFetch {
    /// Compare the ledger `runs` with what is listed.
    fn of(runs: &Path, job: &ListedJob, extent: FetchExtent) -> Result<Self, RemoteError> {
        if let Some(file) = job.files.iter().find(|file| !is_file_of_job(&file.path, job.job)) {
            return Err(RemoteError::UnsafePath { path: file.path.clone() });
        }
        let here: BTreeMap<String, ListedFile> =
            files_of_job(runs, job.job, extent)?.into_iter().map(|file| (file.path.clone(), file)).collect();
        let other: Vec<&ListedFile> = job.files.iter().filter(|file| here.get(&file.path) != Some(*file)).collect();
        let bytes = other.iter().fold(0, |bytes: u64, file| bytes.saturating_add(file.size));
        let mut asked: Vec<String> = other.into_iter().map(|file| file.path.clone()).collect();
        // The record comes last: without it, a folder is no job.
        asked.sort_by_key(|path| path.ends_with("/job.json"));
        let there: BTreeSet<&str> = job.files.iter().map(|file| file.path.as_str()).collect();
        let gone = here.into_keys().filter(|path| !there.contains(path.as_str())).collect();
        Ok(Self { asked, bytes, gone })
    }
}

/// Make a job here what it is there.
fn fetch_job(
    session: &mut HostSession,
    runs: &Path,
    files: FilesToFetch,
    transfer: &mut Transfer,
) -> Result<(), RemoteError> {
    if !files.asked.is_empty() {
        receive(session, runs, files.asked, transfer)?;
    }
    for path in files.gone {
        let whole = runs.join(path);
        ignore_gone(std::fs::remove_file(&whole)).map_err(RemoteError::io("remove", &whole))?;
    }
    Ok(())
}

/// Ask for files, and write those that come.
fn receive(
    session: &mut HostSession,
    runs: &Path,
    asked: Vec<String>,
    transfer: &mut Transfer,
) -> Result<(), RemoteError> {
    let mut expected: BTreeSet<String> = asked.iter().cloned().collect();
    let mut reply = session.ask(&HostRequest::Send { files: asked })?;
    loop {
        let file = match reply {
            HostReply::File(file) => file,
            HostReply::End => return Ok(()),
            _ => return Err(session.other_answer()),
        };
        let job = job_of_path(&file.path).filter(|_| expected.remove(&file.path));
        let Some(job) = job else { return Err(RemoteError::UnsafePath { path: file.path }) };
        let folder = JobDir::new(runs.join(job.to_string()));
        if !folder.path().exists() {
            // For the user alone, as there.
            let created = folder.create();
            // Another `fetch` at the same time may be faster.
            let created = created.or_else(|e| if e.kind() == ErrorKind::AlreadyExists { Ok(()) } else { Err(e) });
            created.map_err(RemoteError::io("create", folder.path()))?;
        }
        write(session, &runs.join(&file.path), &file, transfer)?;
        transfer.add_file();
        reply = session.receive()?;
    }
}

/// Write the bytes that come into a file, which gets its name once it is complete.
fn write(
    session: &mut HostSession,
    path: &Path,
    file: &ListedFile,
    transfer: &mut Transfer,
) -> Result<(), RemoteError> {
    let failed = || RemoteError::io("write", path);
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder).map_err(RemoteError::io("create", folder))?;
    let mut staged = tempfile::Builder::new().prefix(TEMPORARY_PREFIX).tempfile_in(folder).map_err(failed())?;
    let arrived = |bytes| transfer.add_bytes(bytes);
    session.receive_content(file.size, staged.as_file_mut(), arrived)?.map_err(failed())?;
    set_time(staged.as_file(), file.mtime_ns).map_err(failed())?;
    staged.as_file().sync_all().map_err(failed())?;
    staged.persist(path).map_err(|e| failed()(e.error))?;
    Ok(())
}

fn set_time(file: &File, mtime_ns: i64) -> std::io::Result<()> {
    let distance = Duration::from_nanos(mtime_ns.unsigned_abs());
    let time = if mtime_ns < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
    file.set_modified(time.unwrap_or_else(SystemTime::now))
}
