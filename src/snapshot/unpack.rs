//! The folder `code` of a job: the files of its snapshot, and links to what stays in the project.
//!
//! Invariant: it is complete under its name. Any number of tasks may ask for it at once, on several nodes.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use atomic_file::TEMPORARY_PREFIX;
use expctl_ledger::{CodeSnapshot, JobDir, SnapshotContent};

use super::error::SnapshotError;
use super::store::Store;

/// The folder that the programs of a job run in.
pub fn code_folder(job: &JobDir) -> PathBuf {
    job.path().join("code")
}

/// Write a snapshot into the folder of a job that is being submitted, and unpack it where its programs run from it.
///
/// # Errors
/// The ledger cannot be written.
pub fn place(job: &JobDir, snapshot: &CodeSnapshot, runs_programs: bool) -> Result<(), SnapshotError> {
    snapshot.write(job)?;
    if runs_programs { unpack_snapshot(job, snapshot) } else { Ok(()) }
}

/// Make the folder `code` of a job, unless it exists. Nothing is done for a job without a snapshot.
///
/// # Errors
/// The snapshot cannot be read, or the job's folder not written.
pub fn unpack(job: &JobDir) -> Result<(), SnapshotError> {
    if code_folder(job).is_dir() {
        return Ok(());
    }
    CodeSnapshot::read(job)?.map_or(Ok(()), |snapshot| unpack_snapshot(job, &snapshot))
}

fn unpack_snapshot(job: &JobDir, snapshot: &CodeSnapshot) -> Result<(), SnapshotError> {
    let store = Store::named(job.path().parent().unwrap_or(job.path()), &snapshot.store);
    // Removed when dropped: what was unpacked has its name by then.
    let staged = tempfile::Builder::new()
        .prefix(TEMPORARY_PREFIX)
        .tempdir_in(job.path())
        .map_err(SnapshotError::io("create", job.path()))?;
    let folder = staged.path().join("code");
    write_code(&folder, snapshot, &store)?;
    let target = code_folder(job);
    match std::fs::rename(&folder, &target) {
        // Another task was faster.
        Err(e) if matches!(e.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) => Ok(()),
        other => other.map_err(SnapshotError::io("write", &target)),
    }
}

/// Make the folder of a snapshot, which must not be there. If an object is damaged, all are removed that are.
pub(crate) fn write_code(folder: &Path, snapshot: &CodeSnapshot, store: &Store) -> Result<(), SnapshotError> {
    let folders = snapshot.folders();
    for inside in &folders {
        let path = folder.join(inside);
        std::fs::create_dir(&path).map_err(SnapshotError::io("create", &path))?;
    }
    let written = parallel_map::map(&snapshot.entries, |entry| {
        let path = folder.join(&entry.path);
        match &entry.content {
            SnapshotContent::File { mode, hash, .. } => write_file(&path, *mode, &store.read(hash)?),
            SnapshotContent::Link { target } => link(target.as_ref(), &path),
            // What lies deeper is found through the link of the folder that it lies in.
            SnapshotContent::Live { .. } if !entry.path.0.parent().is_some_and(|of| folders.contains(of)) => Ok(()),
            SnapshotContent::Live { .. } => link(&snapshot.project.0.join(&entry.path), &path),
        }
    });
    let written: Result<(), SnapshotError> = written.into_iter().collect();
    written.inspect_err(|error| {
        if matches!(error, SnapshotError::Damaged { .. } | SnapshotError::NoObject { .. }) {
            snapshot.hashes().for_each(|hash| store.remove_damaged(hash));
        }
    })
}

/// A file that programs may read, and run if they could, but not change: other tasks run it, too.
fn write_file(path: &Path, mode: u32, content: &[u8]) -> Result<(), SnapshotError> {
    let mode = if mode & 0o111 == 0 { 0o444 } else { 0o555 };
    let write = || OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?.write_all(content);
    write().map_err(SnapshotError::io("write", path))
}

fn link(target: &Path, path: &Path) -> Result<(), SnapshotError> {
    std::os::unix::fs::symlink(target, path).map_err(SnapshotError::io("write", path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use expctl_ledger::{LiveReason, SnapshotEntry, SnapshotPath};

    use super::*;

    #[test]
    fn many_tasks_at_once_leave_one_whole_folder() {
        let runs = tempfile::tempdir().unwrap();
        let project = tempfile::tempdir().unwrap();
        std::fs::create_dir(project.path().join("data")).unwrap();
        std::fs::write(project.path().join("data/x"), "live").unwrap();
        let store = Store::of_user(runs.path());
        store.create().unwrap();
        let entry = |path: &str, content| SnapshotEntry { path: SnapshotPath(path.into()), content };
        let file = |mode, text: &str| {
            let hash = store.insert(text.as_bytes()).unwrap();
            SnapshotContent::File { mode, size: text.len() as u64, hash }
        };
        let live = || SnapshotContent::Live { reason: LiveReason::Ignored, size: None };
        let entries = vec![
            entry("pkg/deep/m.py", file(0o644, "a = 1\n")),
            entry("run.sh", file(0o755, "#!/bin/sh\n")),
            entry("latest", SnapshotContent::Link { target: SnapshotPath("pkg/deep".into()) }),
            entry("data", live()),
            entry("data/secret.env", live()),
        ];
        let snapshot = CodeSnapshot::new(store.name(), project.path().to_owned(), entries);
        let job = JobDir::new(runs.path().join("1"));
        job.create().unwrap();
        snapshot.write(&job).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| unpack(&job).unwrap());
            }
        });
        let code = code_folder(&job);
        let read = |path: &str| std::fs::read_to_string(code.join(path)).unwrap();
        assert_eq!((read("latest/m.py"), read("data/x")), ("a = 1\n".to_owned(), "live".to_owned()));
        let mode = |path: &str| code.join(path).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("pkg/deep/m.py") & 0o222, mode("run.sh") & 0o300), (0, 0o100));
        let names: Vec<_> = std::fs::read_dir(job.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        // An object that is not what its name says is never unpacked.
        std::fs::remove_dir_all(&code).unwrap();
        let objects = store.path().join("objects");
        for folder in std::fs::read_dir(objects).unwrap().map(|entry| entry.unwrap().path()) {
            for object in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                std::fs::remove_file(&object).unwrap();
                std::fs::write(object, "other").unwrap();
            }
        }
        assert!(matches!(unpack(&job), Err(SnapshotError::Damaged { .. })) && !code.exists());
        // Another submission with the same files repairs the job.
        assert!(matches!(unpack(&job), Err(SnapshotError::NoObject { .. })));
        for text in ["a = 1\n", "#!/bin/sh\n"] {
            store.insert(text.as_bytes()).unwrap();
        }
        unpack(&job).unwrap();
        assert_eq!(read("latest/m.py"), "a = 1\n");
    }
}
