//! The progress of a training run, and the start of a trial from a checkpoint, from weights, or behind another run.

use std::collections::BTreeMap;
use std::path::Path;

use expctl_ledger::LedgerError;
use expctl_settings::Monitored;
use tch::Tensor;

use crate::state::{StateError, read_state};
use crate::trainer::Trainer;

/// Prefix of the names in a state.
const KEY: &str = "progress";

/// The progress of a training run, beyond the state of the trainer. It is the same on all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Epoch of the first step of this trial; not 0 where it continues another one.
    pub first_epoch: u64,
    /// Training steps before this trial.
    pub steps_before: u64,
    /// The next epoch.
    pub next_epoch: u64,
    /// Best figure so far, and which figure it is.
    best: Option<(Monitored, f64)>,
    /// Validations since.
    since_best: u64,
}

impl Progress {
    /// Record the `figure` of a validation; returns whether it is the best one so far. NaN is never better. Where another figure was
    /// monitored before, the search restarts.
    pub fn record_validation(&mut self, figure: Option<f64>, monitored: Monitored) -> bool {
        if self.best.is_some_and(|(before, _)| before != monitored) {
            (self.best, self.since_best) = (None, 0);
        }
        let better = figure.is_some_and(|figure| match (self.best, monitored) {
            (None, _) => !figure.is_nan(),
            (Some((_, best)), Monitored::Loss) => figure < best,
            (Some((_, best)), Monitored::Pearson) => figure > best,
        });
        if better {
            (self.best, self.since_best) = (figure.map(|figure| (monitored, figure)), 0);
        } else {
            self.since_best += 1;
        }
        better
    }

    /// Whether the last `patience` validations brought no improvement; a patience of 0 is endless.
    pub fn is_exhausted(&self, patience: u64) -> bool {
        patience > 0 && self.since_best >= patience
    }

    /// The state by name.
    pub fn state(&self) -> Vec<(String, Tensor)> {
        let Self { first_epoch, steps_before, next_epoch, best, since_best } = *self;
        let counts = [first_epoch, steps_before, next_epoch, since_best].map(u64::cast_signed);
        let counts = (format!("{KEY}/counts"), Tensor::from_slice(&counts));
        let best = best.map(|(figure, best)| (best_key(figure), Tensor::from_slice(&[best])));
        std::iter::once(counts).chain(best).collect()
    }

    /// The state at the end of an epoch, `steps` steps after training began: another trial can continue from it.
    pub fn state_at_end(&self, steps: u64) -> Vec<(String, Tensor)> {
        let mut state = self.state();
        state.push((format!("{KEY}/ended"), Tensor::from_slice(&[steps.cast_signed()])));
        state
    }

    /// The progress of a trial that continues from a state of [`Self::state_at_end`]; `None` for any other state.
    pub fn continued_from(state: &BTreeMap<String, Tensor>) -> Option<Self> {
        let steps = state.get(&format!("{KEY}/ended"))?.f_int64_value(&[0]).ok()?.cast_unsigned();
        let before = Self::from_state(state)?;
        Some(Self { first_epoch: before.next_epoch, steps_before: steps, ..before })
    }

    /// The progress in a state of [`Self::state`]; `None` if there is none in it.
    pub fn from_state(state: &BTreeMap<String, Tensor>) -> Option<Self> {
        let counts = Vec::<i64>::try_from(state.get(&format!("{KEY}/counts"))?).ok()?;
        let [first_epoch, steps_before, next_epoch, since_best] = counts.try_into().ok()?;
        let [first_epoch, steps_before, next_epoch, since_best] =
            [first_epoch, steps_before, next_epoch, since_best].map(i64::cast_unsigned);
        let best = Monitored::ALL.into_iter().find_map(|figure| {
            let best = state.get(&best_key(figure))?;
            Some((figure, best.f_double_value(&[0]).ok()?))
        });
        Some(Self { first_epoch, steps_before, next_epoch, best, since_best })
    }
}

fn best_key(figure: Monitored) -> String {
    format!("{KEY}/best/{}", figure.name())
}

/// In a file of a whole state, the names of the model's tensors start with this.
const MODEL: &str = "model/";

/// Start from the file `path`: with its weights alone, or, if it is the state of a training run, behind its last epoch.
///
/// # Errors
/// The file cannot be read, or is of another model; the message names the file, the parameter and both shapes. The trainer is unchanged
/// then.
pub fn start_from(path: &Path, trainer: &mut Trainer) -> Result<Progress, LedgerError> {
    let refuse = |error: StateError| LedgerError::Checkpoint { path: path.to_owned(), reason: error.to_string() };
    let state = read_state(path)?;
    let is_whole = state.keys().any(|name| name.starts_with(MODEL));
    let weights: BTreeMap<&str, &Tensor> = match is_whole {
        true => state.iter().filter_map(|(name, tensor)| Some((name.strip_prefix(MODEL)?, tensor))).collect(),
        false => state.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect(),
    };
    check_same_model(&weights, &trainer.weights()).map_err(refuse)?;
    if !is_whole {
        trainer.load_weights(&state).map_err(refuse)?;
        return Ok(Progress::default());
    }
    let progress = Progress::continued_from(&state).ok_or_else(|| refuse(StateError::MidEpoch))?;
    trainer.restore(&state).map_err(refuse)?;
    Ok(progress)
}

