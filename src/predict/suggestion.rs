//! The change to try next in a variant, for its note.

use expctl_ledger::{MeasuredJob, Stage};

use super::change::{Change, ChangeClass};
use super::error::PredictError;
use super::prediction::{AS_MUCH, DEFAULT_BOUND, PredictedVariant, Prediction, Predictions};
use crate::report::next_change::{NextChange, PredictedChange};

/// The change to try next in the variant with this label: the setting of the loader that is predicted to bring most, else the other change
/// that does.
pub fn next_change(job: &MeasuredJob, label: &str) -> NextChange {
    let predictions = match Predictions::from_job(job, Some(label), DEFAULT_BOUND, &[]) {
        Ok(predictions) => predictions,
        Err(PredictError::Nothing { first, .. }) => return NextChange::NotPredicted(first.reason.to_string()),
        Err(error @ PredictError::NoVariant { .. }) => return NextChange::NotPredicted(error.to_string()),
    };
    let refused = predictions.not_predicted.iter().map(|one| one.reason.to_string()).next();
    match predictions.variants.iter().find(|variant| variant.label == label) {
        Some(variant) => match variant.best_setting() {
            Some(best) => NextChange::Setting(predicted(best)),
            None => NextChange::NoSetting(best_what_if(variant).map(predicted)),
        },
        None => NextChange::NotPredicted(refused.unwrap_or_else(|| "it has no completed run".to_owned())),
    }
}

/// The change to code, data or hardware that is predicted to bring most, if any does.
fn best_what_if(variant: &PredictedVariant) -> Option<&Prediction> {
    let helps = |one: &&Prediction| one.class == ChangeClass::WhatIf && is_feasible(one.change) && one.gain > AS_MUCH;
    variant.changes.iter().filter(helps).max_by(|a, b| a.gain.total_cmp(&b.gain))
}

/// Whether somebody could make it. Data can be in memory, or be stored as they are used; no other stage takes no time at all.
fn is_feasible(change: Change) -> bool {
    match change {
        Change::LoadingFree => false,
        Change::StageFree(stage) => matches!(stage, Stage::Read | Stage::Decode),
        _ => true,
    }
}

fn predicted(one: &Prediction) -> PredictedChange {
    let need = one.processors;
    PredictedChange {
        change: one.change.words(),
        setting: one.setting.clone(),
        gain: one.gain,
        gain_interval: one.gain_interval,
        samples_per_s: one.samples_per_s,
        bottleneck: one.bottleneck.map(|stage| stage.words()),
        crowded: (!one.processors_suffice).then_some((need.threads, need.processors)),
    }
}
