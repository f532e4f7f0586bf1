//! `[search]`: how settings are searched.

use expctl_settings_derive::section;
use serde::{Deserialize, Serialize};

/// `[search]`, beside the settings that are searched. It is no part of a trial: it says which trials a search runs.
#[section("search", per_job, not_run)]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Search {
    /// Seconds of trials in all; the first round runs in any case. 0 sets no limit beside that of every search
    /// ([less than a third of the grid](../guide/search.md#how-it-works)).
    #[setting(default = 0.0, added, min = 0.0)]
    pub budget_s: f64,
    /// Runs of full length of each point, at most.
    #[setting(default = 5, added, min = 1, max = 100)]
    pub max_repeats: u32,
    /// Smallest gain that matters, percent. Among points that differ by no more, the one with the fewest loader threads and the fewest samples
    /// held in memory is chosen.
    #[setting(default = 3.0, added, min = 0.1, max = 100.0)]
    pub min_gain_percent: f64,
}
