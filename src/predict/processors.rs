//! The processors that the ranks of a run share.

use std::collections::BTreeMap;

use expctl_ledger::{Environment, Hardware};
use serde::Serialize;

/// Nodes of a run, as far as its ranks may use them.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedProcessors {
    /// Processors that the ranks of each node share.
    pub of_nodes: Vec<f64>,
    /// Index of the node of each rank.
    pub node_of_rank: Vec<usize>,
}

impl SharedProcessors {
    /// By the record of a run. Slurm gives each rank its own processors; elsewhere all ranks of a node share them. `None`: a rank, or its
    /// processors, are not recorded.
    pub fn from_environment(environment: &Environment, ranks: usize, on_slurm: bool) -> Option<Self> {
        let mut nodes: BTreeMap<(&str, usize), usize> = BTreeMap::new();
        let mut found = Self { of_nodes: Vec::new(), node_of_rank: Vec::new() };
        for (rank, hardware) in environment.ranks.iter().enumerate().take(ranks) {
            let node = *nodes.entry((hardware.host.as_str(), if on_slurm { rank } else { 0 })).or_insert_with(|| {
                found.of_nodes.push(usable(hardware));
                found.of_nodes.len() - 1
            });
            found.of_nodes[node] = found.of_nodes[node].max(usable(hardware));
            found.node_of_rank.push(node);
        }
        let known = found.node_of_rank.len() == ranks && found.of_nodes.iter().all(|count| *count > 0.0);
        known.then_some(found)
    }

    /// The node where ranks that keep `per_rank` processors busy have the fewest, with what they ask for there.
    pub fn tightest(&self, per_rank: f64) -> ProcessorNeed {
        let needs = self.of_nodes.iter().enumerate().map(|(node, processors)| {
            let ranks = self.node_of_rank.iter().filter(|of_rank| **of_rank == node).count();
            ProcessorNeed { threads: ranks as f64 * per_rank, processors: *processors }
        });
        let worst = needs.max_by(|a, b| (a.threads / a.processors).total_cmp(&(b.threads / b.processors)));
        worst.unwrap_or(ProcessorNeed { threads: 0.0, processors: 0.0 })
    }

    /// Most ranks on one node.
    pub fn max_ranks_of_node(&self) -> usize {
        let ranks = |node| self.node_of_rank.iter().filter(|of_rank| **of_rank == node).count();
        (0..self.of_nodes.len()).map(ranks).max().unwrap_or(0)
    }
}

/// Threads that compute at once, and the processors that they share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ProcessorNeed {
    /// Threads of all ranks of the node: those of loaders and those inside an operation of a step.
    pub threads: f64,
    /// Processors of the node that they may use.
    pub processors: f64,
}

impl ProcessorNeed {
    /// Whether each thread has a processor.
    pub fn suffices(&self) -> bool {
        self.threads <= self.processors
    }

    /// Threads that share a processor; 1 where each has one.
    pub fn crowd(&self) -> f64 {
        if self.suffices() { 1.0 } else { self.threads / self.processors }
    }
}

/// Processors that a rank may use: those of its affinity, or fewer by the limit of its control group.
fn usable(hardware: &Hardware) -> f64 {
    let limit = hardware.cpu_limit_milli.map_or(f64::INFINITY, |milli| milli as f64 / 1000.0);
    f64::from(hardware.cpus).min(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(nodes: &[(&str, u32)]) -> Environment {
        let node = |(host, cpus): &(&str, u32)| Hardware { host: (*host).into(), cpus: *cpus, ..Hardware::default() };
        Environment { ranks: nodes.iter().map(node).collect(), ..Environment::default() }
    }

    #[test]
    fn ranks_of_a_node_share_its_processors_but_not_on_slurm() {
        let two = environment(&[("a", 4), ("a", 4), ("b", 8)]);
        let local = SharedProcessors::from_environment(&two, 3, false).unwrap();
        assert_eq!((local.of_nodes.as_slice(), local.node_of_rank.as_slice()), (&[4.0, 8.0][..], &[0, 0, 1][..]));
        assert_eq!(local.tightest(3.0), ProcessorNeed { threads: 6.0, processors: 4.0 });
        assert!(!local.tightest(3.0).suffices() && local.tightest(2.0).suffices());
        let slurm = SharedProcessors::from_environment(&two, 3, true).unwrap();
        assert_eq!((slurm.of_nodes.len(), slurm.max_ranks_of_node(), local.max_ranks_of_node()), (3, 1, 2));
    }

    #[test]
    fn unknown_processors_are_no_processors() {
        assert_eq!(SharedProcessors::from_environment(&environment(&[("a", 4)]), 2, false), None);
        assert_eq!(SharedProcessors::from_environment(&environment(&[("a", 0)]), 1, false), None);
        let mut limited = environment(&[("a", 16)]);
        limited.ranks[0].cpu_limit_milli = Some(1500);
        assert_eq!(SharedProcessors::from_environment(&limited, 1, false).unwrap().of_nodes, [1.5]);
    }
}
