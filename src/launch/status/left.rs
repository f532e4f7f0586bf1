//! When a job will have ended, as far as that can be said.

use super::pace::Pace;
use super::state::{JobStatus, State};
use crate::stats::mean;

/// Estimated time until the last trial of a job has ended, s. Trials that wait take as long as those that ended, or, before
/// there are any, as those that run will have taken; they start as others end, as many at a time as the throttle allows,
/// or as run now where there is none. Time in the queue before the first start is not in it.
///
/// `running` holds each running trial with the seconds since it began. None where there is nothing to go by.
pub fn estimated_s_left(job: &JobStatus, running: &[(&Pace, f64)]) -> Option<f64> {
    let waiting = job.trials.iter().filter(|t| t.state == State::Waiting).count();
    let active = job.trials.iter().filter(|t| t.state == State::Running).count();
    let took = job.trials.iter().filter(|t| t.state == State::Completed).filter_map(|t| {
        let outcome = t.outcome.as_ref()?;
        Some((outcome.ended - outcome.started).max(0) as f64)
    });
    let ended = mean(&took.collect::<Vec<_>>());
    let will_take: Vec<f64> = running.iter().filter_map(|(pace, since)| Some(pace.estimated_s_left? + since)).collect();
    let each = ended.or_else(|| mean(&will_take));
    // One that has no step yet has almost all before it.
    let mut left: Vec<f64> = running
        .iter()
        .filter_map(|(pace, since)| pace.estimated_s_left.or_else(|| Some((each? - since).max(0.0))))
        .collect();
    while left.len() < active {
        left.push(each?);
    }
    if active + waiting == 0 {
        return None;
    }
    let throttle = job.record.trials.first().map_or(0, |t| t.settings.slurm.throttle) as usize;
    let lanes = match job.record.on_slurm() {
        true if throttle > 0 => throttle,
        true => active.max(1),
        false => 1,
    };
    last_end(left, lanes, waiting, each)
}

/// When the last one ends, if `waiting` more of `each` seconds start one by one as those that have `running` left end, on
/// `lanes` places.
fn last_end(mut running: Vec<f64>, lanes: usize, waiting: usize, each: Option<f64>) -> Option<f64> {
    running.resize(running.len().max(lanes), 0.0);
    for _ in 0..waiting {
        let first = running.iter_mut().min_by(|a, b| a.total_cmp(b))?;
        *first += each?;
    }
    running.into_iter().max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_wait_take_the_first_free_place() {
        assert_eq!(last_end(vec![3.0], 1, 2, Some(10.0)), Some(23.0));
        assert_eq!(last_end(vec![3.0, 8.0], 2, 2, Some(10.0)), Some(18.0));
        assert_eq!(last_end(vec![3.0, 8.0], 2, 3, Some(10.0)), Some(23.0));
        // Places that are free now.
        assert_eq!(last_end(Vec::new(), 4, 5, Some(10.0)), Some(20.0));
        assert_eq!(last_end(vec![3.0], 1, 0, None), Some(3.0));
        assert_eq!(last_end(vec![3.0], 1, 1, None), None);
    }
}
