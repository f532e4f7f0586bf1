//! [`remove_unused_trees`]: removes trees of code that no job names and that were not sent for a while, in the time that there is.
//!
//! Invariant: a tree is not removed while the ledger has a job that was submitted with it, nor in the days after it was sent. Between the last
//! look at its time and its removal nobody sends it: both are under a lock.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use atomic_file::TEMPORARY_PREFIX;
use expctl_ledger::{CodeSnapshot, JobDir};
use nix::fcntl::{Flock, FlockArg};

use super::error::RemoteError;
use super::once_submission::{OnceSubmission, PRIVATE, SubmissionRoot};
use super::remote_folder::{RemoteFolder, is_hash};
use crate::launch::read_submission;

/// A tree that was sent, or found to be of a job, more recently is not looked at: a submission may be about to name it.
const MIN_AGE: Duration = Duration::from_secs(14 * 24 * 3600);

/// Whether a tree is there. If so, it stays for the next days.
///
/// # Errors
/// Its time cannot be changed, or the folder has no locks.
pub(crate) fn renew(folder: &RemoteFolder, tree: &Path) -> Result<bool, RemoteError> {
    let _lock = lock(folder)?;
    let renewed = File::open(tree).and_then(|opened| opened.set_modified(SystemTime::now()));
    match renewed {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(RemoteError::io("write", tree)(e)),
    }
}

/// Remove the old trees that no job in the ledger was submitted with, and what is left of trees that were received or removed halfway, for at
/// most `limit`: a large ledger, a lock or a file system may take any time. What is not done by then goes on beside this thread, and ends with
/// the process, wherever that leaves it: the next one begins again. Returns how many trees were removed.
///
/// # Errors
/// The time is over. The ledger or a job in it cannot be read: then no tree is removed. Or one cannot be removed.
pub(crate) fn remove_unused_trees(folder: &RemoteFolder, limit: Duration) -> Result<usize, RemoteError> {
    let (sender, removed) = mpsc::channel();
    let all = folder.clone();
    std::thread::spawn(move || {
        // Nobody may wait for it any more.
        let _ = sender.send(remove_all(&all));
    });
    let late = |_| RemoteError::io("look through", &folder.trees())(ErrorKind::TimedOut.into());
    removed.recv_timeout(limit).map_err(late)?
}

fn remove_all(folder: &RemoteFolder) -> Result<usize, RemoteError> {
    let old = old_entries(folder)?;
    if old.is_empty() {
        return Ok(0);
    }
    let used = used_trees(folder)?;
    let mut removed = 0;
    for path in old {
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        if used.contains(&name) {
            // The ledger is not searched for it again in the next days.
            renew(folder, &path)?;
        } else if !is_hash(&name) {
            std::fs::remove_dir_all(&path).map_err(RemoteError::io("remove", &path))?;
        } else if remove(folder, &path)? {
            removed += 1;
        }
    }
    Ok(removed)
}

/// Folders of old trees, and old temporary ones.
fn old_entries(folder: &RemoteFolder) -> Result<Vec<PathBuf>, RemoteError> {
    let trees = folder.trees();
    let mut old = Vec::new();
    for entry in std::fs::read_dir(&trees).map_err(RemoteError::io("list", &trees))? {
        let entry = entry.map_err(RemoteError::io("list", &trees))?;
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(|name| is_hash(name) || name.starts_with(TEMPORARY_PREFIX));
        if is_ours && entry.file_type().is_ok_and(|found| found.is_dir()) && is_old(&entry.path()) {
            old.push(entry.path());
        }
    }
    Ok(old)
}

fn is_old(path: &Path) -> bool {
    let modified = std::fs::symlink_metadata(path).and_then(|found| found.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > MIN_AGE))
}

/// Hashes of the trees that the jobs of the ledger were submitted with.
fn used_trees(folder: &RemoteFolder) -> Result<BTreeSet<String>, RemoteError> {
    let runs = folder.runs();
    let mut used = BTreeSet::new();
    for entry in std::fs::read_dir(&runs).map_err(RemoteError::io("list", &runs))? {
        let path = entry.map_err(RemoteError::io("list", &runs))?.path();
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        // Also one that has no number yet. Other folders are stores of code, some of them of other users.
        if (name.starts_with('.') || name.parse::<u64>().is_ok()) && path.is_dir() {
            used.extend(tree_of_job(folder, &JobDir::new(path))?);
        }
    }
    Ok(used)
}

