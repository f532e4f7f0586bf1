//! What more ranks bring: rows of a job that differ in the number of ranks alone.

use std::collections::BTreeMap;

use expctl_ledger::{MeasuredJob, Run, Stage};
use expctl_stats::{Interval, Ratio};
use expctl_text::Table;
use expctl_text::format::{self, MISSING};
use serde_json::{Value, json};

use super::breakdown::Breakdown;
use super::line::samples_ratio;
use super::rates::{all_rates, completed_steps};
use super::sections::MAX_ROWS;
use super::variant_row::VariantRow;

/// A variant at one point of the other swept settings, on several numbers of ranks.
pub struct ScaledVariant<'a> {
    /// The variant with its swept settings besides the ranks.
    pub label: String,
    /// By number of ranks, the fewest first; at least two.
    pub sizes: Vec<WorldSize<'a>>,
}

/// A number of ranks with its runs.
pub struct WorldSize<'a> {
    /// Processes of a trial.
    pub ranks: u32,
    /// The runs, one of them or more with rates.
    pub runs: Vec<&'a Run>,
}

/// The variants of a job that ran on several numbers of ranks.
pub fn scaled_variants(job: &MeasuredJob) -> Vec<ScaledVariant<'_>> {
    let with_nodes = nodes_follow_ranks(job);
    let mut all: Vec<ScaledVariant<'_>> = Vec::new();
    let mut index_by_label: BTreeMap<String, usize> = BTreeMap::new();
    for (_, runs) in job.by_label() {
        if all_rates(&runs).is_empty() {
            continue;
        }
        let mut trial = runs[0].trial.clone();
        trial.point.remove("launch.ranks");
        if with_nodes {
            trial.point.remove("launch.nodes");
        }
        let (label, size) = (trial.label(), WorldSize { ranks: trial.settings.launch.ranks, runs });
        match index_by_label.get(&label) {
            Some(index) => all[*index].sizes.push(size),
            None => {
                index_by_label.insert(label.clone(), all.len());
                all.push(ScaledVariant { label, sizes: vec![size] });
            }
        }
    }
    all.iter_mut().for_each(|scaled| scaled.sizes.sort_by_key(|size| size.ranks));
    all.retain(|scaled| scaled.sizes.len() > 1);
    all
}

/// Whether the number of nodes follows from the number of ranks, so that it is no swept setting of its own.
fn nodes_follow_ranks(job: &MeasuredJob) -> bool {
    let mut nodes: BTreeMap<u32, &Value> = BTreeMap::new();
    job.runs.iter().all(|run| match run.trial.point.get("launch.nodes") {
        Some(of) => *nodes.entry(run.trial.settings.launch.ranks).or_insert(of) == of,
        None => true,
    })
}

/// A node with more ranks than processors: `4 ranks on node1, which has 2 processors`. `None` for jobs of Slurm, which assigns processors.
pub fn crowded_nodes(job: &MeasuredJob, runs: &[&Run]) -> Option<String> {
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
        let processors = format::count(cpus.into(), "processor");
        Some(format!("{ranks} ranks on {host}, which has {processors}"))
    })
}

/// Speed-up and efficiency of each variant: a table, and a sentence for each crowded node. `None` if no variant ran on several numbers of
/// ranks.
pub fn scaling(job: &MeasuredJob, rows: &[&VariantRow]) -> Option<Value> {
    let all = scaled_variants(job);
    if all.is_empty() {
        return None;
    }
    let names = ["Variant", "Ranks", "n", "samples/s", "Speed-up", "Efficiency", "Exposed allreduce"];
    let mut table = Table::new(names).right(1..names.len());
    let mut crowds = Vec::new();
    for ScaledVariant { label, sizes } in &all {
        let Some(base) = row_of(rows, &sizes[0]) else { continue };
        for (i, size) in sizes.iter().enumerate() {
            let Some(row) = row_of(rows, size) else { continue };
            let crowd = crowded_nodes(job, &size.runs);
            let mark = if crowd.is_some() { " ⚠" } else { "" };
            let (speed_up, _, _) = samples_ratio(row, base);
            let efficiency = speed_up.map(|ratio| efficiency(&ratio, sizes[0].ranks, size.ranks));
            let (first, missing) = (i == 0, || MISSING.to_owned());
            table.row([
                label.clone(),
                size.ranks.to_string(),
                row.n.to_string(),
                row.median_samples_per_s().map_or_else(missing, format::rate),
                match speed_up {
                    Some(ratio) if !first => format::ratio_with_interval(&ratio),
                    _ => missing(),
                },
                match efficiency {
                    Some(share) if !first => format!("{}{mark}", in_percent(&share)),
                    _ => missing(),
                },
                Breakdown::from_steps(completed_steps(&size.runs))
                    .and_then(|b| allreduce(&b))
                    .map_or_else(missing, format::percent),
            ]);
            crowds.extend(crowd.map(|crowd| format!("{label}: {crowd}")));
        }
    }
    Some(json!({ "table": table.at_most(MAX_ROWS).markdown(), "crowded": crowds }))
}

fn row_of<'a>(rows: &[&'a VariantRow], size: &WorldSize<'_>) -> Option<&'a VariantRow> {
    let label = size.runs[0].trial.label();
    rows.iter().copied().find(|row| row.label == label)
}

/// Speed-up over the factor of ranks.
fn efficiency(speed_up: &Ratio, fewest: u32, ranks: u32) -> Ratio {
    let share = f64::from(fewest) / f64::from(ranks);
    let interval = speed_up.interval.map(|i| Interval { low: i.low * share, high: i.high * share });
    Ratio { value: speed_up.value * share, interval, p: None }
}

/// `87.3 % [85.0–89.6]`.
fn in_percent(share: &Ratio) -> String {
    let shown = |share: f64| format::round(share * 100.0, 1);
    match share.interval {
        Some(i) => format!("{} % [{}–{}]", shown(share.value), shown(i.low), shown(i.high)),
        None => format!("{} %", shown(share.value)),
    }
}

/// Share of the step that waits for the exchange of gradients; `None` without one.
fn allreduce(breakdown: &Breakdown) -> Option<f64> {
    let (_, waited) = breakdown.exposed.iter().find(|(stage, _)| *stage == Stage::Allreduce)?;
    waited.filter(|_| breakdown.wall > 0.0).map(|ns| ns / breakdown.wall)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Interval;

    #[test]
    fn efficiency_is_speed_up_over_ranks() {
        let speed_up = Ratio { value: 3.0, interval: Some(Interval { low: 2.8, high: 3.2 }), p: Some(0.01) };
        assert_eq!(in_percent(&efficiency(&speed_up, 2, 8)), "75.0 % [70.0–80.0]");
        assert_eq!(in_percent(&efficiency(&Ratio { interval: None, ..speed_up }, 1, 4)), "75.0 %");
    }
}
