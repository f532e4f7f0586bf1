//! Learning-rate schedules. Invariant: a rate is a function of the settings, the epoch and the validations before it.

use std::collections::BTreeMap;

use expctl_settings::{LearningSchedule, Monitored, Train};
use tch::Tensor;

use crate::state::StateError;

/// Why settings of a schedule contradict each other.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// The warm-up is as long as the first cycle.
    #[error(
        "train.schedule_warmup is {warm_up}, but a cycle has {epochs} epochs (train.schedule_epochs): set it to less"
    )]
    WarmUp {
        /// Epochs of warm-up.
        warm_up: u64,
        /// Epochs of the first cycle.
        epochs: u64,
    },
    /// The minimum rate is above the maximum.
    #[error("train.schedule_min is {min}, above train.learning_rate, {max}: set it to less")]
    Range {
        /// Minimum rate.
        min: f64,
        /// Maximum rate.
        max: f64,
    },
}

/// The learning-rate schedule of a trial.
#[derive(Clone, Debug, PartialEq)]
pub enum LearningRateSchedule {
    /// A constant rate.
    Constant(f64),
    /// Cosine annealing with warm restarts.
    CosineRestarts(CosineRestarts),
    /// The rate falls when validations stop improving.
    Plateau(Plateau),
}

impl LearningRateSchedule {
    /// The schedule of the settings `train`.
    ///
    /// # Errors
    /// The keys of the schedule contradict each other.
    pub fn new(train: &Train) -> Result<Self, ScheduleError> {
        let (max, min, factor) = (train.learning_rate, train.schedule_min, train.schedule_factor);
        if train.schedule != LearningSchedule::Constant && min > max {
            return Err(ScheduleError::Range { min, max });
        }
        let (epochs, warm_up) = (train.schedule_epochs, train.schedule_warmup);
        Ok(match train.schedule {
            LearningSchedule::Constant => Self::Constant(max),
            LearningSchedule::CosineRestarts if warm_up >= epochs => {
                return Err(ScheduleError::WarmUp { warm_up, epochs });
            }
            LearningSchedule::CosineRestarts => {
                let stretch = train.schedule_stretch;
                Self::CosineRestarts(CosineRestarts { max, min, epochs, stretch, warm_up, factor })
            }
            LearningSchedule::Plateau => {
                Self::Plateau(Plateau::new(train.monitor, max, factor, train.schedule_patience, min))
            }
        })
    }

    /// The rate in `epoch`, from 0. Where validations decide it, those of the epochs before have been reported.
    pub fn rate(&self, epoch: u64) -> f64 {
        match self {
            Self::Constant(rate) => *rate,
            Self::CosineRestarts(cosine) => cosine.rate(epoch),
            Self::Plateau(plateau) => plateau.rate(),
        }
    }

    /// Report the `figure` of a validation, the one that `train.monitor` names.
    pub fn report_validation(&mut self, figure: f64) {
        if let Self::Plateau(plateau) = self {
            plateau.report_validation(figure);
        }
    }

    /// The state by name: empty where the epoch alone decides the rate.
    pub fn state(&self) -> Vec<(String, Tensor)> {
        match self {
            Self::Plateau(plateau) => plateau.state(),
            Self::Constant(_) | Self::CosineRestarts(_) => Vec::new(),
        }
    }

    /// Restore a state.
    ///
    /// # Errors
    /// A tensor has another shape, or cannot be read.
    pub fn restore(&mut self, state: &BTreeMap<String, Tensor>) -> Result<(), StateError> {
        match self {
            Self::Plateau(plateau) => plateau.restore(state),
            Self::Constant(_) | Self::CosineRestarts(_) => Ok(()),
        }
    }
}

/// Cosine annealing with warm restarts and a linear warm-up in each cycle, stepped once an epoch.
///
/// Source: `CosineAnnealingWarmupRestarts` of the Python package cosine-annealing-warmup, rate for rate. Its constructor sets the minimum
/// rate after its first step, so the whole first epoch runs at the minimum rate even without a warm-up, here too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CosineRestarts {
    /// Peak of the first cycle.
    pub max: f64,
    /// Rate at which each cycle starts and ends.
    pub min: f64,
    /// Epochs of the first cycle.
    pub epochs: u64,
    /// Ratio of the length of a cycle, without its warm-up, to that of the previous one.
    pub stretch: f64,
    /// Epochs at the start of each cycle in which the rate rises; fewer than `epochs`.
    pub warm_up: u64,
    /// Ratio of the peak of a cycle to that of the previous one.
    pub factor: f64,
}

