use serde_json::{Value, json};

use crate::report::Table;
use crate::report::compare::{Row, measured_rows};
use crate::report::epoch_time::FirstEpoch;
use crate::report::format::{self, MISSING};
use expctl_record::{MeasuredJob, Run};

/// What an epoch takes each variant, and how fast the first epoch was beside the later ones: a table, and what its text needs to
/// explain. None where no epoch was timed whole and no config asks for epochs.
pub fn epochs(job: &MeasuredJob) -> Option<Value> {
    let groups = job.by_label();
    let rows = measured_rows(job);
    let asked = |runs: &[&Run]| {
        let settings = &runs[0].trial.settings;
        settings.measure.epochs > 0 || settings.train.epochs > 0
    };
    if !rows.iter().any(Row::has_epochs) && !groups.iter().any(|(_, runs)| asked(runs)) {
        return None;
    }
    let firsts: Vec<Option<FirstEpoch>> = groups.iter().map(|(_, runs)| FirstEpoch::of(runs)).collect();
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
        let mut cells = of_row(row);
        if several {
            cells.extend(of_first(first.as_ref()));
        }
        table.row(cells);
    }
    let derived = rows.iter().any(|row| row.epoch_time.is_some_and(|time| !time.measured()));
    Some(json!({ "table": table.markdown(), "derived": derived, "first": several }))
}

fn missing() -> String {
    MISSING.to_owned()
}

fn of_row(row: &Row) -> Vec<String> {
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

fn of_first(first: Option<&FirstEpoch>) -> [String; 3] {
    let medians = first.and_then(FirstEpoch::medians);
    let ratio = first.and_then(FirstEpoch::ratio);
    [
        medians.map_or_else(missing, |(first, _)| format::rate(first)),
        medians.map_or_else(missing, |(_, later)| format::rate(later)),
        ratio.as_ref().map_or_else(missing, format::ratio_with_interval),
    ]
}
