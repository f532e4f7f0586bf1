use expctl_record::Validation;

use super::figures::{At, Learned, learned};
use super::with_epochs;
use crate::ledger::{MeasuredJob, Run};
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
            table.row(row(&label, run, &learned, &learned.best, "best"));
            table.row(row(&label, run, &learned, &learned.last, "last"));
        }
    }
    table
}

fn row(label: &str, run: &Run, learned: &Learned<'_>, at: &At<'_>, which: &str) -> Vec<String> {
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
        format!("{which}, {}", at.epoch),
    ];
    row.extend(FIGURES.map(|(_, of)| at.validation.and_then(of).map_or_else(missing, format::figure)));
    row.push(at.validation.map_or_else(missing, |v| format::thousands(v.samples)));
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
            runs.iter().filter(|run| run.completed()).filter_map(|run| Some(learned(&run.learning)?.best)).collect();
        several |= best.len() > 1;
        let mut row = vec![label, best.len().to_string()];
        row.push(over(&best.iter().map(|at| at.epoch as f64).collect::<Vec<_>>(), format::rate));
        row.extend(FIGURES.map(|(_, of)| {
            over(&best.iter().filter_map(|at| at.validation.and_then(of)).collect::<Vec<_>>(), format::figure)
        }));
        table.row(row);
    }
    several.then_some(table)
}

/// `0.52 [0.49–0.55]`.
fn over(values: &[f64], shown: fn(f64) -> String) -> String {
    let Some(middle) = median(values) else { return missing() };
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{} [{}–{}]", shown(middle), shown(low), shown(high))
}

fn missing() -> String {
    MISSING.to_owned()
}
