use expctl_record::{Run, Stage, StepRecord};

use super::figures::measured;

/// How the ranks of a variant met in the exchange of gradients, over the steps that all ranks measured.
///
/// A rank that waits in the exchange waits for the last one to arrive, and then for the exchange itself; the last one waits for the
/// exchange alone. So in each step the shortest exposed allreduce of all ranks is the transfer, and what a rank waited longer than that
/// was waiting for the others (derived). What of an exchange runs beside the backward pass is exposed to nobody and in neither.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arrival {
    /// Steps.
    pub steps: u64,
    /// Steps in which one rank worked longer than all others.
    pub decided: u64,
    /// Of these, how many each rank was the slowest in.
    pub slowest: Vec<u64>,
    /// True if gradients were exchanged.
    pub exchanged: bool,
    /// What each rank waited for the others, ns per step.
    pub waiting: Vec<f64>,
    /// What the exchange itself was waited for, ns per step.
    pub transfer: f64,
    /// From the first rank's arrival to the last one's, ns per step: what the longest wait for others was.
    pub skew: f64,
    /// Wall time of a step, ns, mean over the ranks.
    pub wall: f64,
}

impl Arrival {
    /// Over the completed runs; none of one rank, and without steps.
    pub fn of<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Option<Self> {
        let mut sum = Self::default();
        for run in runs.into_iter().filter(|run| run.completed()) {
            let by_rank: Vec<Vec<&StepRecord>> = run.ranks.iter().map(|steps| measured(steps).collect()).collect();
            sum.slowest.resize(by_rank.len().max(sum.slowest.len()), 0);
            sum.waiting.resize(sum.slowest.len(), 0.0);
            for index in 0..by_rank.iter().map(Vec::len).min().unwrap_or(0) {
                sum.add(&by_rank.iter().map(|steps| steps[index]).collect::<Vec<_>>());
            }
        }
        if sum.slowest.len() < 2 || sum.steps == 0 {
            return None;
        }
        let steps = sum.steps as f64;
        sum.waiting.iter_mut().for_each(|ns| *ns /= steps);
        sum.transfer /= steps;
        sum.skew /= steps;
        sum.wall /= steps;
        Some(sum)
    }

    /// Add one step of all ranks.
    fn add(&mut self, ranks: &[&StepRecord]) {
        self.steps += 1;
        self.wall += ranks.iter().map(|step| step.wall_ns as f64).sum::<f64>() / ranks.len() as f64;
        let own: Vec<u64> = ranks.iter().map(|s| s.wall_ns.saturating_sub(s.exposed[Stage::Allreduce])).collect();
        let (least, most) = (own.iter().min().copied().unwrap_or(0), own.iter().max().copied().unwrap_or(0));
        if own.iter().filter(|ns| **ns == most).count() == 1 {
            self.decided += 1;
            own.iter().zip(&mut self.slowest).filter(|(ns, _)| **ns == most).for_each(|(_, times)| *times += 1);
        }
        let waited: Vec<u64> = ranks.iter().map(|step| step.exposed[Stage::Allreduce]).collect();
        if waited.iter().all(|ns| *ns == 0) {
            // Nobody waited for anybody: the ranks only differ in what they took.
            self.skew += (most - least) as f64;
            return;
        }
        self.exchanged = true;
        let (transfer, longest) =
            (waited.iter().min().copied().unwrap_or(0), waited.iter().max().copied().unwrap_or(0));
        self.transfer += transfer as f64;
        self.skew += (longest - transfer) as f64;
        waited.iter().zip(&mut self.waiting).for_each(|(ns, sum)| *sum += (ns - transfer) as f64);
    }

    /// Share of the decided steps in which a rank was the slowest.
    pub fn share(&self, rank: usize) -> f64 {
        let times = self.slowest.get(rank).copied().unwrap_or(0);
        if self.decided > 0 { times as f64 / self.decided as f64 } else { 0.0 }
    }
}
