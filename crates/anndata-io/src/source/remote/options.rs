use std::path::PathBuf;
use std::time::Duration;

/// How objects are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteOptions {
    /// Requests that a process has under way at a time; not 0.
    pub requests: usize,
    /// Where blocks are kept; `None` reads all from the server.
    pub cache: Option<CacheOptions>,
    /// How long servers are given.
    pub patience: Patience,
}

/// A cache of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Folder that all processes of a node share.
    pub folder: PathBuf,
    /// Bytes that it takes at most.
    pub bytes: u64,
}

/// How long servers are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Longest that an answer, and then each part of it, is waited for.
    pub answer: Duration,
    /// Times that a part is asked for; not 0.
    pub attempts: u32,
    /// Pause before the second time; before each further one it is twice as long. Half to all of it is waited, by chance.
    pub pause: Duration,
    /// A pause is no longer than this.
    pub longest_pause: Duration,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self { requests: 32, cache: None, patience: Patience::default() }
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(20),
            attempts: 10,
            pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(10),
        }
    }
}

impl Patience {
    /// Pause before attempt number `attempt`, which is not the first; `chance` is any number.
    pub(super) fn pause(&self, attempt: u32, chance: u64) -> Duration {
        let whole = self.pause.saturating_mul(1 << (attempt.clamp(2, 20) - 2)).min(self.longest_pause);
        whole / 2 + (whole / 2).mul_f64((chance % 1024) as f64 / 1024.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound() {
        let patience = Patience::default();
        let longest: Vec<u128> = (2..12).map(|attempt| patience.pause(attempt, 1023).as_millis()).collect();
        assert!(longest.is_sorted() && longest[0] <= 100 && *longest.last().unwrap() <= 10_000, "{longest:?}");
        assert_eq!(patience.pause(2, 0), Duration::from_millis(50));
        assert_eq!(patience.pause(u32::MAX, 0), Duration::from_secs(5));
    }
}
