use expctl_record::{MeasuredJob, Run, Validation};

use super::figures::{At, Learned, learned};
use super::with_epochs;
use crate::report::Table;
use crate::report::format::{self, MISSING};
use crate::stats::median;

/// A figure over the validation set, by name.
type Figure = (&'static str, fn(&Validation) -> Option<f64>);

const FIGURES: [Figure; 4] =
    [("Loss", |v| Some(v.loss)), ("Pearson", |v| v.pearson), ("Spearman", |v| v.spearman), ("MSE", |v| Some(v.mse))];

/// Every run, at its best and at its last validated epoch.
pub(super) fn runs(job: &MeasuredJob) -> Table {
    let mut header: Vec<String> =
        ["Variant", "Repeat", "Epochs", "Train loss, first → last", "Epoch"].map(str::to_owned).to_vec();
    header.extend(FIGURES.map(|(name, _)| name.to_owned()));
    header.extend(["Validated on", "Ended"].map(str::to_owned));
    let mut table = Table::new(header).right([1, 2, 5, 6, 7, 8, 9]);
    for (label, runs) in with_epochs(job) {
        for run in runs {
            let Some(learned) = learned(&run.learning) else { continue };
            table.row(row(&label, run, &learned, learned.best.as_ref(), "best"));
            table.row(row(&label, run, &learned, Some(&learned.last), "last"));
        }
    }
    table
}

fn row(label: &str, run: &Run, learned: &Learned<'_>, at: Option<&At<'_>>, which: &str) -> Vec<String> {
    let ended = if learned.stopped {
        "early"
    } else if run.completed() {
        "as planned"
    } else {
        run.state.name()
    };
    let losses = format!("{} → {}", format::figure(learned.first_loss), format::figure(learned.last_loss));
    let mut row = vec![
        label.to_owned(),
        run.trial.repeat.to_string(),
        learned.epochs.to_string(),
        losses,
        at.map_or_else(|| format!("{which}, {MISSING}"), |at| format!("{which}, {}", at.epoch)),
    ];
    let validation = at.and_then(|at| at.validation);
    row.extend(FIGURES.map(|(_, of)| validation.and_then(of).map_or_else(missing, format::figure)));
    row.push(validation.map_or_else(missing, |v| format::thousands(v.samples)));
    row.push(ended.to_owned());
    row
}

/// Medians over the completed runs of each variant at their best epochs, with the range; none where no variant has two.
pub(super) fn medians(job: &MeasuredJob) -> Option<Table> {
    let mut header = vec!["Variant".to_owned(), "n".to_owned(), "Best epoch".to_owned()];
    header.extend(FIGURES.map(|(name, _)| name.to_owned()));
    let mut table = Table::new(header).right([1]);
    let mut several = false;
    for (label, runs) in with_epochs(job) {
        let best: Vec<At<'_>> =
            runs.iter().filter(|run| run.completed()).filter_map(|run| learned(&run.learning)?.best).collect();
        several |= best.len() > 1;
        let mut row = vec![label, best.len().to_string()];
        let epochs: Vec<f64> = best.iter().map(|at| at.epoch as f64).collect();
        row.push(over(&epochs, best.len(), format::rate));
        row.extend(FIGURES.map(|(_, of)| {
            let values: Vec<f64> = best.iter().filter_map(|at| at.validation.and_then(of)).collect();
            over(&values, best.len(), format::figure)
        }));
        table.row(row);
    }
    several.then_some(table)
}

/// `0.52 [0.49–0.55]`; `0.52 [0.49–0.55] (2 of 3)` where a run has no such figure.
fn over(values: &[f64], runs: usize, shown: fn(f64) -> String) -> String {
    let Some(middle) = median(values) else { return missing() };
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let range = format!("{} [{}–{}]", shown(middle), shown(low), shown(high));
    format::of_runs(range, values.len(), runs)
}

fn missing() -> String {
    MISSING.to_owned()
}
