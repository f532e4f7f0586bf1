//! A job as Slurm's commands name it: its number and, where several clusters share an accounting, its cluster.

/// What `sbatch --parsable` answers: `id`, or `id;cluster` where there are several clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// Slurm's number.
    pub id: u64,
    /// Name of the cluster, where there are several.
    pub cluster: Option<String>,
}

impl Submitted {
    /// A job of the cluster that the commands speak to anyway.
    pub const fn here(id: u64) -> Self {
        Self { id, cluster: None }
    }

    /// Read an answer; none if it is no number.
    pub(super) fn parse(answer: &str) -> Option<Self> {
        // Sites print greetings; the answer is the last line.
        let last = answer.trim().lines().last()?.trim();
        let (id, cluster) = match last.split_once(';') {
            Some((id, cluster)) => (id, Some(cluster.to_owned())),
            None => (last, None),
        };
        Some(Self { id: id.parse().ok()?, cluster })
    }

    /// The option that leads a command to the job's cluster.
    pub(super) fn cluster_option(&self) -> Option<String> {
        self.cluster.as_ref().map(|cluster| format!("--clusters={cluster}"))
    }

    /// Arguments of `scontrol VERB` or `scancel` about this job.
    pub(super) fn arguments(&self, verb: Option<&str>) -> Vec<String> {
        self.cluster_option().into_iter().chain(verb.map(str::to_owned)).chain([self.id.to_string()]).collect()
    }
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
}