/// The hash of the tree that a job was submitted with; none if it was submitted in another folder.
fn tree_of_job(folder: &RemoteFolder, job: &JobDir) -> Result<Option<String>, RemoteError> {
    let token = read_submission(job.path()).map_err(RemoteError::io("read", job.path()))?;
    let order = token.map(|token| OnceSubmission::new(folder, &token)?.order()).transpose();
    if let Ok(Some(order)) = &order
        && let SubmissionRoot::Tree(hash) = &order.root
    {
        return Ok(Some(hash.clone()));
    }
    if let Some(snapshot) = CodeSnapshot::read(job)? {
        return Ok(hash_of(&snapshot.project.0));
    }
    // Its programs run in the tree itself.
    match order? {
        Some(order) => Ok(hash_of(&folder.root(&order.root)?)),
        None => tree_in_scripts(job),
    }
}

/// The hash of the tree that the scripts of a job name. One without a token may be the round of a search, or of somebody who was logged in.
fn tree_in_scripts(job: &JobDir) -> Result<Option<String>, RemoteError> {
    let entries = match std::fs::read_dir(job.path()) {
        Ok(entries) => entries,
        // It has got its number meanwhile.
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(RemoteError::io("list", job.path())(e)),
    };
    for entry in entries {
        let path = entry.map_err(RemoteError::io("list", job.path()))?.path();
        if path.extension().is_some_and(|end| end == "sh") {
            let bytes = std::fs::read(&path).map_err(RemoteError::io("read", &path))?;
            let script = String::from_utf8_lossy(&bytes);
            let mut names = script.split("/trees/").skip(1).filter_map(|rest| rest.get(..64));
            if let Some(name) = names.find(|name| is_hash(name)) {
                return Ok(Some(name.to_owned()));
            }
        }
    }
    Ok(None)
}

/// The hash of the tree in a folder.
fn hash_of(tree: &Path) -> Option<String> {
    let name = tree.file_name()?.to_str()?;
    is_hash(name).then(|| name.to_owned())
}

/// Remove a tree, unless it has just been sent again.
fn remove(folder: &RemoteFolder, tree: &Path) -> Result<bool, RemoteError> {
    let trees = folder.trees();
    let staged = tempfile::Builder::new()
        .prefix(TEMPORARY_PREFIX)
        .tempdir_in(&trees)
        .map_err(RemoteError::io("create", &trees))?;
    {
        let _lock = lock(folder)?;
        if !is_old(tree) {
            return Ok(false);
        }
        std::fs::rename(tree, staged.path().join("code")).map_err(RemoteError::io("remove", tree))?;
    }
    staged.close().map_err(RemoteError::io("remove", tree))?;
    Ok(true)
}

/// Keep others from removing trees, and from using those that are there again.
fn lock(folder: &RemoteFolder) -> Result<Flock<File>, RemoteError> {
    let path = folder.path().join(".trees.lock");
    let file = File::options().create(true).truncate(false).write(true).mode(PRIVATE).open(&path);
    let file = file.map_err(RemoteError::io("create", &path))?;
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, e)| RemoteError::io("lock", &path)(e.into()))
}

#[cfg(test)]
mod tests {
    use expctl_ledger::write_json;

    use super::super::once_submission::SubmissionOrder;
    use super::*;

    fn hash(digit: char) -> String {
        digit.to_string().repeat(64)
    }

    /// A tree that was sent so many days ago.
    fn tree(folder: &RemoteFolder, name: &str, days: u64) -> PathBuf {
        let path = folder.trees().join(name);
        std::fs::create_dir_all(path.join("pkg")).unwrap();
        std::fs::write(path.join("pkg/a.py"), "a").unwrap();
        let sent = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
        File::open(&path).unwrap().set_modified(sent).unwrap();
        path
    }

    /// The folder of a job that was submitted under a token.
    fn job(folder: &RemoteFolder, name: &str, token: &str, root: SubmissionRoot) -> JobDir {
        let job = JobDir::new(folder.runs().join(name));
        std::fs::create_dir(job.path()).unwrap();
        std::fs::write(job.path().join("submission"), token).unwrap();
        let order =
            SubmissionOrder { token: token.to_owned(), root, profile: None, arguments: Vec::new(), source: None };
        write_json(&folder.submissions().join(format!("{token}.order.json")), &order).unwrap();
        job
    }

