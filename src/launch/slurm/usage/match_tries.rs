//! Which attempt of ours ran in which of Slurm's tries of its array task.

use expctl_record::{SlurmStep, SlurmTry};

/// Seconds by which the clocks of controller, node and file server may differ; also, Slurm's times are whole seconds.
const SKEW: i64 = 2;

/// For each attempt of one array task, in their order, the place of its try; none if Slurm knows none. `started` is when each
/// attempt began, seconds since the epoch. A try may have several attempts, and one that ended early has none.
pub(super) fn match_tries(tries: &[SlurmTry], started: &[i64]) -> Vec<Option<usize>> {
    let in_time: Vec<Option<usize>> = started.iter().map(|s| tries.iter().rposition(|t| during(t, *s))).collect();
    if in_time.iter().all(Option::is_some) {
        return in_time;
    }
    // The clocks may be far apart; or the attempt was made afterwards, for a task that never came to make it.
    let possible = |t: &SlurmTry, s: i64| t.submitted.is_none_or(|submitted| submitted <= s + SKEW);
    if tries.len() == started.len() && tries.iter().zip(started).all(|(t, s)| possible(t, *s)) {
        return (0..tries.len()).map(Some).collect();
    }
    let begun = |s: i64| tries.iter().rposition(|t| t.started.is_some_and(|start| start <= s + SKEW));
    in_time.into_iter().zip(started).map(|(found, s)| found.or_else(|| begun(*s))).collect()
}

fn during(one: &SlurmTry, moment: i64) -> bool {
    let begun = one.started.is_some_and(|start| start <= moment + SKEW);
    begun && one.ended.is_none_or(|end| moment <= end + SKEW)
}

/// What of a try is the `place`-th of `attempts` that ran in it: where each has a step of its own (one `srun` after the
/// other), that step. Otherwise they have it together.
pub(super) fn share(of: &SlurmTry, place: usize, attempts: usize) -> SlurmTry {
    let runs = |step: &&SlurmStep| step.step.parse::<u32>().is_ok();
    if attempts < 2 || of.steps.iter().filter(runs).count() != attempts {
        return of.clone();
    }
    let steps: Vec<SlurmStep> = of.steps.iter().filter(runs).nth(place).cloned().into_iter().collect();
    SlurmTry {
        max_rss_bytes: steps.iter().filter_map(|s| s.max_rss_bytes).max(),
        cpu_s: steps.iter().find_map(|s| s.cpu_s),
        steps,
        ..of.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tries(spans: &[(i64, i64)]) -> Vec<SlurmTry> {
        let one = |(start, end): &(i64, i64)| SlurmTry {
            submitted: Some(start - 5),
            started: Some(*start),
            ended: Some(*end),
            ..SlurmTry::default()
        };
        spans.iter().map(one).collect()
    }

    #[test]
    fn attempts_are_found_by_time() {
        assert_eq!(match_tries(&tries(&[(100, 200), (210, 300)]), &[101, 212]), [Some(0), Some(1)]);
        // The first try ended before it could make an attempt; the second ran two trials.
        assert_eq!(match_tries(&tries(&[(100, 101), (210, 300)]), &[211, 250]), [Some(1), Some(1)]);
    }

    #[test]
    fn clocks_that_are_apart_leave_the_order() {
        assert_eq!(match_tries(&tries(&[(100, 200), (210, 300)]), &[600, 710]), [Some(0), Some(1)]);
        // Slurm's own job of that number, submitted long after ours.
        assert_eq!(match_tries(&tries(&[(90_000, 90_010)]), &[100]), [None]);
    }

    #[test]
    fn an_attempt_that_was_made_afterwards_gets_the_try_that_made_none() {
        let cancelled = SlurmTry { submitted: Some(90), ended: Some(95), ..SlurmTry::default() };
        assert_eq!(match_tries(&[cancelled], &[400]), [Some(0)]);
        assert_eq!(match_tries(&tries(&[(100, 200), (210, 220)]), &[110, 160, 400]), [Some(0), Some(0), Some(1)]);
    }

    #[test]
    fn a_try_that_the_controller_has_forgotten_has_no_attempt() {
        assert_eq!(match_tries(&tries(&[(210, 300)]), &[101, 212]), [None, Some(0)]);
    }

    #[test]
    fn trials_that_ran_one_after_the_other_have_a_step_each() {
        let step = |name: &str, rss| SlurmStep {
            step: name.into(),
            max_rss_bytes: Some(rss),
            cpu_s: Some(rss as f64),
            ..SlurmStep::default()
        };
        let steps = vec![step("batch", 5), step("extern", 1), step("0", 30), step("1", 40)];
        let whole = SlurmTry { max_rss_bytes: Some(40), cpu_s: Some(76.0), steps, ..SlurmTry::default() };
        let first = share(&whole, 0, 2);
        assert_eq!((first.max_rss_bytes, first.steps.len(), first.steps[0].step.as_str()), (Some(30), 1, "0"));
        let second = share(&whole, 1, 2);
        assert_eq!((second.max_rss_bytes, first.cpu_s, second.cpu_s), (Some(40), Some(30.0), Some(40.0)));
        assert_eq!(share(&whole, 0, 1), whole);
        assert_eq!(share(&whole, 2, 3), whole);
    }
}
