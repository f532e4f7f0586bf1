use std::collections::BTreeMap;

use expctl_record::{LearningSchedule, Train};
use tch::Tensor;

use super::{CosineRestarts, Plateau};

/// Why a schedule cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// The warm-up leaves nothing of the first cycle.
    #[error(
        "train.schedule_warmup is {warm_up}, but a cycle has {epochs} epochs (train.schedule_epochs): set it to less"
    )]
    WarmUp {
        /// Epochs of warm-up.
        warm_up: u64,
        /// Epochs of the first cycle.
        epochs: u64,
    },
    /// The smallest rate is the larger one.
    #[error("train.schedule_min is {min}, above train.learning_rate, {max}: set it to less")]
    Range {
        /// Smallest rate.
        min: f64,
        /// Largest rate.
        max: f64,
    },
}

/// The learning rate of a trial.
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    /// Always the same.
    Constant(f64),
    /// Cosine annealing with warm restarts.
    CosineRestarts(CosineRestarts),
    /// Lower when validations no longer get better.
    Plateau(Plateau),
}

impl Schedule {
    /// As `train` says.
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

    /// The rate in `epoch`, from 0. Where validations decide it, the epochs before it have been reported.
    pub fn at(&self, epoch: u64) -> f64 {
        match self {
            Self::Constant(rate) => *rate,
            Self::CosineRestarts(cosine) => cosine.at(epoch),
            Self::Plateau(plateau) => plateau.rate(),
        }
    }

    /// A validation came to `figure`, of the kind that `train.monitor` names.
    pub fn validated(&mut self, figure: f64) {
        if let Self::Plateau(plateau) = self {
            plateau.validated(figure);
        }
    }

    /// The state by name: none where the epoch alone decides.
    pub fn state(&self) -> Vec<(String, Tensor)> {
        match self {
            Self::Plateau(plateau) => plateau.state(),
            Self::Constant(_) | Self::CosineRestarts(_) => Vec::new(),
        }
    }

    /// Take over a state.
    ///
    /// # Errors
    /// It has another shape.
    pub fn restore(&mut self, state: &BTreeMap<String, Tensor>) -> Result<(), String> {
        match self {
            Self::Plateau(plateau) => plateau.restore(state),
            Self::Constant(_) | Self::CosineRestarts(_) => Ok(()),
        }
    }
}