/// Check that `found` are weights of the model with the weights `expected`.
fn check_same_model(found: &BTreeMap<&str, &Tensor>, expected: &[(String, Tensor)]) -> Result<(), StateError> {
    for (name, tensor) in expected {
        let Some(stored) = found.get(name.as_str()) else {
            return Err(StateError::NotInFile { name: name.clone(), shape: tensor.size(), others: found.len() });
        };
        if (stored.size(), stored.kind()) != (tensor.size(), tensor.kind()) {
            let describe = |tensor: &Tensor| format!("{:?} {:?}", tensor.kind(), tensor.size());
            let (found, expected) = (describe(stored), describe(tensor));
            return Err(StateError::OtherModel { name: name.clone(), found, expected });
        }
    }
    match found.iter().find(|(name, _)| !expected.iter().any(|(known, _)| known == *name)) {
        Some((name, tensor)) => Err(StateError::NotInModel { name: (*name).to_owned(), shape: tensor.size() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;

    #[test]
    fn patience_ends_after_so_many_validations_without_a_better_figure() {
        let run = |monitored, patience, figures: &[Option<f64>]| {
            let mut progress = Progress::default();
            let better: Vec<bool> = figures.iter().map(|f| progress.record_validation(*f, monitored)).collect();
            (better, progress.is_exhausted(patience))
        };
        let falling = [Some(3.0), Some(2.0), Some(2.0), Some(2.5)];
        assert_eq!(run(Monitored::Loss, 2, &falling), (vec![true, true, false, false], true));
        assert!(!run(Monitored::Loss, 3, &falling).1 && !run(Monitored::Loss, 0, &falling).1);
        let pearson = [None, Some(f64::NAN), Some(-0.5), Some(0.1), None];
        assert_eq!(run(Monitored::Pearson, 2, &pearson), (vec![false, false, true, true, false], false));
    }

    #[test]
    fn another_figure_begins_anew() {
        let mut progress = Progress::default();
        assert!(progress.record_validation(Some(0.5), Monitored::Loss));
        assert!(!progress.record_validation(Some(0.6), Monitored::Loss));
        let mut progress = Progress::from_state(&progress.state().into_iter().collect()).unwrap();
        assert!(!progress.record_validation(None, Monitored::Pearson));
        assert!(!progress.is_exhausted(2), "what was waited for was the loss");
        assert!(progress.record_validation(Some(0.1), Monitored::Pearson));
        assert!(!progress.record_validation(Some(0.05), Monitored::Pearson));
    }

    #[test]
    fn it_is_kept_whole() {
        let mut progress = Progress { first_epoch: 3, steps_before: 70, next_epoch: 5, ..Progress::default() };
        let again = |progress: &Progress| Progress::from_state(&progress.state().into_iter().collect());
        assert_eq!(again(&progress), Some(progress));
        progress.record_validation(Some(0.1 + 0.2), Monitored::Loss);
        progress.record_validation(Some(0.5), Monitored::Loss);
        assert_eq!(again(&progress), Some(progress));
        assert_eq!(Progress::from_state(&BTreeMap::new()), None);
        assert_eq!(
            Progress::continued_from(&progress.state().into_iter().collect()),
            None,
            "it may be in the middle of an epoch"
        );
        let after = Progress::continued_from(&progress.state_at_end(90).into_iter().collect()).unwrap();
        assert_eq!(after, Progress { first_epoch: 5, steps_before: 90, ..progress });
    }

    #[test]
    fn another_model_is_told_by_name_and_both_shapes() {
        let tensor = |shape: &[i64]| Tensor::zeros(shape, (Kind::Float, Device::Cpu));
        let own = [("a".to_owned(), tensor(&[2, 3])), ("b".to_owned(), tensor(&[4]))];
        let (same, other, b) = (tensor(&[2, 3]), tensor(&[3, 3]), tensor(&[4]));
        let mut found = BTreeMap::from([("a", &same), ("b", &b)]);
        check_same_model(&found, &own).unwrap();
        found.insert("c", &b);
        assert!(check_same_model(&found, &own).unwrap_err().to_string().contains("parameter c [4] is in it"));
        found = BTreeMap::from([("a", &other), ("b", &b)]);
        let message = check_same_model(&found, &own).unwrap_err().to_string();
        assert!(message.contains("parameter a is Float [3, 3] in it, here Float [2, 3]"), "{message}");
        found.remove("b");
        found.insert("a", &same);
        assert!(check_same_model(&found, &own).unwrap_err().to_string().contains("parameter b [4] is not in it"));
    }
}
