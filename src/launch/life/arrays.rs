//! Slurm's numbers of a job.

use expctl_record::{JobDir, JobRecord};

/// Numbers of the arrays that ran or run the trials of a job, oldest first: the first word of each line of
/// `<job>/slurm-ids`; the job's own number where there is no such file. None for a job on this machine.
pub fn arrays(folder: &JobDir, record: &JobRecord) -> Vec<u64> {
    if record.backend != "slurm" {
        return Vec::new();
    }
    let text = std::fs::read_to_string(folder.path().join("slurm-ids")).unwrap_or_default();
    let ids: Vec<u64> = text.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
    if ids.is_empty() { vec![record.job] } else { ids }
}