    #[test]
    fn old_trees_without_a_job_go_and_all_others_stay() {
        let home = tempfile::tempdir().unwrap();
        let folder = RemoteFolder::open(home.path().to_str().unwrap()).unwrap();
        let old = |digit| tree(&folder, &hash(digit), 15);
        let (unused, of_job, of_snapshot, of_staged) = (old('1'), old('2'), old('3'), old('4'));
        let of_script = old('6');
        let (recent, other) = (tree(&folder, &hash('5'), 13), tree(&folder, "mine", 99));
        let (left, begun) = (tree(&folder, ".writing-a", 15), tree(&folder, ".writing-b", 0));
        std::os::unix::fs::symlink(&recent, unused.join("results")).unwrap();
        // It was changed by that.
        File::open(&unused).unwrap().set_modified(SystemTime::now() - 2 * MIN_AGE).unwrap();
        job(&folder, "1", &"a".repeat(32), SubmissionRoot::Tree(hash('2')));
        let rerun = job(&folder, "2", &"b".repeat(32), SubmissionRoot::Job(1));
        CodeSnapshot::new("snapshots-0".to_owned(), of_snapshot.clone(), Vec::new()).write(&rerun).unwrap();
        job(&folder, ".staged-x", &"c".repeat(32), SubmissionRoot::Tree(hash('4')));
        // Submitted by somebody who was logged in.
        std::fs::create_dir(folder.runs().join("3")).unwrap();
        // A round of a search whose programs run in the tree itself.
        std::fs::create_dir(folder.runs().join("4")).unwrap();
        let script = format!("#!/bin/sh\nexec expctl --root {} run-command\n", of_script.display());
        std::fs::write(folder.runs().join("4/batch.sh"), script).unwrap();
        assert_eq!(remove_all(&folder).unwrap(), 1);
        assert!(!unused.exists() && !left.exists());
        for kept in [&of_job, &of_snapshot, &of_staged, &of_script, &recent, &other, &begun] {
            assert!(kept.join("pkg/a.py").exists(), "{}", kept.display());
        }
        // Those of jobs are not looked for again.
        assert_eq!(old_entries(&folder).unwrap(), Vec::<PathBuf>::new());
        assert_eq!(std::fs::read_dir(folder.trees()).unwrap().count(), 7);
    }

    #[test]
    fn nothing_goes_where_a_job_does_not_say_what_it_runs() {
        let home = tempfile::tempdir().unwrap();
        let folder = RemoteFolder::open(home.path().to_str().unwrap()).unwrap();
        let unused = tree(&folder, &hash('1'), 15);
        let job = folder.job(1);
        std::fs::create_dir(job.path()).unwrap();
        std::fs::write(job.path().join("submission"), "a".repeat(32)).unwrap();
        assert!(remove_all(&folder).is_err() && unused.exists());
        std::fs::write(job.path().join("snapshot.json"), "{").unwrap();
        assert!(remove_all(&folder).is_err() && unused.exists());
        // It is there, and cannot be read.
        std::fs::remove_file(job.path().join("snapshot.json")).unwrap();
        std::fs::remove_file(job.path().join("submission")).unwrap();
        std::fs::create_dir(job.path().join("submission")).unwrap();
        assert!(remove_all(&folder).is_err() && unused.exists());
    }

    #[test]
    fn a_tree_that_is_sent_again_is_as_new() {
        let home = tempfile::tempdir().unwrap();
        let folder = RemoteFolder::open(home.path().to_str().unwrap()).unwrap();
        let sent = tree(&folder, &hash('1'), 15);
        assert!(renew(&folder, &sent).unwrap() && !renew(&folder, &folder.trees().join(hash('2'))).unwrap());
        assert_eq!(remove_all(&folder).unwrap(), 0);
        assert!(!remove(&folder, &sent).unwrap() && sent.exists());
        assert_eq!(std::fs::read_dir(folder.trees()).unwrap().count(), 1);
    }

    #[test]
    fn what_takes_too_long_is_not_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let folder = RemoteFolder::open(home.path().to_str().unwrap()).unwrap();
        let unused = tree(&folder, &hash('1'), 15);
        let locked = lock(&folder).unwrap();
        let late = remove_unused_trees(&folder, Duration::from_millis(50)).unwrap_err();
        assert!(matches!(&late, RemoteError::Io { source, .. } if source.kind() == ErrorKind::TimedOut), "{late}");
        assert!(unused.exists());
        drop(locked);
        // What was begun ends before its folder goes.
        let is_empty = || std::fs::read_dir(folder.trees()).unwrap().next().is_none();
        for _ in 0..2000 {
            if is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(remove_unused_trees(&folder, Duration::from_secs(60)).unwrap(), 0);
    }
}
