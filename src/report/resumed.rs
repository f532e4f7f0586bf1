//! What to say of a trial that took several attempts: which of its steps come from which, and in what these differ.

use super::compare::{class_name, setting_name};
use crate::ledger::{differences_within, step_words};
use expctl_record::{Run, RunPart};

/// Sentences on the attempts of a run; none where it took one.
pub fn on_attempts(run: &Run) -> Vec<String> {
    if run.attempts < 2 {
        return Vec::new();
    }
    let (trial, attempts) = (&run.trial.id, run.attempts);
    if !run.resumed() {
        let counts = run.parts.last().is_some_and(|part| !part.steps.is_empty());
        let what = if counts { "; the last one counts" } else { "" };
        return vec![format!("trial {trial} took {attempts} attempts{what}")];
    }
    let parts: Vec<String> = run.parts.iter().map(part_words).collect();
    let mut said =
        vec![format!("trial {trial} took {attempts} attempts and went on from a checkpoint: {}", parts.join(", "))];
    said.extend(on_differences(run));
    let read = |part: &RunPart| part.data.as_ref().map(|data| (data.records, data.selected, data.size.apparent_bytes));
    let mut read = run.parts.iter().filter_map(read);
    if read.next().is_some_and(|first| read.any(|later| later != first)) {
        said.push(format!(
            "the data of trial {trial} changed between its attempts; what is said of it is of the last one"
        ));
    }
    said
}

/// In what the attempts of a run differ, besides their nodes.
fn on_differences(run: &Run) -> Vec<String> {
    let trial = &run.trial.id;
    if let Some(part) = run.parts.iter().find(|part| part.environment.is_none()) {
        let attempt = part.attempt;
        return vec![format!(
            "nothing says what attempt {attempt} of trial {trial} ran on, so it is a class by itself"
        )];
    }
    let differing = differences_within(run);
    let list = |words: Vec<String>| (!words.is_empty()).then(|| words.join(", "));
    let of_class = differing.iter().filter_map(|(key, values)| Some(format!("{} {values}", class_name(key)?)));
    let hardware = list(of_class.collect()).map(|differing| {
        format!(
            "the attempts of trial {trial} ran on different hardware, so its rate is of neither and it is a class by itself: \
             {differing}"
        )
    });
    let others = differing.iter().filter(|(key, _)| class_name(key).is_none() && *key != "node");
    let others = list(others.map(|(key, values)| format!("{} {values}", setting_name(key))).collect());
    let others = others.map(|differing| format!("the attempts of trial {trial} also differ in {differing}"));
    hardware.into_iter().chain(others).collect()
}

/// `steps 0–7 from attempt 1 (n1)`.
fn part_words(part: &RunPart) -> String {
    let hosts = part.hosts().join(", ");
    let on = if hosts.is_empty() { String::new() } else { format!(" ({hosts})") };
    format!("{} from attempt {}{on}", step_words(&part.steps), part.attempt)
}
