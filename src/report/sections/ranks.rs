//! The ranks of each variant: rates, waiting for each other in the exchange of gradients, and stragglers.

use std::collections::{BTreeMap, BTreeSet};

use expctl_ledger::{Hardware, MeasuredJob, Run, RunPart, Stage, StepRecord};
use expctl_stats::{ALPHA, holm, median};
use expctl_text::Table;
use expctl_text::format::{self, MISSING};
use statrs::distribution::{Binomial, DiscreteCDF};

use super::TitledTable;
use crate::report::rates::{measured_steps, rank_rates, step_times};

/// The ranks of each variant with a completed run of several: a single rank is what the other sections show.
pub fn ranks(job: &MeasuredJob) -> Vec<TitledTable> {
    job.by_label()
        .into_iter()
        .filter(|(_, runs)| runs.iter().any(|run| run.completed() && run.ranks.len() > 1))
        .map(|(label, runs)| {
            let completed: Vec<&Run> = runs.into_iter().filter(|run| run.completed()).collect();
            let arrival = Arrival::from_runs(completed.iter().copied());
            let mut text = table(&completed, arrival.as_ref()).markdown();
            if let Some(arrival) = &arrival {
                let said = stragglers(&completed, arrival).into_iter().map(|line| format!("- {line}"));
                text.push_str(&format!("\n\n{}", said.collect::<Vec<_>>().join("\n")));
            }
            TitledTable { label, table: text, sentence: String::new() }
        })
        .collect()
}

fn table(runs: &[&Run], arrival: Option<&Arrival>) -> Table {
    let environments = || runs.iter().flat_map(|run| run.environments());
    let devices = environments().flat_map(|environment| &environment.ranks).any(|rank| rank.device.is_some());
    let mut header = vec!["Rank", "Node"];
    header.extend(devices.then_some("GPU"));
    header.extend([
        "it/s",
        "samples/s",
        "ms/step (median)",
        "slowest in",
        "Exposed allreduce (ms/step)",
        "for others (ms/step)",
        "Transfer (ms/step)",
    ]);
    let (first, columns) = (if devices { 3 } else { 2 }, header.len());
    let mut table = Table::new(header).right(first..columns);
    let missing = || MISSING.to_owned();
    let exchange = arrival.filter(|arrival| arrival.exchanged);
    let ranks = runs.iter().map(|run| run.ranks.len()).max().unwrap_or(0);
    for rank in 0..ranks {
        let of_rank: Vec<&[StepRecord]> = runs.iter().filter_map(|r| r.ranks.get(rank)).map(Vec::as_slice).collect();
        let rates: Vec<_> = of_rank.iter().filter_map(|steps| rank_rates(steps)).collect();
        let over_runs = |values: Vec<f64>| median(&values).map_or_else(missing, format::rate);
        let steps = || of_rank.iter().flat_map(|steps| measured_steps(steps));
        let n = steps().count();
        let waited: u64 = steps().map(|s| s.exposed[Stage::Allreduce]).sum();
        let happened = steps().any(|s| s.exposed[Stage::Allreduce] > 0 || s.busy[Stage::Allreduce] > 0);
        let names = [rank.to_string(), nodes(runs, rank)];
        let figures = [
            over_runs(rates.iter().map(|r| r.it_per_s).collect()),
            over_runs(rates.iter().map(|r| r.samples_per_s).collect()),
            step_times(steps()).map_or_else(missing, |t| format::milliseconds(t.median)),
            arrival.map_or_else(missing, |arrival| format::percent(arrival.share(rank))),
            if happened && n > 0 { format::milliseconds(waited as f64 / n as f64) } else { missing() },
            exchange.and_then(|a| a.waiting.get(rank)).map_or_else(missing, |ns| format::milliseconds(*ns)),
            exchange.map_or_else(missing, |arrival| format::milliseconds(arrival.transfer)),
        ];
        table.row(names.into_iter().chain(devices.then(|| gpus(runs, rank))).chain(figures));
    }
    table
}

/// Nodes that a rank ran on over all runs and their attempts.
fn nodes(runs: &[&Run], rank: usize) -> String {
    distinct(hardware(runs, rank).map(|hardware| hardware.host.clone()))
}

/// GPUs that a rank computed on over all runs and their attempts: `0 (NVIDIA H100)`.
fn gpus(runs: &[&Run], rank: usize) -> String {
    let devices = hardware(runs, rank).filter_map(|hardware| hardware.device.as_ref());
    distinct(devices.map(|device| format!("{} ({})", device.index, device.name)))
}

