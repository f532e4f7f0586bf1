use serde::{Deserialize, Serialize};

/// A published way to make a rate, which a note shows beside the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Estimator {
    /// That of experiment 087: the timer of a step starts after its batch has arrived from the loader.
    TimerAfterArrival,
    /// That of experiment 086: the mean of the last 20 rates that a progress bar printed.
    #[serde(rename = "last_20")]
    Last20,
}

impl Estimator {
    /// All estimators.
    pub const ALL: [Self; 2] = [Self::TimerAfterArrival, Self::Last20];

    /// The word used in configs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TimerAfterArrival => "timer_after_arrival",
            Self::Last20 => "last_20",
        }
    }

    /// What it leaves out, for the label of its figures.
    pub const fn label(self) -> &'static str {
        match self {
            Self::TimerAfterArrival => "starts after the batch has arrived; fetch, masks and collation are not in it",
            Self::Last20 => {
                "mean of the last 20 rates of a progress bar that counts rank 0's steps from the start of the epoch, \
                 warm-up included; the published ones also took values of the validation bar, which are not made up here"
            }
        }
    }
}
