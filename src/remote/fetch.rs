//! [`fn@fetch`]: copies the records of jobs from a cluster into the ledger of that cluster here, as far as they are not here yet.
//!
//! Invariant: a file is complete under its name, and lies in the folder of its job, whatever the other side sends.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use atomic_file::TEMPORARY_PREFIX;
use expctl_ledger::{JobDir, write_json};

use super::error::RemoteError;
use super::job_files::{FetchExtent, ListedFile, ListedJob, files_of_job, is_file_of_job, job_of_path};
use super::once_submission::read_json;
use super::protocol::{HostReply, HostRequest};
use super::session::HostSession;

/// What was fetched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchedJobs {
    /// Jobs that are here now as they are there.
    pub jobs: Vec<u64>,
    /// Jobs that were asked for and are not there.
    pub unknown: Vec<u64>,
    /// Files that were not here, or not as they are.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// Copy the files of `jobs`, or of all jobs if none is named, into `folder`, the one of the host here.
///
/// # Errors
/// The connection was lost: what had come is kept. Or the other side sends what was not asked for, or the disk is full.
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
    let complete = complete_jobs(&runs, &marks, extent)?;
    let skip: Vec<u64> = complete.iter().copied().filter(|job| jobs.is_empty() || jobs.contains(job)).collect();
    if !jobs.is_empty() && jobs.iter().all(|job| skip.contains(job)) {
        return Ok(FetchedJobs { jobs: skip, ..FetchedJobs::default() });
    }
    let request = HostRequest::List { jobs: jobs.to_vec(), skip: skip.clone(), extent };
    let HostReply::Jobs { jobs: listed, unknown } = session.ask(&request)? else {
        return Err(session.other_answer());
    };
    let mut fetched = FetchedJobs { jobs: skip, unknown, ..FetchedJobs::default() };
    for job in listed {
        fetch_job(session, &runs, &job, extent, &mut fetched)?;
        fetched.jobs.push(job.job);
        if job.completed {
            write_json(&mark(&marks, job.job), &extent)?;
        }
    }
    fetched.jobs.sort_unstable();
    Ok(fetched)
}

/// Jobs that had completed when all their files were fetched.
fn complete_jobs(runs: &Path, marks: &Path, extent: FetchExtent) -> Result<BTreeSet<u64>, RemoteError> {
    let entries = std::fs::read_dir(marks).map_err(RemoteError::io("list", marks))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let jobs = names.filter_map(|name| name.strip_suffix(".json")?.parse::<u64>().ok());
    let is_complete = |job: &u64| {
        let is_here = JobDir::new(runs.join(job.to_string())).record_path().exists();
        is_here && read_json(&mark(marks, *job)).ok().flatten().is_some_and(|had: FetchExtent| had >= extent)
    };
    Ok(jobs.filter(is_complete).collect())
}

fn mark(marks: &Path, job: u64) -> std::path::PathBuf {
    marks.join(format!("{job}.json"))
}

fn fetch_job(
    session: &mut HostSession,
    runs: &Path,
    job: &ListedJob,
    extent: FetchExtent,
    fetched: &mut FetchedJobs,
) -> Result<(), RemoteError> {
    if let Some(file) = job.files.iter().find(|file| !is_file_of_job(&file.path, job.job)) {
        return Err(RemoteError::UnsafePath { path: file.path.clone() });
    }
    let here: BTreeMap<String, ListedFile> =
        files_of_job(runs, job.job, extent)?.into_iter().map(|file| (file.path.clone(), file)).collect();
    let is_other = |file: &&ListedFile| here.get(&file.path) != Some(*file);
    let mut asked: Vec<String> = job.files.iter().filter(is_other).map(|file| file.path.clone()).collect();
    // The record comes last: without it, a folder is no job.
    asked.sort_by_key(|path| path.ends_with("/job.json"));
    if !asked.is_empty() {
        receive(session, runs, asked, fetched)?;
    }
    // Gone there: a journal that became a table.
    let there: BTreeSet<&str> = job.files.iter().map(|file| file.path.as_str()).collect();
    for path in here.keys().filter(|path| !there.contains(path.as_str())) {
        let whole = runs.join(path);
        std::fs::remove_file(&whole).map_err(RemoteError::io("remove", &whole))?;
    }
    Ok(())
}

/// Ask for files, and write those that come.
fn receive(
    session: &mut HostSession,
    runs: &Path,
    asked: Vec<String>,
    fetched: &mut FetchedJobs,
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
            folder.create().map_err(RemoteError::io("create", folder.path()))?;
        }
        write(session, &runs.join(&file.path), &file)?;
        fetched.files += 1;
        fetched.bytes += file.size;
        reply = session.receive()?;
    }
}

/// Write the bytes that come into a file, which gets its name once it is complete.
fn write(session: &mut HostSession, path: &Path, file: &ListedFile) -> Result<(), RemoteError> {
    let failed = || RemoteError::io("write", path);
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder).map_err(RemoteError::io("create", folder))?;
    let mut staged = tempfile::Builder::new().prefix(TEMPORARY_PREFIX).tempfile_in(folder).map_err(failed())?;
    session.receive_content(file.size, staged.as_file_mut())?.map_err(failed())?;
    set_time(staged.as_file(), file.mtime_ns).map_err(failed())?;
    staged.persist(path).map_err(|e| failed()(e.error))?;
    Ok(())
}

fn set_time(file: &File, mtime_ns: i64) -> std::io::Result<()> {
    let distance = Duration::from_nanos(mtime_ns.unsigned_abs());
    let time = if mtime_ns < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
    file.set_modified(time.unwrap_or_else(SystemTime::now))
}
