//! [`Remedy`]: what a trial needs for its next attempt, by the cause that ended the last one.

use expctl_ledger::{AttemptDir, Cause, Outcome, Trial};

use super::slurm::{Adjustment, SubmittedArray};
use crate::exit::Failure;

/// The next step for a trial that did not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Another attempt, with adjusted resources; the text says what is different, and may be empty.
    Again(Adjustment, String),
    /// Another attempt would end the same way.
    NotByItself,
}

/// The remedy for a trial whose last attempt ended with `outcome`, if it left one. `array` is Slurm's array that ran
/// it, if one did.
///
/// # Errors
/// The attempt's env.json or slurm.json cannot be read.
pub fn remedy(
    trial: &Trial,
    attempt: Option<&AttemptDir>,
    outcome: Option<&Outcome>,
    array: Option<&SubmittedArray>,
) -> Result<Remedy, Failure> {
    let mut adjustment = Adjustment::default();
    let mut changes = Vec::new();
    if let Some(array) = array {
        let slurm = &trial.settings.slurm;
        // The resources of an earlier retry stay.
        adjustment.memory_mib = (array.memory_mib != slurm.memory_mib).then_some(array.memory_mib);
        adjustment.time_min = (array.time_min != slurm.time_min).then_some(array.time_min);
    }
    match outcome.and_then(|outcome| outcome.cause) {
        Some(Cause::Error) => return Ok(Remedy::NotByItself),
        Some(Cause::OutOfMemory) => match array.map_or(0, |array| array.memory_mib) {
            0 => changes.push("set slurm.memory_mib if it runs out of memory again".to_owned()),
            memory => {
                adjustment.memory_mib = Some(memory.saturating_mul(2));
                changes.push(format!("with {} MiB of memory instead of {memory}", memory.saturating_mul(2)));
            }
        },
        Some(Cause::TimeLimit) => match array.map_or(0, |array| array.time_min) {
            _ if trial.settings.can_resume() => changes.push("goes on from its last checkpoint".to_owned()),
            0 => {}
            time => {
                adjustment.time_min = Some(time.saturating_mul(2));
                changes.push(format!("with {} min instead of {time}", time.saturating_mul(2)));
            }
        },
        Some(Cause::Node) => {
            if let (Some(_), Some(attempt)) = (array, attempt) {
                // For this retry alone: a node may come back.
                adjustment.exclude = nodes(attempt)?;
                if !adjustment.exclude.is_empty() {
                    changes.push(format!("not on {}", adjustment.exclude.join(", ")));
                }
            }
        }
        _ => {}
    }
    Ok(Remedy::Again(adjustment, changes.join("; ")))
}

/// The nodes of an attempt as Slurm names them; where it does not, the ranks' host names up to the first dot.
fn nodes(attempt: &AttemptDir) -> Result<Vec<String>, Failure> {
    let said = attempt.slurm_usage()?.and_then(|usage| usage.usage.nodes);
    let mut nodes = match said.map(|list| expctl_ledger::hostlist::expand(&list)) {
        Some(Ok(nodes)) => nodes,
        _ => {
            let ranks = attempt.environment()?.unwrap_or_default().ranks;
            ranks.into_iter().filter_map(|rank| Some(rank.host.split('.').next()?.to_owned())).collect()
        }
    };
    nodes.retain(|node| !node.is_empty());
    nodes.sort();
    nodes.dedup();
    Ok(nodes)
}
