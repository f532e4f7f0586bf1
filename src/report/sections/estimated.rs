//! Rates by published estimators, beside the measured ones.

use expctl_ledger::{MeasuredJob, Rates, Run};
use expctl_settings::Estimator;
use expctl_stats::median;
use expctl_text::Table;
use expctl_text::format::{self, MISSING};

use super::{MAX_ROWS, TitledTable};
use crate::report::rates::{all_rates, estimated_rates};

/// Sentence for steps without a copy to a device.
const NO_COPY: &str = " No copy to a device was made here; the published figure was the rate of that copy.";

/// A table for each published estimator of the config: its rate of each variant, and how many times the measured one that is.
pub fn estimated(job: &MeasuredJob) -> Vec<TitledTable> {
    let copied: Vec<u64> = job.runs.iter().filter(|run| run.completed()).map(bytes_to_device).collect();
    let no_copy = if !copied.is_empty() && copied.iter().all(|bytes| *bytes == 0) { NO_COPY } else { "" };
    let copy_note = |estimator: Estimator| if estimator == Estimator::TimerAfterArrival { no_copy } else { "" };
    let titled = |estimator: &Estimator| {
        // The measured rates are in the table of results.
        let names = ["Variant", "it/s (estimated)", "samples/s (estimated)", "Factor", "n"];
        let mut table = Table::new(names).right(1..names.len());
        for (label, runs) in job.by_label() {
            let (right, other) = (all_rates(&runs), estimated_rates(*estimator, &runs));
            let [right_it, other_it] = [&right, &other].map(|rates| median_rate(rates, |r| r.it_per_s));
            let other_samples = median_rate(&other, |r| r.samples_per_s);
            let factor = other_it.zip(right_it).map(|(other, right)| format::ratio(other / right));
            let rate = |rate: Option<f64>| rate.map_or_else(|| MISSING.to_owned(), format::rate);
            table.row([
                label,
                rate(other_it),
                rate(other_samples),
                factor.unwrap_or_else(|| MISSING.to_owned()),
                other.len().to_string(),
            ]);
        }
        TitledTable {
            label: format!("`{}`", estimator.name()),
            table: table.at_most(MAX_ROWS).markdown(),
            sentence: format!("{}.{}", estimator.label(), copy_note(*estimator)),
        }
    };
    job.record.estimators.iter().map(titled).collect()
}

/// Bytes that all steps of a run copied to a device.
fn bytes_to_device(run: &Run) -> u64 {
    run.ranks.iter().flatten().map(|step| step.bytes_to_device).sum()
}

/// Median over the runs.
fn median_rate(rates: &[Rates], of: impl Fn(&Rates) -> f64) -> Option<f64> {
    median(&rates.iter().map(of).collect::<Vec<_>>())
}
