//! [`fn@serve`]: the far side of a connection, in the folder of a project on a cluster.
//!
//! Invariant: what it writes is complete under its name, wherever the connection ends.

use std::fs::File;
use std::io::{BufRead, Read, Write};

use expctl_ledger::{AttemptState, JobDir};

use super::error::RemoteError;
use super::job_files::{FetchExtent, ListedFile, ListedJob, files_of_job, job_of_path};
use super::once_submission::OnceSubmission;
use super::protocol::{
    GREETING, HostGreeting, HostReply, HostRequest, MessageError, RefusedRequest, read_content, read_message,
    write_message,
};
use super::received_tree::ReceivedTree;
use super::remote_folder::RemoteFolder;
use crate::exit::Failure;
use crate::launch::slurm;
use crate::launch::status::{JobStatus, JobStatuses};

/// Answer what is asked until the other side closes the connection.
///
/// # Errors
/// The other side has gone, or is no expctl. What cannot be done is said to it, and then the connection is closed.
pub fn serve(folder: &RemoteFolder, input: &mut impl BufRead, output: &mut impl Write) -> Result<(), RemoteError> {
    let gone = |source| RemoteError::Io { action: "answer", path: "the other side".into(), source };
    // What a login prints need not end its last line.
    output.write_all(b"\n").and_then(|()| output.write_all(GREETING.as_bytes())).map_err(gone)?;
    write_message(output, &HostGreeting::own()).and_then(|()| output.flush()).map_err(gone)?;
    let mut tree = None;
    loop {
        let request = match read_message(input) {
            Ok(request) => request,
            Err(MessageError::Closed) => return Ok(()),
            Err(source) => return Err(other_side(source)),
        };
        if let Err(error) = answer(folder, &mut tree, request, input, output) {
            let Failure { exit, message, hints, .. } = Failure::from(error);
            let refused = RefusedRequest { exit: exit as i32, message, hints };
            write_message(output, &HostReply::Failed(refused)).and_then(|()| output.flush()).map_err(gone)?;
            return Ok(());
        }
        output.flush().map_err(gone)?;
    }
}

fn other_side(source: MessageError) -> RemoteError {
    RemoteError::Answer { host: "the other side".to_owned(), source }
}