/// Hardware that a rank ran on, by run and attempt, as far as it is known.
fn hardware<'a>(runs: &'a [&Run], rank: usize) -> impl Iterator<Item = &'a Hardware> {
    runs.iter().flat_map(|run| run.environments()).filter_map(move |environment| environment.ranks.get(rank))
}

/// Distinct words.
fn distinct(words: impl Iterator<Item = String>) -> String {
    let words: BTreeSet<String> = words.filter(|word| !word.is_empty()).collect();
    if words.is_empty() { MISSING.to_owned() } else { words.into_iter().collect::<Vec<_>>().join(", ") }
}

/// Arrival of the ranks of a variant at the exchange of gradients, over the steps that all ranks measured.
///
/// In the exchange a rank waits for the last rank to arrive, and then for the transfer; the last rank waits for the transfer only. So in each
/// step the shortest exposed allreduce of all ranks is the transfer, and the rest of a longer one is waiting for others (derived). The part
/// of an exchange that overlaps the backward pass is exposed in no rank and counts in neither.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arrival {
    /// Steps.
    pub steps: u64,
    /// Steps with a single slowest rank.
    pub decided: u64,
    /// Number of these in which each rank was the slowest.
    pub slowest: Vec<u64>,
    /// Whether gradients were exchanged.
    pub exchanged: bool,
    /// Time that each rank waited for others, ns per step.
    pub waiting: Vec<f64>,
    /// Exposed time of the transfer, ns per step.
    pub transfer: f64,
    /// Time from the first arrival to the last, ns per step: the longest wait for others.
    pub skew: f64,
    /// Wall time of a step, ns, mean over the ranks.
    pub wall: f64,
}

