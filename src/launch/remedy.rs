//! What a trial needs for its next attempt, by the cause that ended the last one.

use expctl_record::{AttemptDir, Cause, Outcome, Trial};

use super::slurm::{Adjustment, Array};
use crate::exit::Failure;

/// What to do about a trial that did not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Another attempt, with what it asks for differently, in words where it does.
    Again(Adjustment, String),
    /// Another attempt would end the same.
    NotByItself,
}

/// The remedy for a trial whose last attempt ended with `outcome` (none: it left none). `array` is the array of Slurm's that
/// ran it, if one did.
///
/// # Errors
/// The attempt's env.json cannot be read.
pub fn remedy(
    trial: &Trial,
    attempt: Option<&AttemptDir>,
    outcome: Option<&Outcome>,
    array: Option<&Array>,
) -> Result<Remedy, Failure> {
    let mut adjustment = Adjustment::default();
    let mut words = Vec::new();
    if let Some(array) = array {
        let slurm = &trial.settings.slurm;
        // What an earlier retry asked for stays.
        adjustment.memory_mib = (array.memory_mib != slurm.memory_mib).then_some(array.memory_mib);
        adjustment.time_min = (array.time_min != slurm.time_min).then_some(array.time_min);
        adjustment.exclude.clone_from(&array.exclude);
    }
    match outcome.and_then(|outcome| outcome.cause) {
        Some(Cause::Error) => return Ok(Remedy::NotByItself),
        Some(Cause::OutOfMemory) => match array.map_or(0, |array| array.memory_mib) {
            0 => words.push("set slurm.memory_mib if it runs out of memory again".to_owned()),
            memory => {
                adjustment.memory_mib = Some(memory.saturating_mul(2));
                words.push(format!("with {} MiB of memory instead of {memory}", memory.saturating_mul(2)));
            }
        },
        Some(Cause::TimeLimit) => match array.map_or(0, |array| array.time_min) {
            _ if trial.settings.can_resume() => words.push("goes on from its last checkpoint".to_owned()),
            0 => {}
            time => {
                adjustment.time_min = Some(time.saturating_mul(2));
                words.push(format!("with {} min instead of {time}", time.saturating_mul(2)));
            }
        },
        Some(Cause::Node) => {
            let mut nodes = match attempt {
                Some(attempt) => {
                    let environment = attempt.environment()?.unwrap_or_default();
                    environment.ranks.into_iter().map(|rank| rank.host).collect()
                }
                None => Vec::new(),
            };
            nodes.dedup();
            if array.is_some() && !nodes.is_empty() {
                words.push(format!("not on {}", nodes.join(", ")));
                adjustment.exclude.extend(nodes);
                adjustment.exclude.sort();
                adjustment.exclude.dedup();
            }
        }
        _ => {}
    }
    Ok(Remedy::Again(adjustment, words.join("; ")))
}