impl CosineRestarts {
    /// The rate in `epoch`, from 0.
    pub fn rate(&self, epoch: u64) -> f64 {
        if epoch == 0 {
            return self.min;
        }
        let (mut length, mut in_cycle, mut cycle) = (self.epochs.max(self.warm_up + 1), epoch, 0u32);
        while in_cycle >= length {
            in_cycle -= length;
            cycle += 1;
            // Where the cycles shrink, the package divides by 0 in the end; here they have at least one epoch behind the warm-up.
            length = (((length - self.warm_up) as f64 * self.stretch) as u64).max(1) + self.warm_up;
        }
        let rise = self.max * self.factor.powf(f64::from(cycle)) - self.min;
        if in_cycle < self.warm_up {
            return self.min + rise * in_cycle as f64 / self.warm_up as f64;
        }
        let progress = (in_cycle - self.warm_up) as f64 / (length - self.warm_up) as f64;
        self.min + rise * (1.0 + (std::f64::consts::PI * progress).cos()) / 2.0
    }
}

/// Minimum improvement of a figure, relative to the best one.
const THRESHOLD: f64 = 1e-4;
/// Minimum fall of the rate.
const MIN_FALL: f64 = 1e-8;

/// Lowers the rate when a figure has not improved for a while.
///
/// Source: `ReduceLROnPlateau` of PyTorch 2.11 with its defaults (relative threshold 1e-4, no cooldown), mode `min` for the
/// loss and `max` for Pearson's correlation. As there, the threshold of a negative best correlation lies below it.
#[derive(Clone, Debug, PartialEq)]
pub struct Plateau {
    monitor: Monitored,
    factor: f64,
    patience: u64,
    min: f64,
    rate: f64,
    best: f64,
    /// Validations since the best one, or since the last fall.
    since_best: u64,
}

impl Plateau {
    /// Start at `rate`; multiply by `factor`, down to `min`, after more than `patience` figures without an improvement.
    pub fn new(monitor: Monitored, rate: f64, factor: f64, patience: u64, min: f64) -> Self {
        let best = worst_figure(monitor);
        Self { monitor, factor, patience, min, rate, best, since_best: 0 }
    }

    /// The current rate.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Report the `figure` of a validation. NaN is never an improvement.
    pub fn report_validation(&mut self, figure: f64) {
        let better = match self.monitor {
            Monitored::Loss => figure < self.best * (1.0 - THRESHOLD),
            Monitored::Pearson => figure > self.best * (1.0 + THRESHOLD),
        };
        if better {
            (self.best, self.since_best) = (figure, 0);
            return;
        }
        self.since_best += 1;
        if self.since_best > self.patience {
            self.since_best = 0;
            let lower = (self.rate * self.factor).max(self.min);
            if self.rate - lower > MIN_FALL {
                self.rate = lower;
            }
        }
    }

    /// The state by name: float64 `[3]`, the rate, the best figure and the validations since.
    pub fn state(&self) -> Vec<(String, Tensor)> {
        vec![(key(self.monitor), Tensor::from_slice(&[self.rate, self.best, self.since_best as f64]))]
    }

    /// Restore a state, if there is one. From a run that monitored another figure only the rate is taken.
    ///
    /// # Errors
    /// The tensor has another shape, or cannot be read.
    pub fn restore(&mut self, state: &BTreeMap<String, Tensor>) -> Result<(), StateError> {
        let found = Monitored::ALL.into_iter().find_map(|figure| Some((figure, state.get(&key(figure))?)));
        let Some((figure, stored)) = found else { return Ok(()) };
        let stored = Vec::<f64>::try_from(stored).map_err(|source| StateError::Tensor { name: key(figure), source })?;
        let &[rate, best, since_best] = stored.as_slice() else {
            return Err(StateError::TensorShape { name: key(figure) });
        };
        self.rate = rate;
        (self.best, self.since_best) =
            if figure == self.monitor { (best, since_best as u64) } else { (worst_figure(self.monitor), 0) };
        Ok(())
    }
}

/// The figure that any other one improves on.
const fn worst_figure(monitor: Monitored) -> f64 {
    match monitor {
        Monitored::Loss => f64::INFINITY,
        Monitored::Pearson => f64::NEG_INFINITY,
    }
}

