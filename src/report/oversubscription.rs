use std::collections::BTreeMap;

use expctl_record::Hardware;
use serde::Serialize;

use super::format;
use crate::ledger::Run;

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
    /// That of a run, by the processors of the machine that it ran on: of all ranks of a node together; on Slurm, which gives each
    /// rank its own processors, of one rank. The worst, where nodes differ; none where every thread has a processor, and of a run
    /// without a record of where it ran.
    pub fn of(run: &Run, on_slurm: bool) -> Option<Self> {
        let environment = run.environment.as_ref()?;
        let mut shared: BTreeMap<(&str, usize), (u32, u32)> = BTreeMap::new();
        for (rank, node) in environment.ranks.iter().enumerate() {
            // Ranks of one machine share its processors, so they share a key.
            let key = (node.host.as_str(), if on_slurm { rank } else { 0 });
            let (ranks, processors) = shared.entry(key).or_default();
            (*ranks, *processors) = (*ranks + 1, usable(node).max(*processors));
        }
        let found = shared.into_values().filter_map(|(ranks, processors)| {
            let settings = &run.trial.settings;
            let (threads, loader_threads) = (ranks * settings.threads_per_rank(), ranks * settings.loader.workers);
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
