use expctl_record::{MeasuredJob, Stage};
use serde_json::{Value, json};

use crate::report::Table;
use crate::report::compare::{Row, measured_rows, samples_ratio};
use crate::report::figures::{Breakdown, completed_steps};
use crate::report::format::{self, MISSING};
use crate::report::worlds::{Scaled, World, crowded, scaled};
use crate::stats::Ratio;

/// What more ranks bring each variant: a table, and a sentence for each row whose figures say nothing. None where no variant ran on
/// several numbers of ranks.
pub fn scaling(job: &MeasuredJob) -> Option<Value> {
    let all = scaled(job);
    if all.is_empty() {
        return None;
    }
    let rows = measured_rows(job);
    let names = ["Variant", "Ranks", "n", "samples/s", "Speed-up", "Efficiency", "Exposed allreduce"];
    let mut table = Table::new(names).right(1..names.len());
    let mut crowds = Vec::new();
    for Scaled { label, worlds } in &all {
        let Some(base) = row_of(&rows, &worlds[0]) else { continue };
        for (i, world) in worlds.iter().enumerate() {
            let Some(row) = row_of(&rows, world) else { continue };
            let crowd = crowded(job, &world.runs);
            let mark = if crowd.is_some() { " ⚠" } else { "" };
            let (speed_up, _, _) = samples_ratio(row, base);
            let efficiency = speed_up.map(|ratio| efficiency(&ratio, worlds[0].ranks, world.ranks));
            let (first, missing) = (i == 0, || MISSING.to_owned());
            table.row([
                label.clone(),
                world.ranks.to_string(),
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
                Breakdown::of(completed_steps(&world.runs))
                    .and_then(|b| allreduce(&b))
                    .map_or_else(missing, format::percent),
            ]);
            crowds.extend(crowd.map(|crowd| format!("{label}: {crowd}")));
        }
    }
    Some(json!({ "table": table.markdown(), "crowded": crowds }))
}

fn row_of<'a>(rows: &'a [Row], world: &World<'_>) -> Option<&'a Row> {
    let label = world.runs[0].trial.label();
    rows.iter().find(|row| row.label == label)
}

/// Speed-up over how many times as many ranks there are.
fn efficiency(speed_up: &Ratio, fewest: u32, ranks: u32) -> Ratio {
    let share = f64::from(fewest) / f64::from(ranks);
    let interval = speed_up.interval.map(|i| crate::stats::Interval { low: i.low * share, high: i.high * share });
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

/// Share of the step that waits for the exchange of gradients; none where there is none.
fn allreduce(breakdown: &Breakdown) -> Option<f64> {
    let (_, waited) = breakdown.exposed.iter().find(|(stage, _)| *stage == Stage::Allreduce)?;
    waited.filter(|_| breakdown.wall > 0.0).map(|ns| ns / breakdown.wall)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Interval;

    #[test]
    fn efficiency_is_speed_up_over_ranks() {
        let speed_up = Ratio { value: 3.0, interval: Some(Interval { low: 2.8, high: 3.2 }), p: Some(0.01) };
        assert_eq!(in_percent(&efficiency(&speed_up, 2, 8)), "75.0 % [70.0–80.0]");
        assert_eq!(in_percent(&efficiency(&Ratio { interval: None, ..speed_up }, 1, 4)), "75.0 %");
    }
}