impl Arrival {
    /// Over the completed runs; `None` for a single rank, and without steps.
    pub fn from_runs<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Option<Self> {
        let mut sum = Self::default();
        for run in runs.into_iter().filter(|run| run.completed()) {
            let by_rank: Vec<Vec<&StepRecord>> =
                run.ranks.iter().map(|steps| measured_steps(steps).collect()).collect();
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
        let work: Vec<u64> = ranks.iter().map(|s| s.wall_ns.saturating_sub(s.exposed[Stage::Allreduce])).collect();
        let (min, max) = (work.iter().min().copied().unwrap_or(0), work.iter().max().copied().unwrap_or(0));
        if work.iter().filter(|ns| **ns == max).count() == 1 {
            self.decided += 1;
            work.iter().zip(&mut self.slowest).filter(|(ns, _)| **ns == max).for_each(|(_, times)| *times += 1);
        }
        let waited: Vec<u64> = ranks.iter().map(|step| step.exposed[Stage::Allreduce]).collect();
        if waited.iter().all(|ns| *ns == 0) {
            // No exchange: the skew is the difference of their work.
            self.skew += (max - min) as f64;
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

/// Skew that is ignored, as a share of the step.
const SKEW_LIMIT: f64 = 0.01;

/// A rank, or all ranks of a node, with the number of steps in which one of them was the slowest.
struct StragglerCandidate {
    name: String,
    times: u64,
    /// Share of steps in which one of them is the slowest by chance.
    chance: f64,
    /// The ranks.
    ranks: Vec<usize>,
    /// Whether it is a node.
    node: bool,
}

impl StragglerCandidate {
    /// Whether this is the node of that rank.
    fn holds(&self, rank: &Self) -> bool {
        self.node && !rank.node && rank.ranks.iter().all(|rank| self.ranks.contains(rank))
    }
}

/// The skew, and the stragglers with their cost.
///
/// A rank or a node is a straggler if it is the slowest in more steps than by chance: a binomial test of equally likely ranks, corrected by Holm
/// for the number of ranks and nodes. Consecutive steps are correlated, so the test finds too many rather than too few; it is not done for a
/// skew below 1 % of the step.
///
/// Source: W. J. Conover, *Practical Nonparametric Statistics*, 3rd ed. 1999, section 3.1 (binomial test).
fn stragglers(runs: &[&Run], arrival: &Arrival) -> Vec<String> {
    let mut said = vec![skew(arrival)];
    if arrival.skew < SKEW_LIMIT * arrival.wall || arrival.decided == 0 {
        return said;
    }
    let candidates = candidates(runs, arrival);
    let p: Vec<f64> = candidates.iter().map(|s| at_least(s.times, arrival.decided, s.chance)).collect();
    let mut late: Vec<(&StragglerCandidate, f64)> =
        candidates.iter().zip(holm(&p)).filter(|(_, p)| *p < ALPHA).collect();
    // Several late ranks of a node are reported as the node, a single one as the rank.
    let of_one =
        |node: &StragglerCandidate| late.iter().any(|(rank, _)| node.holds(rank) && 2 * rank.times > node.times);
    let named: Vec<bool> = late
        .iter()
        .map(|(candidate, _)| match candidate.node {
            true => !of_one(candidate),
            false => late.iter().filter(|(node, _)| node.holds(candidate)).all(|(node, _)| of_one(node)),
        })
        .collect();
    let mut named = named.into_iter();
    late.retain(|_| named.next().unwrap_or(true));
    for (candidate, p) in late {
        let share = candidate.times as f64 / arrival.decided as f64;
        let p = if p < 0.0001 { "p < 0.0001".to_owned() } else { format!("p = {}", format::figure(p)) };
        said.push(format!(
            "Straggler: {} is the slowest in {} of {} steps, where chance gives {} ({p}, binomial, Holm); see what else runs there, how its clocks \
             are set, and whether it reads farther away.",
            candidate.name,
            format::percent(share),
            arrival.decided,
            format::percent(candidate.chance)
        ));
    }
    said
}

fn skew(arrival: &Arrival) -> String {
    let ms = format::milliseconds;
    let share = if arrival.wall > 0.0 { format::percent(arrival.skew / arrival.wall) } else { "0.0 %".to_owned() };
    if arrival.exchanged {
        format!(
            "Skew (derived): {} ms a step from the first arrival at the exchange to the last, {share} of it; transfer {} ms.",
            ms(arrival.skew),
            ms(arrival.transfer)
        )
    } else {
        format!(
            "Skew (derived): {} ms a step between the fastest rank and the slowest, {share} of it.",
            ms(arrival.skew)
        )
    }
}

/// Each rank; and each node with several, but not all, ranks.
fn candidates(runs: &[&Run], arrival: &Arrival) -> Vec<StragglerCandidate> {
    let ranks = arrival.slowest.len();
    let nodes = nodes_of_ranks(runs, ranks);
    let mut all: Vec<StragglerCandidate> = (0..ranks)
        .map(|rank| StragglerCandidate {
            name: match nodes.as_ref().and_then(|nodes| nodes.get(rank)) {
                Some(node) => format!("rank {rank} on {node}"),
                None => format!("rank {rank}"),
            },
            times: arrival.slowest[rank],
            chance: 1.0 / ranks as f64,
            ranks: vec![rank],
            node: false,
        })
        .collect();
    let mut by_node: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (rank, node) in nodes.iter().flatten().enumerate() {
        by_node.entry(node).or_default().push(rank);
    }
    // A node with one rank is that rank, and one with all of them is never later than the others.
    for (node, of) in by_node.into_iter().filter(|(_, of)| of.len() > 1 && of.len() < ranks) {
        let names: Vec<String> = of.iter().map(usize::to_string).collect();
        all.push(StragglerCandidate {
            name: format!("node {node} (ranks {})", names.join(", ")),
            times: of.iter().map(|rank| arrival.slowest[*rank]).sum(),
            chance: of.len() as f64 / ranks as f64,
            ranks: of,
            node: true,
        });
    }
    all
}

/// The node of each rank; `None` unless it is known and the same in every run and attempt.
fn nodes_of_ranks(runs: &[&Run], ranks: usize) -> Option<Vec<String>> {
    let of = |part: &RunPart| -> Option<Vec<String>> {
        let hosts: Vec<String> = part.environment.as_ref()?.ranks.iter().map(|rank| rank.host.clone()).collect();
        (hosts.len() == ranks && hosts.iter().all(|host| !host.is_empty())).then_some(hosts)
    };
    let parts = runs.iter().filter(|run| run.completed()).flat_map(|run| &run.parts);
    let all: Vec<Vec<String>> = parts.map(of).collect::<Option<_>>()?;
    let first = all.first()?;
    all.iter().all(|hosts| hosts == first).then(|| first.clone())
}

/// Probability that something of probability `chance` happens at least `times` times in `steps`.
fn at_least(times: u64, steps: u64, chance: f64) -> f64 {
    match (times, Binomial::new(chance, steps)) {
        (0, _) | (_, Err(_)) => 1.0,
        (times, Ok(binomial)) => binomial.sf(times - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::at_least;

    #[test]
    fn the_probability_is_the_sum_of_the_terms() {
        // Sums of binomial terms, worked out with whole numbers.
        for (times, steps, chance, expected) in [
            (8, 10, 0.5, 0.0546875),
            (20, 60, 0.25, 0.092_484_270_561_278_38),
            (0, 5, 0.5, 1.0),
            (5, 5, 0.25, 0.000_976_562_5),
        ] {
            let p = at_least(times, steps, chance);
            assert!((p - expected).abs() < 1e-9, "{times} of {steps}: {p} is not {expected}");
        }
    }
}
