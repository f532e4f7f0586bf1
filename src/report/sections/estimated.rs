use super::Titled;
use crate::ledger::MeasuredJob;
use crate::report::Table;
use crate::report::estimators::estimated_rates;
use crate::report::figures::{Rates, all_rates};
use crate::report::format::{self, MISSING};
use crate::stats::median;

/// For each estimator that the config asks for, what it would have said of each variant, beside what was measured.
pub fn estimated(job: &MeasuredJob) -> Vec<Titled> {
    let titled = |estimator: &expctl_record::Estimator| {
        let mut table = Table::new([
            "Variant",
            "it/s (measured)",
            "it/s (estimated)",
            "samples/s (measured)",
            "samples/s (estimated)",
            "Factor",
            "n",
        ]);
        for (label, runs) in job.by_label() {
            let (right, other) = (all_rates(&runs), estimated_rates(*estimator, &runs));
            let [right_it, other_it] = [&right, &other].map(|rates| middle(rates, |r| r.it_per_s));
            let [right_samples, other_samples] = [&right, &other].map(|rates| middle(rates, |r| r.samples_per_s));
            let factor = other_it.zip(right_it).map(|(other, right)| format::ratio(other / right));
            let rate = |rate: Option<f64>| rate.map_or_else(|| MISSING.to_owned(), format::rate);
            table.row([
                label,
                rate(right_it),
                rate(other_it),
                rate(right_samples),
                rate(other_samples),
                factor.unwrap_or_else(|| MISSING.to_owned()),
                other.len().to_string(),
            ]);
        }
        Titled {
            label: format!("`{}`", estimator.name()),
            table: table.markdown(),
            sentence: format!("Estimated, as published: {}.", estimator.label()),
        }
    };
    job.record.estimators.iter().map(titled).collect()
}

/// Median over the runs.
fn middle(rates: &[Rates], of: impl Fn(&Rates) -> f64) -> Option<f64> {
    median(&rates.iter().map(of).collect::<Vec<_>>())
}
