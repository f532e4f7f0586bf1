use std::collections::BTreeSet;

use expctl_record::{Stage, StepRecord};

use super::Titled;
use crate::ledger::{MeasuredJob, Run};
use crate::report::Table;
use crate::report::figures::{measured, rank_rates, slowest_shares, step_times};
use crate::report::format::{self, MISSING};
use crate::stats::median;

/// The ranks of each variant with a completed run.
pub fn ranks(job: &MeasuredJob) -> Vec<Titled> {
    job.by_label()
        .into_iter()
        .filter(|(_, runs)| runs.iter().any(|r| r.completed()))
        .map(|(label, runs)| Titled { label, table: table(&runs).markdown(), sentence: String::new() })
        .collect()
}

fn table(runs: &[&Run]) -> Table {
    let mut table = Table::new([
        "Rank",
        "Node",
        "it/s",
        "samples/s",
        "ms/step (median)",
        "slowest in",
        "Exposed allreduce (ms/step)",
    ]);
    let runs: Vec<&Run> = runs.iter().copied().filter(|r| r.completed()).collect();
    let missing = || MISSING.to_owned();
    let shares = slowest_shares(&runs);
    for (rank, share) in shares.iter().enumerate() {
        let of_rank: Vec<&[StepRecord]> = runs.iter().filter_map(|r| r.ranks.get(rank)).map(Vec::as_slice).collect();
        let rates: Vec<_> = of_rank.iter().filter_map(|steps| rank_rates(steps)).collect();
        let over_runs = |values: Vec<f64>| median(&values).map_or_else(missing, format::rate);
        let steps = || of_rank.iter().flat_map(|steps| measured(steps));
        let n = steps().count();
        let waited: u64 = steps().map(|s| s.exposed[Stage::Allreduce]).sum();
        let happened = steps().any(|s| s.exposed[Stage::Allreduce] > 0 || s.busy[Stage::Allreduce] > 0);
        table.row([
            rank.to_string(),
            nodes(&runs, rank),
            over_runs(rates.iter().map(|r| r.it_per_s).collect()),
            over_runs(rates.iter().map(|r| r.samples_per_s).collect()),
            step_times(steps()).map_or_else(missing, |t| format::milliseconds(t.median)),
            if shares.len() > 1 { format::percent(*share) } else { missing() },
            if happened && n > 0 { format::milliseconds(waited as f64 / n as f64) } else { missing() },
        ]);
    }
    table
}

/// Nodes that a rank ran on over all runs.
fn nodes(runs: &[&Run], rank: usize) -> String {
    let hosts = runs.iter().filter_map(|r| Some(r.environment.as_ref()?.ranks.get(rank)?.host.as_str()));
    let hosts: BTreeSet<&str> = hosts.filter(|h| !h.is_empty()).collect();
    if hosts.is_empty() { MISSING.to_owned() } else { hosts.into_iter().collect::<Vec<_>>().join(", ") }
}
