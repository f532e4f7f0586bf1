//! [`fn@serve`]: the far side of a connection, in the folder of a project on a cluster.
//!
//! Invariant: what it writes is complete under its name, wherever the connection ends.

use std::fs::File;
use std::io::{BufRead, ErrorKind, Read, Write};
use std::path::Path;
use std::time::Duration;

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
use super::unused_trees::remove_unused_trees;
use crate::console::say;
use crate::exit::{Exit, Failure};
use crate::launch::slurm::{self, SlurmBackend};
use crate::launch::status::{JobStatus, JobStatuses, TrialStatus};

/// Time for the removal of old code behind a submission: whoever submitted waits for it, with the job in hand.
const REMOVAL_LIMIT: Duration = Duration::from_secs(5);

/// Answer what is asked until the other side closes the connection. A folder that cannot be opened is the answer to the first request.
///
/// # Errors
/// The other side has gone, or is no expctl, or bytes of a file are missing, which only the end of the connection can tell it. What cannot be
/// done is said to it, and then the connection is closed.
pub fn serve(
    open: impl FnOnce() -> Result<RemoteFolder, RemoteError>,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> Result<(), RemoteError> {
    let gone = |source| RemoteError::Io { action: "answer", path: "the other side".into(), source };
    // What a login prints need not end its last line.
    output.write_all(b"\n").and_then(|()| output.write_all(GREETING.as_bytes())).map_err(gone)?;
    write_message(output, &HostGreeting::of_this_program()).and_then(|()| output.flush()).map_err(gone)?;
    let opened = open();
    let Some(mut request) = next_request(input)? else { return Ok(()) };
    let folder = match opened {
        Ok(folder) => folder,
        Err(error) => return refuse(refused(error), output).map_err(gone),
    };
    let mut tree = None;
    loop {
        let submits = matches!(request, HostRequest::Submit(_));
        match answer(&folder, &mut tree, request, input, output) {
            Ok(()) => output.flush().map_err(gone)?,
            Err(error @ RemoteError::SentInPart { .. }) => return Err(error),
            Err(error) => return refuse(refused(error), output).map_err(gone),
        }
        // The job is submitted, and its number already sent.
        if submits && let Err(error) = remove_unused_trees(&folder, REMOVAL_LIMIT) {
            say(format!("warning: old code that no job has was not removed: {error}; the next submission tries again"));
        }
        request = match next_request(input)? {
            Some(request) => request,
            None => return Ok(()),
        };
    }
}

/// The next request; `None`: the other side has closed the connection.
fn next_request(input: &mut impl BufRead) -> Result<Option<HostRequest>, RemoteError> {
    match read_message(input) {
        Ok(request) => Ok(Some(request)),
        Err(MessageError::Closed) => Ok(None),
        Err(source) => Err(other_side(source)),
    }
}

fn refuse(refused: RefusedRequest, output: &mut impl Write) -> std::io::Result<()> {
    write_message(output, &HostReply::Failed(refused)).and_then(|()| output.flush())
}

fn refused(error: RemoteError) -> RefusedRequest {
    let Failure { exit, message, hints, .. } = Failure::from(error);
    RefusedRequest { exit: exit as i32, message, hints }
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
        HostRequest::State { job } => state(folder, job)?,
        HostRequest::Numbers => HostReply::Numbers { jobs: folder.jobs() },
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

/// How far a job is. A trial that Slurm has forgotten may have its outcome on the way; if none comes, it gets one with Slurm's reason, as for
/// whoever waits for the job there.
fn state(folder: &RemoteFolder, job: u64) -> Result<HostReply, RemoteError> {
    let (mut status, _) = JobStatus::load(&folder.job(job))?;
    let has_no_outcome = |trial: &TrialStatus| matches!(trial.state, AttemptState::Lost | AttemptState::NotStarted);
    if status.record.on_slurm() && !status.is_active() && status.trials.iter().any(has_no_outcome) {
        let project = folder.project(&folder.root_of_job(job))?;
        let backend = SlurmBackend::for_job(&status.record.backend)?;
        match backend.wait_for_job(&project, job, &mut |_| {}) {
            Ok(()) => (status, _) = JobStatus::load(&folder.job(job))?,
            // It is asked again.
            Err(failure) if failure.exit == Exit::Cluster => {
                tracing::debug!("{failure}");
                return Ok(HostReply::State { summary: status.summary(), ended: false });
            }
            Err(failure) => return Err(failure.into()),
        }
    }
    Ok(HostReply::State { summary: status.summary(), ended: !status.is_active() })
}

/// The files of jobs that are there, and the numbers of those that are not.
fn list(
    folder: &RemoteFolder,
    jobs: &[u64],
    skip: &[(u64, i64)],
    extent: FetchExtent,
) -> Result<HostReply, RemoteError> {
    let is_there = |job: &u64| folder.job(*job).record_path().exists();
    let (known, unknown): (Vec<u64>, Vec<u64>) = jobs.iter().copied().partition(is_there);
    // A job of that number that was submitted at another time is another one.
    let is_skipped = |job: u64| {
        let submitted = skip.iter().find(|(skipped, _)| *skipped == job).map(|(_, submitted)| *submitted);
        submitted.is_some_and(|submitted| folder.job(job).head().is_ok_and(|head| head.submitted == submitted))
    };
    let asked: Vec<JobDir> = known.into_iter().filter(|job| !is_skipped(*job)).map(|job| folder.job(job)).collect();
    let statuses = JobStatuses::load(&asked)?;
    let mut listed = Vec::new();
    for status in statuses.jobs {
        let (record, job) = (&status.record, status.record.job);
        let mut completed = status.trials.iter().all(|trial| trial.state == AttemptState::Completed);
        if completed && record.on_slurm() {
            // Without it, the note has no figures of Slurm's.
            let project = folder.project(&folder.root_of_job(job))?;
            if let Err(failure) = slurm::collect_missing_usage(&project, job) {
                tracing::debug!("{failure}");
            }
            completed = !slurm::awaits_usage(&status.folder, record)?;
        }
        let files = files_of_job(&folder.runs(), job, extent)?;
        listed.push(ListedJob { job, submitted: record.submitted, completed, files });
    }
    // What is wrong with them is said where they are read.
    for (unreadable, _) in statuses.unreadable {
        if let Ok(job) = unreadable.name().parse() {
            let files = files_of_job(&folder.runs(), job, extent)?;
            listed.push(ListedJob { job, submitted: 0, completed: false, files });
        }
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
    copy(&whole, &mut file, size, output)
}

/// Send the bytes that the header of a file has announced.
fn copy(path: &Path, file: &mut impl Read, size: u64, output: &mut impl Write) -> Result<(), RemoteError> {
    let sent_in_part = |source| RemoteError::SentInPart { path: path.to_owned(), source };
    match std::io::copy(&mut file.take(size), output).map_err(sent_in_part)? {
        sent if sent == size => Ok(()),
        _ => Err(sent_in_part(ErrorKind::UnexpectedEof.into())),
    }
}

fn mtime_ns(file: &File) -> std::io::Result<i64> {
    use std::os::unix::fs::MetadataExt;
    let found = file.metadata()?;
    Ok(found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::SystemTime;

    use super::super::once_submission::{SubmissionOrder, SubmissionResult, SubmissionRoot, write_private_json};
    use super::*;

    /// The answers to requests, behind the greeting.
    fn answers(folder: &RemoteFolder, requests: &[HostRequest]) -> Vec<HostReply> {
        let mut asked = Vec::new();
        requests.iter().for_each(|request| write_message(&mut asked, request).unwrap());
        let mut answered = Vec::new();
        serve(|| Ok(folder.clone()), &mut &asked[..], &mut answered).unwrap();
        let mut rest = answered.strip_prefix(format!("\n{GREETING}").as_bytes()).unwrap();
        let greeting: HostGreeting = read_message(&mut rest).unwrap();
        assert_eq!(greeting, HostGreeting::of_this_program());
        let mut replies = Vec::new();
        while let Ok(reply) = read_message(&mut rest) {
            replies.push(reply);
        }
        replies
    }

    #[test]
    fn a_file_that_is_cut_is_followed_by_no_message() {
        struct Failing;
        impl Read for Failing {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                Err(ErrorKind::TimedOut.into())
            }
        }
        let mut sent = Vec::new();
        for file in [&mut (&b"ab"[..]).chain(Failing) as &mut dyn Read, &mut &b"ab"[..]] {
            let mut file = file;
            let failed = copy(Path::new("1/job.json"), &mut file, 3, &mut sent);
            assert!(matches!(failed, Err(RemoteError::SentInPart { .. })), "{failed:?}");
        }
        assert_eq!(sent, b"abab");
        copy(Path::new("1/job.json"), &mut &b"abcd"[..], 3, &mut sent).unwrap();
        assert_eq!(sent, b"abababc");
    }

    #[test]
    fn a_folder_that_cannot_be_opened_is_said_after_the_greeting() {
        let mut asked = Vec::new();
        write_message(&mut asked, &HostRequest::Numbers).unwrap();
        let open = || Err(RemoteError::io("create", Path::new("/home/me/p"))(ErrorKind::StorageFull.into()));
        let mut answered = Vec::new();
        serve(open, &mut &asked[..], &mut answered).unwrap();
        let mut rest = answered.strip_prefix(format!("\n{GREETING}").as_bytes()).unwrap();
        read_message::<HostGreeting>(&mut rest).unwrap();
        let reply: HostReply = read_message(&mut rest).unwrap();
        assert!(matches!(reply, HostReply::Failed(refused) if refused.message.contains("/home/me/p")));
    }

    #[test]
    fn a_job_that_cannot_be_read_is_listed_and_a_later_one_of_a_number_is_not_skipped() {
        let home = tempfile::tempdir().unwrap();
        let folder = RemoteFolder::open(home.path().to_str().unwrap()).unwrap();
        std::fs::create_dir(folder.runs().join("3")).unwrap();
        std::fs::write(folder.job(3).record_path(), "{").unwrap();
        let list = HostRequest::List { jobs: vec![3], skip: vec![(3, 5)], extent: FetchExtent::All };
        let replies = answers(&folder, &[HostRequest::Numbers, list]);
        assert_eq!(replies[0], HostReply::Numbers { jobs: vec![3] });
        let HostReply::Jobs { jobs, unknown } = &replies[1] else { panic!("{replies:?}") };
        assert!(unknown.is_empty() && !jobs[0].completed && jobs[0].files.len() == 1, "{replies:?}");
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

    #[test]
    fn a_submission_is_answered_before_old_code_is_removed_and_whatever_becomes_of_that() {
        /// Remembers at each flush whether a tree was there.
        struct Watching {
            tree: PathBuf,
            was_there: Vec<bool>,
        }
        impl Write for Watching {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                self.was_there.push(self.tree.exists());
                Ok(())
            }
        }
        let home = tempfile::tempdir().unwrap();
        let folder = RemoteFolder::open(home.path().to_str().unwrap()).unwrap();
        let token = "0123456789abcdef0123456789abcdef".to_owned();
        let ended = SubmissionResult { exit: 3, stdout: String::new(), stderr: String::new() };
        write_private_json(&folder.submissions().join(format!("{token}.result.json")), &ended).unwrap();
        let order = SubmissionOrder {
            token,
            root: SubmissionRoot::Job(1),
            profile: None,
            arguments: vec!["submit".to_owned()],
            source: None,
        };
        let requests = [HostRequest::Submit(order), HostRequest::Numbers];
        let tree = folder.trees().join("1".repeat(64));
        std::fs::create_dir(&tree).unwrap();
        let long_ago = SystemTime::now() - Duration::from_secs(15 * 24 * 3600);
        File::open(&tree).unwrap().set_modified(long_ago).unwrap();
        // A job that does not say what it runs.
        let job = folder.job(1);
        std::fs::create_dir(job.path()).unwrap();
        std::fs::write(job.path().join("snapshot.json"), "{").unwrap();
        assert_eq!(answers(&folder, &requests), [HostReply::Submitted(ended), HostReply::Numbers { jobs: Vec::new() }]);
        assert!(tree.exists());
        std::fs::remove_dir_all(job.path()).unwrap();
        let mut asked = Vec::new();
        requests.iter().for_each(|request| write_message(&mut asked, request).unwrap());
        let mut output = Watching { tree, was_there: Vec::new() };
        serve(|| Ok(folder.clone()), &mut &asked[..], &mut output).unwrap();
        // At the greeting, at the job, and at the next answer.
        assert_eq!(output.was_there, [true, true, false]);
    }
}
