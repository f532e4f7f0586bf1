use std::time::{Duration, Instant};

use crate::process::{folder, proportional};

/// So many times as long as a look took, the next one waits: looks then take a thousandth of the time.
const REST: u32 = 1000;

/// Looks at proportional memory, as rarely as they are slow: the kernel walks all pages of a process for one.
#[derive(Debug, Default)]
pub(crate) struct Proportional {
    /// When the next look may be; none at first.
    due: Option<Instant>,
}

impl Proportional {
    /// Of all these processes, bytes; none where it is not time yet, or where a process does not say it.
    pub fn look(&mut self, pids: &[i32]) -> Option<u64> {
        if pids.is_empty() || self.due.is_some_and(|due| Instant::now() < due) {
            return None;
        }
        let begin = Instant::now();
        let all: Vec<u64> = pids.iter().filter_map(|pid| proportional(&folder(*pid))).collect();
        self.rest(begin.elapsed());
        (!all.is_empty()).then(|| all.iter().sum())
    }

    fn rest(&mut self, took: Duration) {
        self.due = Some(Instant::now() + took.saturating_mul(REST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_look_is_not_soon_repeated() {
        let own = [std::process::id() as i32];
        let mut looks = Proportional::default();
        assert_eq!(looks.look(&[]), None);
        assert!(looks.look(&own).is_some_and(|bytes| bytes > 1 << 20));
        looks.rest(Duration::from_secs(60));
        assert_eq!(looks.look(&own), None);
        looks.rest(Duration::ZERO);
        assert!(looks.look(&own).is_some());
    }
}
