//! What training reached: validation figures by epoch, best epochs, and their medians over runs.

use expctl_ledger::{LearningRecord, MeasuredJob, Run, Validation};
use expctl_stats::median;
use expctl_text::Table;
use expctl_text::format::{self, MISSING, missing};
use minijinja::{Value, context};
use serde::Serialize;

use super::sections::{MAX_ROWS, MAX_RUN_ROWS};

/// Loss and validation figures of one epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpochFigures<'a> {
    /// The epoch, from 1.
    pub epoch: u64,
    /// Mean training loss of the epoch.
    pub train_loss: f64,
    /// Validation figures, if it was validated.
    pub validation: Option<&'a Validation>,
}

/// First, best and last epoch of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Learned<'a> {
    /// Epochs done.
    pub epochs: u64,
    /// Training loss of the first epoch.
    pub first_loss: f64,
    /// The best epoch by the monitored figure; `None` if no validated epoch is marked as best.
    pub best: Option<EpochFigures<'a>>,
    /// The last validated epoch; without validation, the last epoch.
    pub last: EpochFigures<'a>,
    /// Training loss of the last epoch.
    pub last_loss: f64,
    /// Whether early stopping ended it.
    pub stopped: bool,
}

/// Summary of all epochs of a run; `None` without epochs.
pub fn learned(records: &[LearningRecord]) -> Option<Learned<'_>> {
    let (first, end) = (records.first()?, records.last()?);
    let last = records.iter().rev().find(|record| record.validation.is_some()).unwrap_or(end);
    // With NaN figures no epoch is marked as best, and then none is.
    let best = records.iter().rev().find(|record| record.best && record.validation.is_some());
    Some(Learned {
        epochs: end.epoch + 1,
        first_loss: first.train_loss,
        best: best.map(epoch_figures),
        last: epoch_figures(last),
        last_loss: end.train_loss,
        stopped: end.stopped,
    })
}

fn epoch_figures(record: &LearningRecord) -> EpochFigures<'_> {
    EpochFigures { epoch: record.epoch + 1, train_loss: record.train_loss, validation: record.validation.as_ref() }
}

/// Values for the template of a note; `None` if no run has epochs. `plot`: link to the curves.
pub fn learning(job: &MeasuredJob, plot: &str) -> Option<Value> {
    if !has_learning(job) {
        return None;
    }
    Some(context! {
        runs => runs_table(job).at_most(MAX_RUN_ROWS).markdown(),
        medians => medians_table(job).map(|table| table.at_most(MAX_ROWS).markdown()),
        plot,
    })
}

/// Whether a run has epochs.
pub fn has_learning(job: &MeasuredJob) -> bool {
    job.runs.iter().any(|run| !run.learning.is_empty())
}

/// Runs with epochs by label, in the order of their first trial.
fn with_epochs(job: &MeasuredJob) -> Vec<(String, Vec<&Run>)> {
    let mut groups = job.by_label();
    for (_, runs) in &mut groups {
        runs.retain(|run| !run.learning.is_empty());
    }
    groups.retain(|(_, runs)| !runs.is_empty());
    groups
}

