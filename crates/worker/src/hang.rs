//! Notices that this rank's own step thread is stuck. Invariant: a rank that works and does not get on names itself before any
//! rank that only waits for it does.

use crate::activity::{Activity, Look};
use crate::monitor::Loss;

/// Counts the looks at which nothing has changed.
#[derive(Debug)]
pub(crate) struct HangWatch {
    rank: u32,
    /// Looks after which a rank that works is stuck; none where that is not watched.
    limit: Option<u64>,
    restarts: u64,
    looks: u64,
}

impl HangWatch {
    /// For a rank that counts as stuck after `limit` looks.
    pub(crate) fn new(rank: u32, limit: Option<u64>) -> Self {
        Self { rank, limit, restarts: 0, looks: 0 }
    }

    /// To call at each look.
    pub(crate) fn look(&mut self, activity: &Activity) -> Option<Loss> {
        let limit = self.limit?;
        let now = activity.look();
        let restarts = now.as_ref().map_or(self.restarts, |look| look.restarts);
        self.looks = if now.is_some() && restarts == self.restarts { self.looks + 1 } else { 0 };
        self.restarts = restarts;
        let Look { waits, place, .. } = now?;
        let rank = self.rank;
        let message = match waits {
            false if self.looks > limit => format!("rank {rank} has been {place}"),
            // Those who are waited for have had their time to say so: it is the way between the ranks.
            true if self.looks > 2 * limit => {
                format!("rank {rank} has waited for the others {place}, and none of them says that it is stuck")
            }
            _ => return None,
        };
        Some(Loss { rank, message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::Phase;
    use crate::activity::tests::among_others;

    fn looks_until_lost(watch: &mut HangWatch, activity: &Activity) -> Option<(u32, String)> {
        (1..100).find_map(|look| Some((look, watch.look(activity)?.message)))
    }

    #[test]
    fn a_rank_that_works_is_stuck_before_one_that_waits() {
        let activity = Activity::default();
        activity.step(41);
        let mut watch = HangWatch::new(2, Some(10));
        let (looks, message) = looks_until_lost(&mut watch, &activity).unwrap();
        assert_eq!((looks, message.as_str()), (12, "rank 2 has been at step 41 (load) for 0 s"));
        activity.enter(Phase::AwaitCheckpoint);
        let (looks, message) = looks_until_lost(&mut watch, &activity).unwrap();
        assert_eq!(looks, 22);
        assert!(message.starts_with("rank 2 has waited for the others at step 41 (checkpoint)"), "{message}");
    }

    #[test]
    fn a_rank_that_loads_is_stuck_before_one_whose_device_waits_for_it() {
        let (stuck, innocent) = (Activity::default(), among_others());
        stuck.step(41);
        innocent.step(41);
        innocent.phase(Phase::Device);
        let (looks, message) = looks_until_lost(&mut HangWatch::new(1, Some(10)), &stuck).unwrap();
        assert_eq!((looks, message.as_str()), (12, "rank 1 has been at step 41 (load) for 0 s"));
        let (later, message) = looks_until_lost(&mut HangWatch::new(0, Some(10)), &innocent).unwrap();
        assert!(later > looks, "{later}");
        assert!(message.starts_with("rank 0 has waited for the others at step 41 (device)"), "{message}");
        // Alone, it is its own device that does not get on.
        let alone = Activity::default();
        alone.step(41);
        alone.phase(Phase::Device);
        let (looks, message) = looks_until_lost(&mut HangWatch::new(0, Some(10)), &alone).unwrap();
        assert_eq!((looks, message.as_str()), (12, "rank 0 has been at step 41 (device) for 0 s"));
    }

    #[test]
    fn steps_that_get_on_and_a_rank_that_is_done_are_not_stuck() {
        let activity = Activity::default();
        let mut watch = HangWatch::new(0, Some(10));
        for step in 0..30 {
            activity.step(step);
            assert!((0..8).all(|_| watch.look(&activity).is_none()));
        }
        activity.enter(Phase::Over);
        assert_eq!(looks_until_lost(&mut watch, &activity), None);
        activity.step(1);
        assert_eq!(looks_until_lost(&mut HangWatch::new(0, None), &activity), None);
    }
}
