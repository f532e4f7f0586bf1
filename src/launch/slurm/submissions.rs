//! `<job>/slurm-ids`: under which of Slurm's numbers each trial runs. A retry is an array of its own in the same folder.

use std::collections::BTreeMap;
use std::path::PathBuf;

use expctl_record::{JobDir, Outcome, Trial, write_atomic};

use super::submitted::Submitted;
use crate::exit::Failure;

/// All arrays of a job, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Submissions {
    first: Submitted,
    /// Number of each retry, with the array tasks it has and the attempt that each of them makes.
    retries: Vec<(u64, BTreeMap<u32, u32>)>,
}

impl Submissions {
    /// The arrays of job `id`.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn load(folder: &JobDir, id: u64) -> Result<Self, Failure> {
        let first = Submitted::load(folder, id)?;
        let path = path(folder);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(Failure::internal(format!("cannot read {}: {e}", path.display()))),
        };
        // The first line is the job's own number.
        let retries = text.lines().skip(1).map(|line| {
            retry(line).ok_or_else(|| Failure::internal(format!("{} has an odd line: {line:?}", path.display())))
        });
        Ok(Self { first, retries: retries.collect::<Result<_, _>>()? })
    }

    /// Add a retry and write the file.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn add(&mut self, folder: &JobDir, id: u64, tasks: BTreeMap<u32, u32>) -> Result<(), Failure> {
        self.retries.push((id, tasks));
        let line = |(id, tasks): &(u64, BTreeMap<u32, u32>)| {
            let tasks: String = tasks.iter().map(|(index, attempt)| format!(" {index}:{attempt}")).collect();
            format!("{id}{tasks}\n")
        };
        let lines: String = self.retries.iter().map(line).collect();
        Ok(write_atomic(&path(folder), format!("{}\n{lines}", self.first.id).as_bytes())?)
    }

    /// The array that runs task `index` now, and the number of the attempt that it makes.
    pub fn newest(&self, index: u32) -> (Submitted, u32) {
        let found = self.retries.iter().rev().find_map(|(id, tasks)| Some((*id, *tasks.get(&index)?)));
        let (id, attempt) = found.unwrap_or((self.first.id, 1));
        (self.named(id), attempt)
    }

    /// Another array on the same cluster.
    pub fn named(&self, id: u64) -> Submitted {
        Submitted { id, ..self.first.clone() }
    }
}

/// The outcome of a trial's last attempt, unless a later one (`attempt`) is still to come.
pub(super) fn settled(job: &JobDir, trial: &Trial, attempt: u32) -> Result<Option<Outcome>, Failure> {
    match job.attempts(&trial.id)?.last() {
        Some(last) if last.number() >= attempt => Ok(last.outcome()?),
        _ => Ok(None),
    }
}

fn retry(line: &str) -> Option<(u64, BTreeMap<u32, u32>)> {
    let mut words = line.split_whitespace();
    let id = words.next()?.parse().ok()?;
    let tasks = words.map(|word| {
        let (index, attempt) = word.split_once(':')?;
        Some((index.parse().ok()?, attempt.parse().ok()?))
    });
    Some((id, tasks.collect::<Option<_>>()?))
}

fn path(folder: &JobDir) -> PathBuf {
    folder.path().join("slurm-ids")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_array_of_a_task_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let folder = JobDir::new(dir.path());
        let mut all = Submissions::load(&folder, 392).unwrap();
        assert_eq!(all.newest(1), (Submitted::here(392), 1));
        all.add(&folder, 400, BTreeMap::from([(1, 2), (3, 2)])).unwrap();
        all.add(&folder, 410, BTreeMap::from([(3, 3)])).unwrap();
        let text = std::fs::read_to_string(path(&folder)).unwrap();
        assert_eq!(text, "392\n400 1:2 3:2\n410 3:3\n");
        let read = Submissions::load(&folder, 392).unwrap();
        assert_eq!(read, all);
        let newest: Vec<_> = (0..4).map(|i| read.newest(i)).map(|(s, attempt)| (s.id, attempt)).collect();
        assert_eq!(newest, [(392, 1), (400, 2), (392, 1), (410, 3)]);
    }
}
