//! A job as Slurm's commands name it: its number and, where several clusters share an accounting, its cluster.

use std::path::PathBuf;

use expctl_record::{JobDir, write_atomic};

use crate::exit::Failure;

/// What `sbatch --parsable` answers: `id`, or `id;cluster` where there are several clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// Slurm's own number.
    pub id: u64,
    /// The cluster, where there are several.
    pub cluster: Option<String>,
}

impl Submitted {
    /// A job of the cluster that the commands speak to anyway.
    pub const fn here(id: u64) -> Self {
        Self { id, cluster: None }
    }

    /// The job in an answer of `sbatch --parsable`.
    pub fn parse(answer: &str) -> Option<Self> {
        // Sites print greetings; the answer is the last line.
        let last = answer.trim().lines().last()?.trim();
        let (id, cluster) = match last.split_once(';') {
            Some((id, cluster)) => (id, Some(cluster.to_owned())),
            None => (last, None),
        };
        Some(Self { id: id.parse().ok()?, cluster })
    }

    /// The job `id` of the ledger, as it was submitted.
    ///
    /// # Errors
    /// If the file that names its cluster cannot be read.
    pub fn load(folder: &JobDir, id: u64) -> Result<Self, Failure> {
        let path = cluster_path(folder);
        match std::fs::read_to_string(&path) {
            Ok(name) => Ok(Self { id, cluster: Some(name.trim().to_owned()) }),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Self::here(id)),
            Err(e) => Err(Failure::internal(format!("cannot read {}: {e}", path.display()))),
        }
    }

    /// Keep the cluster's name in the job's folder: whoever waits later has to ask the same one.
    ///
    /// # Errors
    /// If the folder cannot be written to.
    pub fn save(&self, folder: &JobDir) -> Result<(), Failure> {
        match &self.cluster {
            Some(name) => Ok(write_atomic(&cluster_path(folder), format!("{name}\n").as_bytes())?),
            None => Ok(()),
        }
    }

    /// The option that leads a command to the job's cluster.
    pub fn cluster_option(&self) -> Option<String> {
        self.cluster.as_ref().map(|cluster| format!("--clusters={cluster}"))
    }

    /// Arguments of `scontrol VERB` or `scancel` about this job.
    pub fn arguments(&self, verb: Option<&str>) -> Vec<String> {
        self.cluster_option().into_iter().chain(verb.map(str::to_owned)).chain([self.id.to_string()]).collect()
    }
}

fn cluster_path(folder: &JobDir) -> PathBuf {
    folder.path().join("cluster")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn east() -> Submitted {
        Submitted { id: 392, cluster: Some("east".to_owned()) }
    }

    #[test]
    fn answers_of_sbatch() {
        assert_eq!(Submitted::parse("392\n"), Some(Submitted::here(392)));
        assert_eq!(Submitted::parse("Welcome to the cluster\n392\n"), Some(Submitted::here(392)));
        assert_eq!(Submitted::parse("392;east\n"), Some(east()));
        assert_eq!(Submitted::parse("Submitted batch job 392\n"), None);
        assert_eq!(Submitted::parse(""), None);
    }

    #[test]
    fn later_commands_name_the_cluster() {
        assert_eq!(east().arguments(Some("release")), ["--clusters=east", "release", "392"]);
        assert_eq!(Submitted::here(392).arguments(None), ["392"]);
    }

    #[test]
    fn the_cluster_is_kept_in_the_ledger() {
        for job in [east(), Submitted::here(392)] {
            let folder = tempfile::tempdir().unwrap();
            let folder = JobDir::new(folder.path());
            job.save(&folder).unwrap();
            assert_eq!(Submitted::load(&folder, 392).unwrap(), job);
        }
    }
}
