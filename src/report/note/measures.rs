//! What the steps of a job contain, and what they do not.

use expctl_ledger::MeasuredJob;
use expctl_settings::Mode;
use serde_json::{Value, json};

/// Items of a list that a line names.
const MAX_NAMED: usize = 3;

/// Contents of the steps of each mode of a job, for configs that do not say it.
pub fn measures_of_modes(job: &MeasuredJob) -> Vec<Value> {
    modes(job)
        .iter()
        .map(|mode| json!({ "mode": mode.name(), "yes": mode_contents(*mode).0, "no": mode_contents(*mode).1 }))
        .collect()
}

fn mode_contents(mode: Mode) -> (Vec<&'static str>, Vec<&'static str>) {
    const DATA: &str = "sampling, reading, decoding, masks, collation, copy to the device";
    const PARTS: [&str; 3] = ["forward pass", "backward pass", "clipping and optimizer step"];
    let done = match mode {
        Mode::Data => 0,
        Mode::Forward => 1,
        Mode::ForwardBackward => 2,
        Mode::Train => 3,
        Mode::ZeroLoss => {
            let yes =
                vec![DATA, "backward pass and optimizer step on a loss of zero, as in the published data-only runs"];
            return (yes, vec!["forward pass"]);
        }
        Mode::Emulate => {
            let yes = vec![
                DATA,
                "the loader beside a step of a given time, in which an accelerator would compute",
                "a barrier of the ranks after each step, and the all-reduce of a payload if one is set",
            ];
            return (yes, PARTS.to_vec());
        }
    };
    let yes = std::iter::once(DATA).chain(PARTS.into_iter().take(done)).collect();
    (yes, PARTS.into_iter().skip(done).collect())
}

/// What the figures of a job do not show: what its config says, else the parts that no step of it has.
pub struct NotShown {
    /// In one line.
    pub line: String,
    /// What the line only counts.
    pub rest: Vec<String>,
}

/// What the figures of a job do not show.
pub fn not_shown(job: &MeasuredJob) -> NotShown {
    let said: &[String] = job.runs.first().map_or(&[], |run| &run.trial.settings.experiment.does_not_measure);
    let modes = modes(job);
    let missing = |part: &&&'static str| modes.iter().all(|mode| mode_contents(*mode).1.contains(*part));
    let parts = modes.first().map(|mode| mode_contents(*mode).1).unwrap_or_default();
    let all: Vec<String> = match said {
        [] => parts.iter().filter(missing).map(|part| (*part).to_owned()).collect(),
        _ => said.to_vec(),
    };
    let (named, rest) = all.split_at(all.len().min(MAX_NAMED));
    let line = match (named, rest) {
        ([], _) => "other machines and other data".to_owned(),
        (_, []) => named.join("; "),
        _ => format!("{}; and {} more, below", named.join("; "), rest.len()),
    };
    NotShown { line, rest: rest.to_vec() }
}

/// The modes of a job, each once.
fn modes(job: &MeasuredJob) -> Vec<Mode> {
    let mut modes: Vec<Mode> = Vec::new();
    for run in &job.runs {
        let mode = run.trial.settings.train.mode;
        if !modes.contains(&mode) {
            modes.push(mode);
        }
    }
    modes
}
