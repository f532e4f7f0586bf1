use expctl_record::{Run, Validation};
use serde::Serialize;

use crate::report::format::{self, MISSING};
use crate::report::learned;
use crate::stats::median;

/// What the completed runs of a row had learned at their best epochs, a value for each run that has one.
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
    /// Of the completed runs; none if none of them was validated.
    pub(super) fn of(runs: &[&Run]) -> Option<Self> {
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

    /// The same as text; a figure that not all runs have says so.
    pub(super) fn shown(&self) -> [String; 3] {
        let all = [&self.pearson, &self.spearman, &self.mse];
        all.map(|values| {
            let shown = median(values).map(format::figure);
            let shown = shown.map(|shown| format::of_runs(shown, values.len(), self.best_epoch.len()));
            shown.unwrap_or_else(|| MISSING.to_owned())
        })
    }

    /// Columns of a table, each with its median over the runs.
    pub(super) fn columns(&self) -> [(&'static str, Option<f64>); 3] {
        [("Pearson", median(&self.pearson)), ("Spearman", median(&self.spearman)), ("MSE", median(&self.mse))]
    }
}

/// The columns that [`Learning::columns`] fills.
pub(super) const COLUMNS: [&str; 3] = ["Pearson", "Spearman", "MSE"];