/// Name of a validation figure, and how to read it.
type ValidationFigure = (&'static str, fn(&Validation) -> Option<f64>);

const FIGURES: [ValidationFigure; 4] =
    [("Loss", |v| Some(v.loss)), ("Pearson", |v| v.pearson), ("Spearman", |v| v.spearman), ("MSE", |v| Some(v.mse))];

/// Every run at its best and at its last validated epoch.
fn runs_table(job: &MeasuredJob) -> Table {
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

fn row(label: &str, run: &Run, learned: &Learned<'_>, at: Option<&EpochFigures<'_>>, which: &str) -> Vec<String> {
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

/// Medians with ranges over the completed runs of each variant at their best epochs; `None` if no variant has two.
fn medians_table(job: &MeasuredJob) -> Option<Table> {
    let mut header = vec!["Variant".to_owned(), "n".to_owned(), "Best epoch".to_owned()];
    header.extend(FIGURES.map(|(name, _)| name.to_owned()));
    let mut table = Table::new(header).right([1]);
    let mut several = false;
    for (label, runs) in with_epochs(job) {
        let best: Vec<EpochFigures<'_>> =
            runs.iter().filter(|run| run.completed()).filter_map(|run| learned(&run.learning)?.best).collect();
        several |= best.len() > 1;
        let mut row = vec![label, best.len().to_string()];
        let epochs: Vec<f64> = best.iter().map(|at| at.epoch as f64).collect();
        row.push(median_with_range(&epochs, best.len(), format::rate));
        row.extend(FIGURES.map(|(_, of)| {
            let values: Vec<f64> = best.iter().filter_map(|at| at.validation.and_then(of)).collect();
            median_with_range(&values, best.len(), format::figure)
        }));
        table.row(row);
    }
    several.then_some(table)
}

/// `0.52 [0.49–0.55]`; `0.52 [0.49–0.55] (2 of 3)` if a run has no such figure.
fn median_with_range(values: &[f64], runs: usize, shown: fn(f64) -> String) -> String {
    let Some(middle) = median(values) else { return missing() };
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let range = format!("{} [{}–{}]", shown(middle), shown(low), shown(high));
    format::with_run_count(range, values.len(), runs)
}

/// Validation figures of the completed runs of a row at their best epochs, a value for each run that has one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Learning {
    /// Best epochs, from 1.
    pub best_epoch: Vec<u64>,
    /// Loss over the validation set.
    pub validation_loss: Vec<f64>,
    /// Pearson's correlation over it.
    pub pearson: Vec<f64>,
    /// Spearman's.
    pub spearman: Vec<f64>,
    /// Mean squared error over it.
    pub mse: Vec<f64>,
}

impl Learning {
    /// Figures of the completed runs; `None` if no run was validated.
    pub fn from_runs(runs: &[&Run]) -> Option<Self> {
        let completed = runs.iter().filter(|run| run.completed());
        let best: Vec<(u64, &Validation)> = completed
            .filter_map(|run| {
                let best = learned(&run.learning)?.best?;
                Some((best.epoch, best.validation?))
            })
            .collect();
        if best.is_empty() {
            return None;
        }
        let of = |which: fn(&Validation) -> Option<f64>| best.iter().filter_map(|(_, v)| which(v)).collect();
        Some(Self {
            best_epoch: best.iter().map(|(epoch, _)| *epoch).collect(),
            validation_loss: of(|v| Some(v.loss)),
            pearson: of(|v| v.pearson),
            spearman: of(|v| v.spearman),
            mse: of(|v| Some(v.mse)),
        })
    }

    /// Medians over the runs as text, marked if not all runs have the figure.
    pub fn shown(&self) -> [String; 3] {
        let all = [&self.pearson, &self.spearman, &self.mse];
        all.map(|values| {
            let shown = median(values).map(format::figure);
            let shown = shown.map(|shown| format::with_run_count(shown, values.len(), self.best_epoch.len()));
            shown.unwrap_or_else(|| MISSING.to_owned())
        })
    }

    /// Medians over the runs, by column.
    pub fn columns(&self) -> [(&'static str, Option<f64>); 3] {
        [("Pearson", median(&self.pearson)), ("Spearman", median(&self.spearman)), ("MSE", median(&self.mse))]
    }
}

/// Columns of [`Learning::columns`].
pub const LEARNING_COLUMNS: [&str; 3] = ["Pearson", "Spearman", "MSE"];

#[cfg(test)]
mod tests {
    use super::*;

    fn record(epoch: u64, pearson: Option<f64>, best: bool) -> LearningRecord {
        let validation = pearson.map(|p| Validation { pearson: Some(p), ..Validation::default() });
        LearningRecord { epoch, train_loss: 1.0 / (epoch + 1) as f64, validation, best, ..LearningRecord::default() }
    }

    #[test]
    fn the_best_epoch_is_the_last_that_was_called_so() {
        let records = [
            record(0, Some(0.1), true),
            record(1, Some(0.4), true),
            record(2, Some(0.3), false),
            record(3, None, false),
        ];
        let found = learned(&records).unwrap();
        assert_eq!((found.epochs, found.best.unwrap().epoch, found.last.epoch), (4, 2, 3));
        assert_eq!((found.first_loss, found.last_loss), (1.0, 0.25));
        assert_eq!(learned(&[record(0, None, false)]).unwrap().best, None);
        assert_eq!(learned(&[record(0, Some(0.1), false)]).unwrap().best, None);
        assert_eq!(learned(&[]), None);
    }
}
