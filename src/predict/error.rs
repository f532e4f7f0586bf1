//! Why there is no prediction: `Unpredictable` for one variant, which a table shows in its row; `PredictError` for the whole command.

use expctl_text::format;
use pipeline_model::ModelError;
use serde::Serialize;

/// Why nothing is predicted of a variant.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unpredictable {
    /// No trial of it completed.
    #[error("none of its trials completed")]
    NotCompleted,
    /// A profiler ran along.
    #[error("a profiler ran along, and its cost is in the times")]
    Profiled,
    /// Its trials ran side by side with others.
    #[error("its trials ran side by side, {pack} at once: what the others would do to a change is not known")]
    SideBySide {
        /// Trials that ran at the same time.
        pack: u32,
    },
    /// The steps have no times of the stages that load a batch.
    #[error("its record has no times of loading: {} of the step time is in no stage", format::percent(*.open_share))]
    NoStages {
        /// Share of the step time that no stage claims.
        open_share: f64,
    },
    /// The processors of the machine are not recorded.
    #[error("the processors of its machine are not recorded")]
    NoMachine,
    /// There are too few measured steps.
    #[error("it has {steps} measured steps, and at least {needed} are needed")]
    FewSteps {
        /// Measured steps of the shortest run.
        steps: usize,
        /// Steps that are needed.
        needed: usize,
    },
    /// The record has figures that the model cannot replay.
    #[error("its steps cannot be replayed: {0}")]
    Model(#[from] ModelError),
    /// The model does not reproduce the measured rate.
    #[error(
        "the model does not reproduce it: its rate of the job's own settings is {} off, and at most {} are accepted",
        format::percent(.error.abs()), format::percent(*.bound)
    )]
    NotReproduced {
        /// Rate of the model over the measured one, less 1.
        error: f64,
        /// Largest error that is accepted.
        bound: f64,
    },
}

/// A variant of which nothing is predicted.
#[derive(Clone, Debug, Serialize)]
pub struct NotPredicted {
    /// The variant, with its swept settings.
    pub label: String,
    /// Why.
    #[serde(serialize_with = "as_text")]
    pub reason: Unpredictable,
}

fn as_text<S: serde::Serializer>(reason: &Unpredictable, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(reason)
}

/// Why nothing is predicted of a job.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PredictError {
    /// No variant has the name that was asked for.
    #[error("job {job} has no variant {name}")]
    NoVariant {
        /// Number of the job.
        job: u64,
        /// The name.
        name: String,
        /// Those that it has.
        labels: Vec<String>,
    },
    /// Nothing can be predicted of any variant.
    #[error("nothing is predicted from job {job}: `{}`: {}", .first.label, .first.reason)]
    Nothing {
        /// Number of the job.
        job: u64,
        /// The first variant.
        first: NotPredicted,
        /// The others.
        others: Vec<NotPredicted>,
    },
}
