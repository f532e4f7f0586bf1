use super::modes::{ByMode, MODES};
use crate::ledger::MeasuredJob;
use crate::report::Table;
use crate::report::figures::{Rates, all_rates};
use crate::report::format::{self, MISSING};
use crate::stats::{Verdict, median, ratio, verdict};

/// How fast each variant is in each mode, against the baseline in the same mode; with it what may be said.
pub(super) fn rates(job: &MeasuredJob, variants: &[ByMode<'_>]) -> (Table, Vec<String>) {
    let mut table =
        Table::new(["Mode", "Variant", "it/s", "samples/s", "Ratio (it/s)", "Ratio (samples/s)", "n"]).right([2, 3, 6]);
    let mut verdicts = Vec::new();
    let named = match &job.record.baseline {
        Some(name) => Some(name.as_str()),
        None => variants.first().map(|variant| variant.variant.as_str()),
    };
    for (mode, _) in MODES {
        for variant in variants {
            let rates = all_rates(variant.runs(mode));
            if rates.is_empty() {
                continue;
            }
            let base = variants
                .iter()
                .find(|base| Some(base.variant.as_str()) == named && base.point == variant.point)
                .filter(|base| !base.runs(mode).is_empty());
            let of = |rates: &[Rates], which: fn(&Rates) -> f64| rates.iter().map(which).collect::<Vec<f64>>();
            let (its, samples) = (of(&rates, |r| r.it_per_s), of(&rates, |r| r.samples_per_s));
            let shown = |values: &[f64]| median(values).map_or_else(|| MISSING.to_owned(), format::rate);
            let is_base = base.is_some_and(|base| base.label == variant.label);
            let mut ratios = [MISSING.to_owned(), MISSING.to_owned()];
            if let Some(base) = base.filter(|_| !is_base) {
                let theirs = all_rates(base.runs(mode));
                let against = [(&its, of(&theirs, |r| r.it_per_s)), (&samples, of(&theirs, |r| r.samples_per_s))];
                for (cell, (own, theirs)) in ratios.iter_mut().zip(&against) {
                    if let Some(ratio) = ratio(own, theirs) {
                        *cell = format::ratio_with_interval(&ratio);
                    }
                }
                if let Some(ratio) = ratio(&samples, &against[1].1) {
                    let word = verdict(&ratio, (rates.len(), theirs.len()));
                    if word != Verdict::TooFewRuns {
                        verdicts.push(format!(
                            "{}, {}: {} {}, {} in samples/s (n = {} and {})",
                            mode.name(),
                            variant.label,
                            word.against(),
                            base.label,
                            format::ratio_with_interval(&ratio),
                            rates.len(),
                            theirs.len()
                        ));
                    }
                }
            } else if is_base {
                ratios = ["baseline".to_owned(), "baseline".to_owned()];
            }
            let [by_it, by_sample] = ratios;
            let cells = [
                mode.name().to_owned(),
                variant.label.clone(),
                shown(&its),
                shown(&samples),
                by_it,
                by_sample,
                rates.len().to_string(),
            ];
            if is_base { table.bold_row(cells) } else { table.row(cells) }
        }
    }
    (table, verdicts)
}
