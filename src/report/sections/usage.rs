use expctl_record::RemoteCounts;

use crate::ledger::{MeasuredJob, Run};
use crate::report::Table;
use crate::report::format::{self, MISSING};

/// What each variant took beside time: memory, and of remote files what came from servers and from the cache. None where no run says
/// any of it.
pub fn usage(job: &MeasuredJob) -> Option<Table> {
    let groups: Vec<(String, Vec<&Run>)> = job
        .by_label()
        .into_iter()
        .map(|(label, runs)| (label, runs.into_iter().filter(|run| run.completed()).collect()))
        .collect();
    let runs = || groups.iter().flat_map(|(_, runs)| runs.iter().copied());
    let remote = runs().any(|run| fetched(run).is_some());
    if !remote && runs().all(|run| peak(run).is_none()) {
        return None;
    }
    let names = ["Variant", "Peak memory of a rank"].into_iter();
    let of_remote = ["Requests", "Repeated", "From servers", "From the cache", "Of its blocks there"];
    let names: Vec<&str> = names.chain(of_remote.into_iter().filter(|_| remote)).collect();
    let columns = names.len();
    let mut table = Table::new(names).right(1..columns);
    for (label, runs) in &groups {
        let most = runs.iter().filter_map(|run| peak(run)).max();
        let mut cells = vec![label.clone(), most.map_or_else(missing, |n| format::bytes(n as f64))];
        if remote {
            let all: Vec<RemoteCounts> = runs.iter().filter_map(|run| fetched(run)).collect();
            cells.extend(figures(&all));
        }
        table.row(cells);
    }
    Some(table)
}

fn missing() -> String {
    MISSING.to_owned()
}

/// The most memory that a rank of `run` had: resident in one of ours, what it says itself of a program.
fn peak(run: &Run) -> Option<u64> {
    let said = || run.environment.as_ref()?.program.as_ref()?.peak_memory_bytes;
    run.usage.iter().filter_map(|rank| rank.peak_resident_bytes).max().or_else(said)
}

/// What the ranks of `run` fetched, summed; none where all files were local.
fn fetched(run: &Run) -> Option<RemoteCounts> {
    run.usage.iter().filter_map(|rank| rank.remote).reduce(RemoteCounts::plus)
}

/// Means over runs; the share of the cache of all of them.
fn figures(runs: &[RemoteCounts]) -> [String; 5] {
    let Some(all) = runs.iter().copied().reduce(RemoteCounts::plus) else { return std::array::from_fn(|_| missing()) };
    let mean = |sum: u64| sum as f64 / runs.len() as f64;
    let count = |sum: u64| format::thousands(mean(sum).round() as u64);
    let looked_for = all.hits + all.misses;
    [
        count(all.requests),
        count(all.retries),
        format::bytes(mean(all.remote_bytes)),
        if looked_for > 0 { format::bytes(mean(all.cache_bytes)) } else { missing() },
        if looked_for > 0 { format::percent(all.hits as f64 / looked_for as f64) } else { missing() },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetches_are_means_over_runs() {
        let one = RemoteCounts { requests: 100, retries: 4, remote_bytes: 2_000_000, ..RemoteCounts::default() };
        let other = RemoteCounts { requests: 301, remote_bytes: 4_000_000, ..RemoteCounts::default() };
        assert_eq!(figures(&[one, other]), ["201", "2", "3 MB", MISSING, MISSING]);
        let cached = RemoteCounts { hits: 3, misses: 1, cache_bytes: 5_000_000, ..one };
        assert_eq!(figures(&[cached]), ["100", "4", "2 MB", "5 MB", "75.0 %"]);
        assert_eq!(figures(&[]), [MISSING; 5]);
    }
}
