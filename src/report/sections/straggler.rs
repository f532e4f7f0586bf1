use std::collections::BTreeMap;

use statrs::distribution::{Binomial, DiscreteCDF};

use crate::report::arrival::Arrival;
use crate::report::format;
use crate::stats::{ALPHA, holm};
use expctl_record::{Run, RunPart};

/// Skew below which it does not matter who is late, as a share of the step.
const SKEW_LIMIT: f64 = 0.01;

/// Some ranks that may be late together, with how often one of them was the slowest.
struct Suspect {
    name: String,
    times: u64,
    /// How often chance alone would make one of them the slowest.
    chance: f64,
    /// The ranks.
    ranks: Vec<usize>,
    /// True for all ranks of a node.
    node: bool,
}

impl Suspect {
    /// True if this is the node of that rank.
    fn holds(&self, rank: &Self) -> bool {
        self.node && !rank.node && rank.ranks.iter().all(|rank| self.ranks.contains(rank))
    }
}

/// Who is late, and what that costs; what the skew is, where nobody in particular is late.
///
/// A rank or a node is called a straggler where it is the slowest in more of the steps than chance allows: the binomial test that
/// each rank is as likely, corrected by Holm for the number of ranks and nodes. Steps that follow each other are alike, so the test
/// finds too much rather than too little; a skew below 1 % of the step is not worth a word and gets none.
///
/// Source: W. J. Conover, *Practical Nonparametric Statistics*, 3rd ed. 1999, section 3.1 (binomial test).
pub(super) fn stragglers(runs: &[&Run], arrival: &Arrival) -> Vec<String> {
    let mut said = vec![skew(arrival)];
    if arrival.skew < SKEW_LIMIT * arrival.wall || arrival.decided == 0 {
        return said;
    }
    let suspects = suspects(runs, arrival);
    let p: Vec<f64> = suspects.iter().map(|s| at_least(s.times, arrival.decided, s.chance)).collect();
    let mut late: Vec<(&Suspect, f64)> = suspects.iter().zip(holm(&p)).filter(|(_, p)| *p < ALPHA).collect();
    // Where several ranks of a node are late, the node is; where one is, it is that rank. What other nodes do says nothing of it.
    let of_one = |node: &Suspect| late.iter().any(|(rank, _)| node.holds(rank) && 2 * rank.times > node.times);
    let named: Vec<bool> = late
        .iter()
        .map(|(suspect, _)| match suspect.node {
            true => !of_one(suspect),
            false => late.iter().filter(|(node, _)| node.holds(suspect)).all(|(node, _)| of_one(node)),
        })
        .collect();
    let mut named = named.into_iter();
    late.retain(|_| named.next().unwrap_or(true));
    for (suspect, p) in late {
        let share = suspect.times as f64 / arrival.decided as f64;
        let p = if p < 0.0001 { "p < 0.0001".to_owned() } else { format!("p = {}", format::figure(p)) };
        said.push(format!(
            "Straggler: {} is the slowest in {} of {} steps, where chance gives {} ({p}, binomial, Holm); see what else runs there, how its clocks \
             are set, and whether it reads farther away.",
            suspect.name,
            format::percent(share),
            arrival.decided,
            format::percent(suspect.chance)
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

/// Each rank; and each node that holds some of the ranks, the same in every run.
fn suspects(runs: &[&Run], arrival: &Arrival) -> Vec<Suspect> {
    let ranks = arrival.slowest.len();
    let nodes = nodes(runs, ranks);
    let mut all: Vec<Suspect> = (0..ranks)
        .map(|rank| Suspect {
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
        all.push(Suspect {
            name: format!("node {node} (ranks {})", names.join(", ")),
            times: of.iter().map(|rank| arrival.slowest[*rank]).sum(),
            chance: of.len() as f64 / ranks as f64,
            ranks: of,
            node: true,
        });
    }
    all
}

/// The node of each rank; none if that is not known of all, or not the same in every run and in every attempt of a run.
fn nodes(runs: &[&Run], ranks: usize) -> Option<Vec<String>> {
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
