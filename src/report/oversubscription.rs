use std::collections::BTreeMap;

use expctl_record::{Hardware, Run};
use serde::Serialize;

use super::format;

/// More threads than the processors that they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Oversubscription {
    /// Threads, those of loaders included.
    pub threads: u32,
    /// Of these, the loaders' own.
    pub loader_threads: u32,
    /// Processors that they share.
    pub processors: u32,
}

impl Oversubscription {
    /// That of a run, by the processors of the machines that it ran on, the worst of them; none where every thread has a processor,
    /// and of a run without a record of where it ran. What threads a program of the user's starts is not known.
    pub fn of(run: &Run, on_slurm: bool) -> Option<Self> {
        let settings = &run.trial.settings;
        let threads = (settings.threads_per_rank(), settings.loader.workers);
        let found = run.environments().filter_map(|environment| Self::on(&environment.ranks, threads, on_slurm));
        found.max_by(|a, b| a.ratio().total_cmp(&b.ratio())).filter(|_| !settings.runs_command())
    }

    /// That of ranks with so many threads each, and of these so many of the loader: of all ranks of a node together; on Slurm, which
    /// gives each rank its own processors, of one rank. The worst, where nodes differ.
    fn on(ranks: &[Hardware], (threads, loader_threads): (u32, u32), on_slurm: bool) -> Option<Self> {
        let mut shared: BTreeMap<(&str, usize), (u32, u32)> = BTreeMap::new();
        for (rank, node) in ranks.iter().enumerate() {
            // Ranks that share processors share a key.
            let key = (node.host.as_str(), if on_slurm { rank } else { 0 });
            let (ranks, processors) = shared.entry(key).or_default();
            (*ranks, *processors) = (*ranks + 1, usable(node).max(*processors));
        }
        let found = shared.into_values().filter_map(|(ranks, processors)| {
            let (threads, loader_threads) = (ranks * threads, ranks * loader_threads);
            (processors > 0 && threads > processors).then_some(Self { threads, loader_threads, processors })
        });
        found.max_by(|a, b| a.ratio().total_cmp(&b.ratio()))
    }

    /// Threads for each processor.
    pub fn ratio(&self) -> f64 {
        f64::from(self.threads) / f64::from(self.processors)
    }

    /// `8 loader threads on 2 processors`; with the other threads, where only all together are too many.
    pub fn words(&self) -> String {
        let processors = format::count(self.processors.into(), "processor");
        if self.loader_threads > self.processors {
            format!("{} loader threads on {processors}", self.loader_threads)
        } else {
            format!("{} threads ({} of loaders) on {processors}", self.threads, self.loader_threads)
        }
    }
}

/// Processors that a rank may keep busy: those it may run on, or fewer by its control group's limit.
fn usable(node: &Hardware) -> u32 {
    let limit = node.cpu_limit_milli.map_or(u64::from(u32::MAX), |milli| milli.div_ceil(1000).max(1));
    u64::from(node.cpus).min(limit) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: &str, cpus: u32) -> Hardware {
        Hardware { host: host.to_owned(), cpus, ..Hardware::default() }
    }

    #[test]
    fn ranks_of_a_node_share_its_processors_but_not_on_slurm() {
        let ranks = [node("a", 4), node("a", 4)];
        let found = Oversubscription::on(&ranks, (3, 2), false).unwrap();
        assert_eq!(found, Oversubscription { threads: 6, loader_threads: 4, processors: 4 });
        assert_eq!(found.words(), "6 threads (4 of loaders) on 4 processors");
        assert_eq!(Oversubscription::on(&ranks, (3, 2), true), None);
        let found = Oversubscription::on(&ranks, (9, 8), true).unwrap();
        assert_eq!((found.threads, found.words().as_str()), (9, "8 loader threads on 4 processors"));
        // Two nodes, of which the smaller one is too small.
        let found = Oversubscription::on(&[node("a", 8), node("b", 2)], (5, 4), false).unwrap();
        assert_eq!((found.threads, found.processors), (5, 2));
    }

    #[test]
    fn the_limit_of_a_control_group_counts_as_processors() {
        let limited = Hardware { cpu_limit_milli: Some(1500), ..node("a", 16) };
        assert_eq!(Oversubscription::on(&[limited], (3, 2), true).unwrap().processors, 2);
        // Where no processors were recorded, nothing can be said.
        assert_eq!(Oversubscription::on(&[node("a", 0)], (3, 2), false), None);
    }
}
