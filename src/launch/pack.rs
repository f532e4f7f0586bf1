//! Trials side by side: which of them run at the same time on this machine, and for how long each had others beside it.

use expctl_ledger::{AttemptDir, LedgerError};
use expctl_settings::Trial;

use super::slurm::Resources;

/// Trials in the order in which they run; those of one round run at the same time. A round has one trial, or up to `slurm.pack` that ask for
/// the same resources.
///
/// A round begins when the one before it has ended, so a trial that is to run alone does.
pub fn rounds<'a>(trials: &[&'a Trial]) -> Vec<Vec<&'a Trial>> {
    let mut rounds: Vec<Vec<&Trial>> = Vec::new();
    for &trial in trials {
        let pack = trial.settings.slurm.pack;
        let is_open = |round: &&mut Vec<&Trial>| {
            let first = round[0];
            first.settings.slurm.pack == pack
                && round.len() < pack as usize
                && Resources::from_trial(first) == Resources::from_trial(trial)
        };
        match rounds.iter_mut().find(is_open) {
            Some(round) => round.push(trial),
            None => rounds.push(vec![trial]),
        }
    }
    rounds
}

/// Time for which the attempts `others` ran between two moments, s, summed over them. An attempt without an outcome still runs. `span` and
/// the times of attempts are whole seconds since the epoch.
///
/// # Errors
/// The outcome of an attempt cannot be read.
pub fn seconds_beside(others: &[AttemptDir], span: (i64, i64)) -> Result<i64, LedgerError> {
    let mut seconds = 0;
    for other in others {
        let other_span = match other.outcome()? {
            Some(outcome) => (outcome.started, outcome.ended),
            None => (other.started(), span.1),
        };
        seconds += overlap(span, other_span);
    }
    Ok(seconds)
}

/// Length of what two spans of time have in common.
fn overlap(one: (i64, i64), other: (i64, i64)) -> i64 {
    (one.1.min(other.1) - one.0.max(other.0)).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(id: &str, pack: u32, ranks: u32) -> Trial {
        let text = include_str!("../../tests/samples/release_0_1/runs/1/ids-r1-5ed22a3a/attempt-1/trial.json");
        let mut trial: Trial = serde_json::from_str(text).unwrap();
        id.clone_into(&mut trial.id);
        (trial.settings.slurm.pack, trial.settings.launch.ranks) = (pack, ranks);
        trial
    }

    #[test]
    fn a_round_has_trials_that_ask_for_the_same() {
        let all = [
            trial("a", 2, 1),
            trial("alone", 1, 1),
            trial("b", 2, 1),
            trial("two-ranks", 2, 2),
            trial("c", 2, 1),
            trial("alone-too", 1, 1),
        ];
        let found = rounds(&all.iter().collect::<Vec<_>>());
        let ids: Vec<Vec<&str>> =
            found.iter().map(|round| round.iter().map(|trial| trial.id.as_str()).collect()).collect();
        assert_eq!(ids, [vec!["a", "b"], vec!["alone"], vec!["two-ranks"], vec!["c"], vec!["alone-too"]]);
    }

    #[test]
    fn time_in_common_counts() {
        assert_eq!(overlap((10, 20), (12, 30)), 8);
        assert_eq!(overlap((10, 20), (0, 100)), 10);
        assert_eq!(overlap((10, 20), (20, 30)), 0);
        assert_eq!(overlap((10, 20), (25, 30)), 0);
    }
}
