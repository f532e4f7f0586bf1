use std::collections::BTreeSet;

use expctl_record::{Hardware, MeasuredJob, Run, Stage, StepRecord};

use super::Titled;
use super::straggler::stragglers;
use crate::report::Table;
use crate::report::arrival::Arrival;
use crate::report::figures::{measured, rank_rates, step_times};
use crate::report::format::{self, MISSING};
use crate::stats::median;

/// The ranks of each variant with a completed run.
pub fn ranks(job: &MeasuredJob) -> Vec<Titled> {
    job.by_label()
        .into_iter()
        .filter(|(_, runs)| runs.iter().any(|r| r.completed()))
        .map(|(label, runs)| {
            let completed: Vec<&Run> = runs.into_iter().filter(|run| run.completed()).collect();
            let arrival = Arrival::of(completed.iter().copied());
            let mut text = table(&completed, arrival.as_ref()).markdown();
            if let Some(arrival) = &arrival {
                let said = stragglers(&completed, arrival).into_iter().map(|line| format!("- {line}"));
                text.push_str(&format!("\n\n{}", said.collect::<Vec<_>>().join("\n")));
            }
            Titled { label, table: text, sentence: String::new() }
        })
        .collect()
}

fn table(runs: &[&Run], arrival: Option<&Arrival>) -> Table {
    let environments = || runs.iter().flat_map(|run| run.environments());
    let devices = environments().flat_map(|environment| &environment.ranks).any(|rank| rank.device.is_some());
    let mut names = vec!["Rank", "Node"];
    names.extend(devices.then_some("GPU"));
    names.extend([
        "it/s",
        "samples/s",
        "ms/step (median)",
        "slowest in",
        "Exposed allreduce (ms/step)",
        "for others (ms/step)",
        "Transfer (ms/step)",
    ]);
    let mut table = Table::new(names);
    let missing = || MISSING.to_owned();
    let exchange = arrival.filter(|arrival| arrival.exchanged);
    let ranks = runs.iter().map(|run| run.ranks.len()).max().unwrap_or(0);
    for rank in 0..ranks {
        let of_rank: Vec<&[StepRecord]> = runs.iter().filter_map(|r| r.ranks.get(rank)).map(Vec::as_slice).collect();
        let rates: Vec<_> = of_rank.iter().filter_map(|steps| rank_rates(steps)).collect();
        let over_runs = |values: Vec<f64>| median(&values).map_or_else(missing, format::rate);
        let steps = || of_rank.iter().flat_map(|steps| measured(steps));
        let n = steps().count();
        let waited: u64 = steps().map(|s| s.exposed[Stage::Allreduce]).sum();
        let happened = steps().any(|s| s.exposed[Stage::Allreduce] > 0 || s.busy[Stage::Allreduce] > 0);
        let place = [rank.to_string(), nodes(runs, rank)];
        let figures = [
            over_runs(rates.iter().map(|r| r.it_per_s).collect()),
            over_runs(rates.iter().map(|r| r.samples_per_s).collect()),
            step_times(steps()).map_or_else(missing, |t| format::milliseconds(t.median)),
            arrival.map_or_else(missing, |arrival| format::percent(arrival.share(rank))),
            if happened && n > 0 { format::milliseconds(waited as f64 / n as f64) } else { missing() },
            exchange.and_then(|a| a.waiting.get(rank)).map_or_else(missing, |ns| format::milliseconds(*ns)),
            exchange.map_or_else(missing, |arrival| format::milliseconds(arrival.transfer)),
        ];
        table.row(place.into_iter().chain(devices.then(|| gpus(runs, rank))).chain(figures));
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

/// Each of `words` once.
fn distinct(words: impl Iterator<Item = String>) -> String {
    let words: BTreeSet<String> = words.filter(|word| !word.is_empty()).collect();
    if words.is_empty() { MISSING.to_owned() } else { words.into_iter().collect::<Vec<_>>().join(", ") }
}
