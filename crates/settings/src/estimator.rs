use expctl_settings_derive::Words;

/// A published way to make a rate, which a note shows beside the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Words)]
pub enum Estimator {
    /// Experiment 087: the timer of a step starts after its batch has arrived from the loader.
    TimerAfterArrival,
    /// Experiment 086: the mean of the last 20 rates that a progress bar printed.
    #[word("last_20")]
    Last20,
}

impl Estimator {
    /// The label of its figures, which says what the rate leaves out.
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
