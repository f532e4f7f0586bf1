//! [`JobId`]: how Slurm's commands name a job.

/// A job: its id and, where several clusters share an accounting, its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobId {
    /// Slurm's id.
    pub id: u64,
    /// Name of the cluster, where there are several.
    pub cluster: Option<String>,
}

impl JobId {
    /// A job of the cluster that the commands speak to by default.
    pub const fn new(id: u64) -> Self {
        Self { id, cluster: None }
    }

    /// Read an answer of `sbatch --parsable`: `id`, or `id;cluster` where there are several clusters. `None` if it is
    /// neither.
    pub fn parse(answer: &str) -> Option<Self> {
        // Sites print greetings; the answer is the last line.
        let last = answer.trim().lines().last()?.trim();
        let (id, cluster) = match last.split_once(';') {
            Some((id, cluster)) => (id, Some(cluster.to_owned())),
            None => (last, None),
        };
        Some(Self { id: id.parse().ok()?, cluster })
    }

    /// The option that leads a command to the job's cluster.
    pub(crate) fn cluster_option(&self) -> Option<String> {
        self.cluster.as_ref().map(|cluster| format!("--clusters={cluster}"))
    }

    /// Arguments of `scontrol VERB` or `scancel` about this job.
    pub(crate) fn arguments(&self, verb: Option<&str>) -> Vec<String> {
        self.cluster_option().into_iter().chain(verb.map(str::to_owned)).chain([self.id.to_string()]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn east() -> JobId {
        JobId { id: 392, cluster: Some("east".to_owned()) }
    }

    #[test]
    fn answers_of_sbatch() {
        assert_eq!(JobId::parse("392\n"), Some(JobId::new(392)));
        assert_eq!(JobId::parse("Welcome to the cluster\n392\n"), Some(JobId::new(392)));
        assert_eq!(JobId::parse("392;east\n"), Some(east()));
        assert_eq!(JobId::parse("Submitted batch job 392\n"), None);
        assert_eq!(JobId::parse(""), None);
    }

    #[test]
    fn later_commands_name_the_cluster() {
        assert_eq!(east().arguments(Some("release")), ["--clusters=east", "release", "392"]);
        assert_eq!(JobId::new(392).arguments(None), ["392"]);
    }
}