fn answer(
    folder: &RemoteFolder,
    tree: &mut Option<ReceivedTree>,
    request: HostRequest,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> Result<(), RemoteError> {
    let no_tree = || RemoteError::Tree { reason: "no tree was listed".to_owned() };
    let reply = match request {
        HostRequest::Lacks { entries } => {
            let listed = ReceivedTree::new(folder, entries)?;
            let hashes = listed.lacks()?;
            *tree = Some(listed);
            HostReply::Lacks { hashes }
        }
        HostRequest::Content { hash, size } => {
            let tree = tree.as_ref().ok_or_else(no_tree)?;
            tree.check_size(&hash, size)?;
            return tree.add(&hash, &read_content(input, size).map_err(other_side)?);
        }
        HostRequest::Unpack => {
            let unpacked = tree.as_ref().ok_or_else(no_tree)?.unpack(folder)?;
            HostReply::Tree { folder: unpacked.display().to_string() }
        }
        HostRequest::Submit(order) => HostReply::Submitted(OnceSubmission::new(folder, &order.token)?.submit(&order)?),
        HostRequest::State { job } => {
            let (status, _) = JobStatus::load(&folder.job(job))?;
            HostReply::State { summary: status.summary(), ended: !status.is_active() }
        }
        HostRequest::List { jobs, skip, extent } => list(folder, &jobs, &skip, extent)?,
        HostRequest::Send { files } => {
            for path in &files {
                send(folder, path, output)?;
            }
            HostReply::End
        }
    };
    write_message(output, &reply).map_err(|source| RemoteError::Io {
        action: "answer",
        path: "the other side".into(),
        source,
    })
}

/// The files of jobs that are there, and the numbers of those that are not.
fn list(folder: &RemoteFolder, jobs: &[u64], skip: &[u64], extent: FetchExtent) -> Result<HostReply, RemoteError> {
    let there = folder.jobs();
    let named: Vec<u64> = if jobs.is_empty() { there.clone() } else { jobs.to_vec() };
    let (known, unknown): (Vec<u64>, Vec<u64>) = named.into_iter().partition(|job| there.contains(job));
    let asked: Vec<JobDir> = known.iter().filter(|job| !skip.contains(job)).map(|job| folder.job(*job)).collect();
    let mut listed = Vec::new();
    for status in JobStatuses::load(&asked)?.jobs {
        let job = status.record.job;
        let completed = status.trials.iter().all(|trial| trial.state == AttemptState::Completed);
        if completed && status.record.on_slurm() {
            // Without it, the note has no figures of Slurm's.
            let project = folder.project(&folder.root_of_job(job))?;
            if let Err(failure) = slurm::collect_missing_usage(&project, &status.record) {
                tracing::debug!("{failure}");
            }
        }
        listed.push(ListedJob { job, completed, files: files_of_job(&folder.runs(), job, extent)? });
    }
    Ok(HostReply::Jobs { jobs: listed, unknown })
}

/// Send a file, unless it has gone.
fn send(folder: &RemoteFolder, path: &str, output: &mut impl Write) -> Result<(), RemoteError> {
    if job_of_path(path).is_none() {
        return Err(RemoteError::UnsafePath { path: path.to_owned() });
    }
    let whole = folder.runs().join(path);
    let gone = |source| RemoteError::Io { action: "answer", path: "the other side".into(), source };
    let Ok(found) = std::fs::symlink_metadata(&whole) else { return Ok(()) };
    if !found.is_file() {
        return Ok(());
    }
    let Ok(mut file) = File::open(&whole) else { return Ok(()) };
    // The length as it is now: a journal may grow while it is sent.
    let size = file.metadata().map_err(RemoteError::io("read", &whole))?.len();
    let mtime_ns = mtime_ns(&file).map_err(RemoteError::io("read", &whole))?;
    write_message(output, &HostReply::File(ListedFile { path: path.to_owned(), size, mtime_ns })).map_err(gone)?;
    let sent = std::io::copy(&mut Read::by_ref(&mut file).take(size), output).map_err(gone)?;
    if sent == size {
        return Ok(());
    }
    // The other side expects more bytes: only the end of the connection tells it.
    Err(RemoteError::io("read", &whole)(std::io::ErrorKind::UnexpectedEof.into()))
}

fn mtime_ns(file: &File) -> std::io::Result<i64> {
    use std::os::unix::fs::MetadataExt;
    let found = file.metadata()?;
    Ok(found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers to requests, behind the greeting.
    fn answers(folder: &RemoteFolder, requests: &[HostRequest]) -> Vec<HostReply> {
        let mut asked = Vec::new();
        requests.iter().for_each(|request| write_message(&mut asked, request).unwrap());
        let mut answered = Vec::new();
        serve(folder, &mut &asked[..], &mut answered).unwrap();
        let mut rest = answered.strip_prefix(format!("\n{GREETING}").as_bytes()).unwrap();
        let greeting: HostGreeting = read_message(&mut rest).unwrap();
        assert_eq!(greeting, HostGreeting::own());
        let mut replies = Vec::new();
        while let Ok(reply) = read_message(&mut rest) {
            replies.push(reply);
        }
        replies
    }

    #[test]
    fn what_cannot_be_done_is_said_and_ends_the_connection() {
        let home = tempfile::tempdir().unwrap();
        let folder = RemoteFolder::open(home.path().to_str().unwrap()).unwrap();
        let outside = HostRequest::Send { files: vec!["1/../../../etc/passwd".to_owned()] };
        for request in [HostRequest::Unpack, outside, HostRequest::State { job: 1 }] {
            let replies = answers(&folder, &[request, HostRequest::Send { files: Vec::new() }]);
            assert!(matches!(replies[..], [HostReply::Failed(_)]), "{replies:?}");
        }
        let none = HostRequest::List { jobs: vec![9], skip: Vec::new(), extent: FetchExtent::All };
        let replies = answers(&folder, &[none, HostRequest::Send { files: vec!["9/job.json".to_owned()] }]);
        assert_eq!(replies, [HostReply::Jobs { jobs: Vec::new(), unknown: vec![9] }, HostReply::End]);
    }
}