fn key(monitor: Monitored) -> String {
    format!("schedule/plateau/{}", monitor.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLISHED: CosineRestarts =
        CosineRestarts { max: 5e-4, min: 1e-6, epochs: 300, stretch: 0.75, warm_up: 0, factor: 0.5 };

    fn near(schedule: CosineRestarts, epoch: u64, expected: f64) {
        let got = schedule.rate(epoch);
        assert!((got - expected).abs() < 1e-15, "epoch {epoch}: {got}, not {expected}");
    }

    #[test]
    fn the_published_cycles() {
        near(PUBLISHED, 0, 1e-6);
        let cosine = |max: f64, gone: f64| 1e-6 + (max - 1e-6) * (1.0 + (std::f64::consts::PI * gone).cos()) / 2.0;
        near(PUBLISHED, 1, cosine(5e-4, 1.0 / 300.0));
        near(PUBLISHED, 150, (5e-4 + 1e-6) / 2.0);
        near(PUBLISHED, 299, cosine(5e-4, 299.0 / 300.0));
        // A restart is not the start: it is at the peak at once.
        near(PUBLISHED, 300, 2.5e-4);
        near(PUBLISHED, 524, cosine(2.5e-4, 224.0 / 225.0));
        // 225 · 0.75 = 168.75, of which the fraction is dropped.
        near(PUBLISHED, 525, 1.25e-4);
        near(PUBLISHED, 525 + 168, 0.625e-4);
    }

    #[test]
    fn warm_up_in_each_cycle() {
        let schedule = CosineRestarts { max: 1.0, min: 0.0, epochs: 10, stretch: 1.5, warm_up: 4, factor: 0.5 };
        for (epoch, expected) in [(0, 0.0), (1, 0.25), (3, 0.75), (4, 1.0), (7, 0.5), (10, 0.0), (12, 0.25)] {
            near(schedule, epoch, expected);
        }
        // (10 − 4) · 1.5 + 4 = 13 epochs, then (13 − 4) · 1.5 + 4 = 17.
        near(schedule, 10 + 4, 0.5);
        near(schedule, 10 + 13, 0.0);
        near(schedule, 10 + 13 + 4, 0.25);
    }

    #[test]
    fn cycles_that_shrink_to_nothing_stay_one_epoch_long() {
        let schedule = CosineRestarts { epochs: 2, stretch: 0.5, ..PUBLISHED };
        assert!((0..200).all(|epoch| schedule.rate(epoch).is_finite()));
    }

    fn rates(plateau: &mut Plateau, figures: &[f64]) -> Vec<f64> {
        figures
            .iter()
            .map(|figure| {
                plateau.report_validation(*figure);
                plateau.rate()
            })
            .collect()
    }

    #[test]
    fn it_falls_after_more_than_its_patience() {
        let mut plateau = Plateau::new(Monitored::Loss, 0.1, 0.5, 2, 0.03);
        // 0.99995 is not better than 1 by a ten thousandth.
        let got = rates(&mut plateau, &[1.0, 0.99995, 2.0, 1.5, 0.9, 0.9, f64::NAN, 0.9, 0.9, 0.9, 0.9]);
        assert_eq!(got, [0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.03, 0.03, 0.03, 0.03]);
    }

    #[test]
    fn of_a_correlation_the_larger_is_the_better() {
        let mut plateau = Plateau::new(Monitored::Pearson, 0.1, 0.5, 0, 0.0);
        let got = rates(&mut plateau, &[0.2, 0.3, 0.3, 0.4, 0.1]);
        assert_eq!(got, [0.1, 0.1, 0.05, 0.05, 0.025]);
        // As in PyTorch: −0.2 · 1.0001 is below −0.2.
        let mut plateau = Plateau::new(Monitored::Pearson, 0.1, 0.5, 0, 0.0);
        assert_eq!(rates(&mut plateau, &[-0.2, -0.2]), [0.1, 0.1]);
    }

    #[test]
    fn falls_too_small_to_matter_are_left_out() {
        let mut plateau = Plateau::new(Monitored::Loss, 1.5e-8, 0.5, 0, 0.0);
        assert_eq!(rates(&mut plateau, &[1.0, 1.0]), [1.5e-8, 1.5e-8]);
    }

    #[test]
    fn a_state_that_was_put_back_goes_on_alike() {
        let figures = [1.0, 1.1, 0.8, 0.9, 0.9, 0.7, 0.9, 0.9];
        let mut whole = Plateau::new(Monitored::Loss, 0.1, 0.5, 1, 0.0);
        let all = rates(&mut whole, &figures);
        let mut first = Plateau::new(Monitored::Loss, 0.1, 0.5, 1, 0.0);
        rates(&mut first, &figures[..4]);
        let mut second = Plateau::new(Monitored::Loss, 0.1, 0.5, 1, 0.0);
        second.restore(&first.state().into_iter().collect()).unwrap();
        assert_eq!(rates(&mut second, &figures[4..]), all[4..]);
        assert!(all.iter().any(|rate| *rate < 0.1));
        let wrong = BTreeMap::from([(key(Monitored::Loss), Tensor::from_slice(&[1.0f64]))]);
        assert!(second.restore(&wrong).unwrap_err().to_string().contains("another shape"));
    }

    /// Labels or predictions that do not vary have no correlation, which is no improvement.
    #[test]
    fn a_correlation_that_does_not_exist_is_waited_through() {
        let mut plateau = Plateau::new(Monitored::Pearson, 0.1, 0.5, 1, 0.0);
        let none = f64::NAN;
        assert_eq!(
            rates(&mut plateau, &[none, none, 0.1, none, none, none, 0.2]),
            [0.1, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025]
        );
    }

    #[test]
    fn the_state_of_a_run_that_watched_another_figure_leaves_the_rate_alone() {
        let mut before = Plateau::new(Monitored::Loss, 0.1, 0.5, 1, 0.0);
        rates(&mut before, &[0.9, 1.0, 1.0, 1.0]);
        let mut after = Plateau::new(Monitored::Pearson, 0.1, 0.5, 1, 0.0);
        after.restore(&before.state().into_iter().collect()).unwrap();
        // The loss's 0.9 is no correlation to beat, and its waiting is over.
        assert_eq!(rates(&mut after, &[0.1, 0.1, 0.1]), [0.05, 0.05, 0.025]);
    }
}
