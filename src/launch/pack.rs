//! Trials side by side: which of them run at the same time on this machine, and for how long each had others beside it.

use std::collections::BTreeMap;

use expctl_ledger::{AttemptDir, LedgerError, Outcome};
use expctl_settings::Trial;

use super::slurm::Resources;

/// Trials in the order in which they run; those of one round run at the same time. A round has one trial, or up to `slurm.pack` repeats of one
/// variant at one point that ask for the same resources: trials of other settings beside it would be another load.
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
                && first.settings_hash() == trial.settings_hash()
                && Resources::from_trial(first) == Resources::from_trial(trial)
        };
        match rounds.iter_mut().find(is_open) {
            Some(round) => round.push(trial),
            None => rounds.push(vec![trial]),
        }
    }
    rounds
}

/// What ran beside an attempt. Times are whole seconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside {
    /// When its ranks began.
    from: i64,
    /// Time for which others ran until its end, s, summed over them.
    seconds: i64,
    /// Ids of those that ran for a tenth of its time or more.
    trials: Vec<String>,
}

impl Beside {
    /// What ran beside an attempt that ended at `ended`, of the attempts `others`, each with the id of its trial. An attempt without an outcome
    /// still runs.
    ///
    /// # Errors
    /// The outcome of an attempt cannot be read.
    pub fn from_attempts(attempt: &AttemptDir, ended: i64, others: &[(&str, AttemptDir)]) -> Result<Self, LedgerError> {
        let mut spans = Vec::new();
        for (id, other) in others {
            let until = other.outcome()?.map_or(ended, |outcome| outcome.ended);
            spans.push((*id, (other.ranks_started(), until)));
        }
        Ok(Self::from_spans((attempt.ranks_started(), ended), &spans))
    }

    fn from_spans(span: (i64, i64), others: &[(&str, (i64, i64))]) -> Self {
        let mut by_trial: BTreeMap<&str, i64> = BTreeMap::new();
        for (id, other) in others {
            *by_trial.entry(id).or_default() += overlap(span, *other);
        }
        let counts = |seconds: i64| seconds > 0 && 10 * seconds >= span.1 - span.0;
        let trials = by_trial.iter().filter(|(_, seconds)| counts(**seconds)).map(|(id, _)| (*id).to_owned()).collect();
        Self { from: span.0, seconds: by_trial.values().sum(), trials }
    }

    /// Write it into the outcome of the attempt.
    pub fn add_to(self, outcome: &mut Outcome) {
        outcome.beside_from = Some(self.from);
        outcome.beside_s = Some(self.seconds);
        outcome.beside = self.trials;
    }
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
    fn a_round_has_repeats_of_one_variant_that_ask_for_the_same() {
        let all = [
            trial("a-r1-11", 2, 1),
            trial("b-r1-22", 2, 1),
            trial("a-r1-33", 1, 1),
            trial("a-r2-11", 2, 1),
            trial("b-r2-22", 2, 2),
            trial("a-r2-33", 1, 1),
            trial("a-r3-11", 2, 1),
        ];
        let found = rounds(&all.iter().collect::<Vec<_>>());
        let ids: Vec<Vec<&str>> =
            found.iter().map(|round| round.iter().map(|trial| trial.id.as_str()).collect()).collect();
        let expected: [&[&str]; 6] =
            [&["a-r1-11", "a-r2-11"], &["b-r1-22"], &["a-r1-33"], &["b-r2-22"], &["a-r2-33"], &["a-r3-11"]];
        assert_eq!(ids, expected);
    }

    #[test]
    fn what_ran_for_a_tenth_of_the_time_ran_beside() {
        let spans = [("a", (90, 150)), ("b", (195, 300)), ("c", (0, 100)), ("a", (150, 170))];
        let found = Beside::from_spans((100, 200), &spans);
        assert_eq!(found, Beside { from: 100, seconds: 75, trials: vec!["a".to_owned()] });
    }

    #[test]
    fn time_in_common_counts() {
        assert_eq!(overlap((10, 20), (12, 30)), 8);
        assert_eq!(overlap((10, 20), (0, 100)), 10);
        assert_eq!(overlap((10, 20), (20, 30)), 0);
        assert_eq!(overlap((10, 20), (25, 30)), 0);
    }
}
