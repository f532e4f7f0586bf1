use std::collections::BTreeMap;

use expctl_record::Monitored;
use tch::Tensor;

const KEY: &str = "progress";

/// How far training has come, beyond what the trainer knows. It is the same on all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Progress {
    /// Epoch that the first step of this trial is of; not 0 where it goes on with another one.
    pub(crate) first_epoch: u64,
    /// Steps of training in front of it.
    pub(crate) steps_before: u64,
    /// Epoch that comes next.
    pub(crate) next_epoch: u64,
    /// Best figure so far, and which one it is.
    best: Option<(Monitored, f64)>,
    /// Validations since.
    since_best: u64,
}

impl Progress {
    /// A validation found `figure`; whether it is the best one so far. What is not a number is never better. Where another
    /// figure was watched before, the search begins anew.
    pub(crate) fn validated(&mut self, figure: Option<f64>, monitored: Monitored) -> bool {
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

    /// Whether `patience` validations brought nothing better; 0 goes on for ever.
    pub(crate) fn is_over(&self, patience: u64) -> bool {
        patience > 0 && self.since_best >= patience
    }

    /// The state by name.
    pub(crate) fn state(&self) -> Vec<(String, Tensor)> {
        let Self { first_epoch, steps_before, next_epoch, best, since_best } = *self;
        let counts = [first_epoch, steps_before, next_epoch, since_best].map(u64::cast_signed);
        let counts = (format!("{KEY}/counts"), Tensor::from_slice(&counts));
        let best = best.map(|(figure, best)| (best_key(figure), Tensor::from_slice(&[best])));
        std::iter::once(counts).chain(best).collect()
    }

    /// The same at the end of an epoch, `steps` steps after training began: what another trial can go on from.
    pub(crate) fn state_at_end(&self, steps: u64) -> Vec<(String, Tensor)> {
        let mut state = self.state();
        state.push((format!("{KEY}/ended"), Tensor::from_slice(&[steps.cast_signed()])));
        state
    }

    /// The progress of a trial that goes on from what [`Self::state_at_end`] kept; none if that is not in it.
    pub(crate) fn after(state: &BTreeMap<String, Tensor>) -> Option<Self> {
        let steps = state.get(&format!("{KEY}/ended"))?.f_int64_value(&[0]).ok()?.cast_unsigned();
        let before = Self::of(state)?;
        Some(Self { first_epoch: before.next_epoch, steps_before: steps, ..before })
    }

    /// What [`Self::state`] kept; none if that is not in it.
    pub(crate) fn of(state: &BTreeMap<String, Tensor>) -> Option<Self> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends_after_so_many_validations_without_a_better_figure() {
        let run = |monitored, patience, figures: &[Option<f64>]| {
            let mut progress = Progress::default();
            let better: Vec<bool> = figures.iter().map(|f| progress.validated(*f, monitored)).collect();
            (better, progress.is_over(patience))
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
        assert!(progress.validated(Some(0.5), Monitored::Loss));
        assert!(!progress.validated(Some(0.6), Monitored::Loss));
        let mut progress = Progress::of(&progress.state().into_iter().collect()).unwrap();
        assert!(!progress.validated(None, Monitored::Pearson));
        assert!(!progress.is_over(2), "what was waited for was the loss");
        assert!(progress.validated(Some(0.1), Monitored::Pearson));
        assert!(!progress.validated(Some(0.05), Monitored::Pearson));
    }

    #[test]
    fn it_is_kept_whole() {
        let mut progress = Progress { first_epoch: 3, steps_before: 70, next_epoch: 5, ..Progress::default() };
        let again = |progress: &Progress| Progress::of(&progress.state().into_iter().collect());
        assert_eq!(again(&progress), Some(progress));
        progress.validated(Some(0.1 + 0.2), Monitored::Loss);
        progress.validated(Some(0.5), Monitored::Loss);
        assert_eq!(again(&progress), Some(progress));
        assert_eq!(Progress::of(&BTreeMap::new()), None);
        assert_eq!(
            Progress::after(&progress.state().into_iter().collect()),
            None,
            "it may be in the middle of an epoch"
        );
        let after = Progress::after(&progress.state_at_end(90).into_iter().collect()).unwrap();
        assert_eq!(after, Progress { first_epoch: 5, steps_before: 90, ..progress });
    }
}
