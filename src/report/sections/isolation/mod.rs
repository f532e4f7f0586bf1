//! Where a step's time goes, part by part: of variants that were run in several modes.
//!
//! Invariant: what the stages of one run say (measured) and what the difference of two modes says (derived) stand in
//! columns of their own, and no sum or share takes from both.

mod models;
mod modes;
mod parts;
mod rates;
mod summary;

use minijinja::{Value, context};

use super::Results;
use super::tree::tree as tree_of;
use expctl_record::MeasuredJob;
use modes::{ByMode, by_mode};

pub(super) use parts::{exposed, parts};

/// What the template shows; none where no variant was run in the mode data and one with more of the step.
pub fn isolation(job: &MeasuredJob, results: &Results<'_>) -> Option<Value> {
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
                tree => tree(variant),
            }
        })
        .collect();
    let summaries: Vec<Value> = summary::summaries(job.record.baseline.as_deref(), &variants)
        .into_iter()
        .map(|summary| context! { of => summary.of, table => summary.table.markdown() })
        .collect();
    let (rates, verdicts) = rates::rates(results, &variants);
    let models = models::models(&variants).markdown();
    Some(context! { models, summaries, variants => shown, rates => rates.markdown(), verdicts })
}

/// The mean step of the mode with the most in it as a tree of measured exposed times.
fn tree(variant: &ByMode<'_>) -> String {
    let whole = variant.whole();
    let head = format!("{}, {}, n = {}", variant.label, whole.name(), variant.runs(whole).len());
    variant.breakdown().map(|breakdown| tree_of(&head, &breakdown)).unwrap_or_default()
}
