use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::longest::{LongestCall, longest_of_all};
use super::{StepFigures, Summary};

/// One side of a comparison of traces: the recorded steps of a variant of a job, or of one trial of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Side {
    /// The job.
    pub job: u64,
    /// Its variant.
    pub variant: String,
    /// What the side is called within its job: the variant with its swept settings, or the id of the one trial.
    pub label: String,
    /// What the config calls the variant.
    pub method: String,
    /// Ids of the trials that the steps are of.
    pub trials: Vec<String>,
    /// The recorded steps, in the order of trials and of steps; in JSON their number.
    #[serde(serialize_with = "count")]
    pub steps: Vec<StepFigures>,
    /// The stage that most of the own time of each operation lies in, by name of the operation; empty for none.
    #[serde(skip)]
    pub stage_of: BTreeMap<String, String>,
    /// The longest single call of all that is work by itself.
    pub longest: Option<LongestCall>,
}

fn count<S: Serializer>(steps: &[StepFigures], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(steps.len() as u64)
}

impl Side {
    /// Add what the traces of one trial show.
    pub fn add(&mut self, trial: &str, summary: &Summary) {
        self.trials.push(trial.to_owned());
        self.steps.extend(summary.step_figures.iter().cloned());
        for operation in &summary.operations {
            self.stage_of.entry(operation.name.clone()).or_insert_with(|| operation.stage().to_owned());
        }
        let longest = longest_of_all(&summary.longest);
        if let Some(call) = longest.filter(|call| self.longest.as_ref().is_none_or(|known| call.ns > known.ns)) {
            self.longest = Some(call.clone());
        }
    }

    /// How it is called in a sentence: `job 20 lazy`.
    pub fn name(&self) -> String {
        format!("job {} {}", self.job, self.label)
    }

    /// Seconds that were recorded: the summed length of the steps.
    pub fn recorded_s(&self) -> f64 {
        self.steps.iter().map(|step| step.wall).sum::<f64>() / 1e9
    }

    /// A figure of each step, in order.
    pub(super) fn series(&self, of: impl Fn(&StepFigures) -> f64) -> Vec<f64> {
        self.steps.iter().map(of).collect()
    }
}
