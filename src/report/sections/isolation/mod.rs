//! Where a step's time goes, part by part: of variants that were run in several modes.
//!
//! Invariant: what the stages of one run say (measured) and what the difference of two modes says (derived) stand in
//! columns of their own, and no sum or share takes from both.

mod modes;
mod parts;
mod rates;
mod summary;
mod tree;

use minijinja::{Value, context};

use crate::ledger::MeasuredJob;
use modes::by_mode;

/// What the template shows; none where no variant was run in the mode data and one with more of the step.
pub fn isolation(job: &MeasuredJob) -> Option<Value> {
    let variants = by_mode(job);
    if variants.is_empty() {
        return None;
    }
    let shown: Vec<Value> = variants
        .iter()
        .map(|variant| {
            context! {
                label => variant.label.as_str(),
                table => parts::table(variant).markdown(),
                sentences => parts::sentences(variant),
                tree => tree::tree(variant),
            }
        })
        .collect();
    let summaries: Vec<Value> = summary::summaries(job.record.baseline.as_deref(), &variants)
        .into_iter()
        .map(|summary| context! { of => summary.of, table => summary.table.markdown() })
        .collect();
    let (rates, verdicts) = rates::rates(job, &variants);
    Some(context! { summaries, variants => shown, rates => rates.markdown(), verdicts })
}
