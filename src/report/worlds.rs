//! Which rows of a job differ in the number of ranks alone.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::figures::all_rates;
use expctl_record::{MeasuredJob, Run};

/// A variant, at one point of everything else that is swept, on several numbers of ranks.
pub struct Scaled<'a> {
    /// The variant with what is swept besides the ranks.
    pub label: String,
    /// By number of ranks, the fewest first; two or more.
    pub worlds: Vec<World<'a>>,
}

/// A number of ranks, and the runs on it.
pub struct World<'a> {
    /// Processes of a trial.
    pub ranks: u32,
    /// The runs, one of them or more with rates.
    pub runs: Vec<&'a Run>,
}

/// What a job says of more ranks; empty where no variant ran on several numbers of ranks.
pub fn scaled(job: &MeasuredJob) -> Vec<Scaled<'_>> {
    let with_nodes = nodes_follow_ranks(job);
    let mut all: Vec<Scaled<'_>> = Vec::new();
    for (_, runs) in job.by_label() {
        if all_rates(&runs).is_empty() {
            continue;
        }
        let mut trial = runs[0].trial.clone();
        trial.point.remove("launch.ranks");
        if with_nodes {
            trial.point.remove("launch.nodes");
        }
        let (label, world) = (trial.label(), World { ranks: trial.settings.launch.ranks, runs });
        match all.iter_mut().find(|scaled| scaled.label == label) {
            Some(scaled) => scaled.worlds.push(world),
            None => all.push(Scaled { label, worlds: vec![world] }),
        }
    }
    all.iter_mut().for_each(|scaled| scaled.worlds.sort_by_key(|world| world.ranks));
    all.retain(|scaled| scaled.worlds.len() > 1);
    all
}

/// Whether a number of ranks always comes with the same number of nodes, which then is no point of its own.
fn nodes_follow_ranks(job: &MeasuredJob) -> bool {
    let mut nodes: BTreeMap<u32, &Json> = BTreeMap::new();
    job.runs.iter().all(|run| match run.trial.point.get("launch.nodes") {
        Some(of) => *nodes.entry(run.trial.settings.launch.ranks).or_insert(of) == of,
        None => true,
    })
}

/// Nodes that had more ranks of a run than processors, as `4 ranks on node1, which has 2 processors`. None for jobs of Slurm, which
/// hands processors out.
pub fn crowded(job: &MeasuredJob, runs: &[&Run]) -> Option<String> {
    if job.record.on_slurm() {
        return None;
    }
    let mut environments = runs.iter().filter(|run| run.completed()).flat_map(|run| run.environments());
    environments.find_map(|environment| {
        let mut hosts: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
        for node in &environment.ranks {
            let (ranks, cpus) = hosts.entry(&node.host).or_default();
            (*ranks, *cpus) = (*ranks + 1, node.cpus.max(*cpus));
        }
        let (host, (ranks, cpus)) = hosts.into_iter().find(|(_, (ranks, cpus))| *cpus > 0 && ranks > cpus)?;
        let processors = super::format::count(cpus.into(), "processor");
        Some(format!("{ranks} ranks on {host}, which has {processors}"))
    })
}
