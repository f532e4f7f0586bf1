use serde::{Deserialize, Serialize};

/// A published way to make a rate, which a note shows beside the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Estimator {
    /// That of experiment 087: the timer of a step starts after its batch has arrived from the loader.
    TimerAfterArrival,
}

impl Estimator {
    /// All estimators.
    pub const ALL: [Self; 1] = [Self::TimerAfterArrival];

    /// The word used in configs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TimerAfterArrival => "timer_after_arrival",
        }
    }

    /// What it leaves out, for the label of its figures.
    pub const fn label(self) -> &'static str {
        match self {
            Self::TimerAfterArrival => "starts after the batch has arrived; fetch, masks and collation are not in it",
        }
    }
}
