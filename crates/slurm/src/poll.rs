//! [`PollInterval`]: how long to wait between two questions to Slurm.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Interval after a change: more changes may follow.
const FIRST: Duration = Duration::from_secs(1);
/// Longest interval.
const MAX: Duration = Duration::from_secs(10);
/// Longest interval for a job of many tasks, for which an answer costs the controller more, and after [`LONG_QUIET`].
const MAX_PATIENT: Duration = Duration::from_secs(30);
/// Tasks above which a job counts as one of many.
const MANY_TASKS: usize = 1000;
/// Time without a change after which the next one is not expected within seconds.
const LONG_QUIET: Duration = Duration::from_secs(3600);
/// Each interval is longer or shorter by up to this share of it, so that processes that were started together do not go
/// on asking at the same moment.
const JITTER: f64 = 0.2;

/// The time until the next question to the controller: a second after a change, longer and longer while nothing
/// changes.
#[derive(Clone, Debug)]
pub struct PollInterval {
    /// The last interval without its jitter; `None` before the first.
    current: Option<Duration>,
    /// Sum of the intervals since the last change.
    quiet: Duration,
    many_tasks: bool,
    random: u64,
}

impl PollInterval {
    /// Intervals for a job that was just submitted.
    pub fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::with_seed((u64::from(std::process::id()) << 32) ^ u64::from(now.subsec_nanos()))
    }

    /// Intervals whose jitter is a function of `seed`.
    pub const fn with_seed(seed: u64) -> Self {
        Self { current: None, quiet: Duration::ZERO, many_tasks: false, random: seed }
    }

    /// Longer intervals if the job has many array `tasks`.
    #[must_use]
    pub const fn for_tasks(mut self, tasks: usize) -> Self {
        self.many_tasks = tasks > MANY_TASKS;
        self
    }

    /// The next interval; `changed` says whether the last answer differed from the one before.
    pub fn next(&mut self, changed: bool) -> Duration {
        let longest = if self.many_tasks || self.quiet >= LONG_QUIET { MAX_PATIENT } else { MAX };
        let current = match self.current {
            Some(last) if !changed => last.mul_f64(1.5).min(longest),
            _ => FIRST,
        };
        self.quiet = if changed { current } else { self.quiet.saturating_add(current) };
        self.current = Some(current);
        current.mul_f64(1.0 + JITTER * self.between_minus_one_and_one())
    }

    /// SplitMix64, in [-1, 1): jitter needs no better generator.
    fn between_minus_one_and_one(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        (z >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

impl Default for PollInterval {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Intervals without their jitter: that is checked against its bounds here.
    fn plain(interval: &mut PollInterval, changed: bool) -> f64 {
        let waited = interval.next(changed).as_secs_f64();
        let current = interval.current.unwrap().as_secs_f64();
        assert!((waited / current - 1.0).abs() <= JITTER + 1e-9, "{waited} for {current}");
        current
    }

    #[test]
    fn looks_become_seldom_while_nothing_changes_and_often_again_after() {
        let mut interval = PollInterval::with_seed(7);
        let quiet: Vec<f64> = (0..9).map(|_| plain(&mut interval, false)).collect();
        assert_eq!(quiet, [1.0, 1.5, 2.25, 3.375, 5.0625, 7.59375, 10.0, 10.0, 10.0]);
        assert_eq!(plain(&mut interval, true), 1.0);
        assert_eq!(plain(&mut interval, false), 1.5);
    }

    #[test]
    fn large_jobs_and_those_that_wait_for_an_hour_are_asked_about_less_often() {
        let mut large = PollInterval::with_seed(1).for_tasks(1001);
        assert_eq!((0..12).map(|_| plain(&mut large, false)).last(), Some(30.0));
        let mut small = PollInterval::with_seed(1).for_tasks(1000);
        let (mut waited, mut looks) = (0.0, 0);
        while plain(&mut small, false) <= 10.0 {
            waited += small.current.unwrap().as_secs_f64();
            looks += 1;
        }
        assert!((3600.0..3611.0).contains(&waited), "{waited} s");
        assert!(looks < 370, "{looks}");
        assert_eq!(plain(&mut small, true), 1.0);
        assert_eq!((0..12).map(|_| plain(&mut small, false)).last(), Some(10.0));
    }

    #[test]
    fn launchers_that_start_together_spread_out() {
        let first: Vec<f64> = (0..200).map(|seed| PollInterval::with_seed(seed).next(true).as_secs_f64()).collect();
        let mean = first.iter().sum::<f64>() / 200.0;
        assert!((mean - 1.0).abs() < 0.05, "{mean}");
        assert!(first.iter().any(|f| *f < 0.85) && first.iter().any(|f| *f > 1.15), "{first:?}");
        assert_eq!(PollInterval::with_seed(3).next(true), PollInterval::with_seed(3).next(true));
    }
}
