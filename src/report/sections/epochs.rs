//! Time per epoch of each variant, and the rate of its first epoch beside later ones.

use expctl_ledger::{MeasuredJob, Run};
use expctl_text::Table;
use expctl_text::format::{self, missing};
use serde_json::{Value, json};

use super::MAX_ROWS;
use crate::report::epoch_time::FirstEpoch;
use crate::report::variant_row::VariantRow;

/// Time per epoch of each variant, and the rate of the first epoch beside later ones: a table, and which of the two it has. `None` if no
/// epoch was timed whole and no config asks for epochs.
pub fn epochs(job: &MeasuredJob, rows: &[&VariantRow]) -> Option<Value> {
    let groups = job.by_label();
    let asked = |runs: &[&Run]| {
        let settings = &runs[0].trial.settings;
        settings.measure.epochs > 0 || settings.train.epochs > 0
    };
    if !rows.iter().any(|row| row.has_epochs()) && !groups.iter().any(|(_, runs)| asked(runs)) {
        return None;
    }
    let firsts: Vec<Option<FirstEpoch>> = groups.iter().map(|(_, runs)| FirstEpoch::from_runs(runs)).collect();
    let several = firsts.iter().any(Option::is_some);
    if !several && rows.iter().all(|row| row.epoch_time.is_none()) {
        return None;
    }
    let mut names = vec!["Variant", "Time per epoch (s)", "95 % (s)", "Epochs", "Figures"];
    if several {
        names.extend(["First epoch (samples/s)", "Later epochs (samples/s)", "First epoch × faster"]);
    }
    let columns = names.len();
    let mut table = Table::new(names).right([1].into_iter().chain(5..columns));
    for (row, first) in rows.iter().zip(&firsts) {
        let mut cells = epoch_cells(row);
        if several {
            cells.extend(first_epoch_cells(first.as_ref()));
        }
        table.row(cells);
    }
    let derived = rows.iter().any(|row| row.epoch_time.is_some_and(|time| !time.measured()));
    Some(json!({ "table": table.at_most(MAX_ROWS).markdown(), "derived": derived, "first": several }))
}

fn epoch_cells(row: &VariantRow) -> Vec<String> {
    let Some(time) = &row.epoch_time else {
        return std::iter::once(row.label.clone()).chain((0..4).map(|_| missing())).collect();
    };
    vec![
        row.label.clone(),
        format::rate(time.time_s.value),
        format::rate_interval(&time.time_s).unwrap_or_else(missing),
        if time.measured() { time.count() } else { missing() },
        time.class().to_owned(),
    ]
}

fn first_epoch_cells(first: Option<&FirstEpoch>) -> [String; 3] {
    let medians = first.and_then(FirstEpoch::medians);
    let ratio = first.and_then(FirstEpoch::ratio);
    [
        medians.map_or_else(missing, |(first, _)| format::rate(first)),
        medians.map_or_else(missing, |(_, later)| format::rate(later)),
        ratio.as_ref().map_or_else(missing, format::ratio_with_interval),
    ]
}
