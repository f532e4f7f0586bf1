use expctl_record::StepRecord;
use serde::Serialize;

use super::{LedgerSteps, Store};
use crate::report::breakdown::Breakdown;

/// Steps below which nothing is said of the slowest tenth.
const FEWEST: usize = 10;

/// Which batches count as slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SlowBatches {
    /// Those of the period that was followed.
    OnBeat {
        /// Batches from one to the next.
        period: usize,
    },
    /// The slowest tenth, where there is no period.
    SlowestTenth,
}

/// In which stages the slow batches of a method take longer than the others: why they are slow. Measured means, by the ledger's steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlowStages {
    /// Which batches are the slow ones.
    pub slow: SlowBatches,
    /// How many there are.
    pub batches: u64,
    /// How many others.
    pub others: u64,
    /// Mean wall time of a slow one, s.
    pub slow_s: f64,
    /// Mean wall time of another, s.
    pub others_s: f64,
    /// Stages that happened, in their order, and unattributed time last.
    pub stages: Vec<SlowStage>,
}

/// One stage of the slow batches and of the others; means per step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlowStage {
    /// Its name; `unattributed` for the time that no stage claims.
    pub stage: &'static str,
    /// What a slow batch was waited for in it, s.
    pub exposed_slow_s: f64,
    /// What another was waited for in it, s.
    pub exposed_others_s: f64,
    /// Share of the difference of the wall times that the difference of the exposed times is; below 0 where slow batches wait less.
    pub share: f64,
    /// What was worked on a slow batch in it, summed over threads, s; none of unattributed time.
    pub busy_slow_s: Option<f64>,
    /// What was worked on another, s.
    pub busy_others_s: Option<f64>,
}

impl SlowStages {
    /// Of the series of a method at `places`; `beats` is the period that was followed, with the rows of each series that are on it. None
    /// where the slow batches are no slower by the mean, and where rows are out of order.
    pub(super) fn of(
        store: &Store,
        steps: &LedgerSteps<'_>,
        places: &[usize],
        beats: Option<(usize, Vec<Vec<usize>>)>,
    ) -> Option<Self> {
        // A step is found by its row, and rows out of order were put in order.
        if !places.iter().all(|place| store.series()[*place].check().is_some_and(|check| check.in_order)) {
            return None;
        }
        let (slow, [on, off]) = match beats {
            Some((period, beats)) => (SlowBatches::OnBeat { period }, on_and_off(steps, places, &beats)),
            None => (SlowBatches::SlowestTenth, slowest_tenth(steps, places)?),
        };
        Self::between(slow, &on, &off)
    }

    fn between(slow: SlowBatches, on: &[&StepRecord], off: &[&StepRecord]) -> Option<Self> {
        let (on, off) = (Breakdown::from_steps(on.iter().copied())?, Breakdown::from_steps(off.iter().copied())?);
        let more = on.wall - off.wall;
        if more.is_nan() || more <= 0.0 {
            return None;
        }
        let seconds = |ns: Option<f64>| ns.unwrap_or(0.0) / 1e9;
        let exposed = on.exposed.iter().zip(&off.exposed);
        let busy = on.busy.iter().zip(&off.busy);
        let mut stages = Vec::new();
        for (((stage, waited), (_, waited_others)), ((_, busy_slow), (_, busy_others))) in exposed.zip(busy) {
            // A stage that happens in some of the steps only takes no time in the mean of the others.
            if waited.is_none() && waited_others.is_none() {
                continue;
            }
            stages.push(SlowStage {
                stage: stage.name(),
                exposed_slow_s: seconds(*waited),
                exposed_others_s: seconds(*waited_others),
                share: (waited.unwrap_or(0.0) - waited_others.unwrap_or(0.0)) / more,
                busy_slow_s: Some(seconds(*busy_slow)),
                busy_others_s: Some(seconds(*busy_others)),
            });
        }
        stages.push(SlowStage {
            stage: "unattributed",
            exposed_slow_s: on.unattributed / 1e9,
            exposed_others_s: off.unattributed / 1e9,
            share: (on.unattributed - off.unattributed) / more,
            busy_slow_s: None,
            busy_others_s: None,
        });
        let (slow_s, others_s) = (on.wall / 1e9, off.wall / 1e9);
        Some(Self { slow, batches: on.steps, others: off.steps, slow_s, others_s, stages })
    }

    /// Stages for which the slow batches waited longer, those with the largest share of the difference first.
    pub fn by_share(&self) -> Vec<&SlowStage> {
        let mut all: Vec<&SlowStage> = self.stages.iter().filter(|stage| stage.share > 0.0).collect();
        all.sort_by(|a, b| b.share.total_cmp(&a.share));
        all
    }

    /// The stage of which the slow batches need most more work, with that of a slow batch and of another, s; none where they need no more.
    pub fn most_worked(&self) -> Option<(&'static str, f64, f64)> {
        let worked = self.stages.iter().filter_map(|of| Some((of.stage, of.busy_slow_s?, of.busy_others_s?)));
        worked.filter(|(_, slow, others)| slow > others).max_by(|a, b| (a.1 - a.2).total_cmp(&(b.1 - b.2)))
    }
}

/// The steps at these rows of each series, and all others.
fn on_and_off<'a>(steps: &LedgerSteps<'a>, places: &[usize], beats: &[Vec<usize>]) -> [Vec<&'a StepRecord>; 2] {
    let (mut on, mut off) = (Vec::new(), Vec::new());
    for (place, beats) in places.iter().zip(beats) {
        let mut next = beats.iter().peekable();
        for (row, step) in steps.steps(*place).iter().enumerate() {
            if next.next_if(|beat| **beat == row).is_some() { &mut on } else { &mut off }.push(*step);
        }
    }
    [on, off]
}

/// The slowest tenth of all steps, and all others; none of too few.
fn slowest_tenth<'a>(steps: &LedgerSteps<'a>, places: &[usize]) -> Option<[Vec<&'a StepRecord>; 2]> {
    let mut all: Vec<&StepRecord> = places.iter().flat_map(|place| steps.steps(*place).iter().copied()).collect();
    if all.len() < FEWEST {
        return None;
    }
    all.sort_by_key(|step| std::cmp::Reverse(step.wall_ns));
    let others = all.split_off((all.len() as f64 * 0.1).round() as usize);
    Some([all, others])
}

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_record::Stage;

    /// A step of which `read` ms are waited for the store and `rest` for nothing that has a name.
    fn step(read: u64, rest: u64) -> StepRecord {
        let mut step = StepRecord { wall_ns: (read + rest) * 1_000_000, measured: true, ..StepRecord::default() };
        step.exposed[Stage::Read] = read * 1_000_000;
        step.busy[Stage::Read] = read * 3_000_000;
        step.busy[Stage::Decode] = 5_000_000;
        step
    }

    #[test]
    fn the_difference_of_the_steps_is_that_of_their_stages() {
        let (slow, fast) = (step(90, 20), step(10, 10));
        let slow_batches = SlowBatches::OnBeat { period: 7 };
        let found = SlowStages::between(slow_batches, &[&slow, &slow], &[&fast; 5]).unwrap();
        assert_eq!((found.batches, found.others), (2, 5));
        assert!((found.slow_s - 0.11).abs() < 1e-12 && (found.others_s - 0.02).abs() < 1e-12, "{found:?}");
        let shares: Vec<(&str, i64)> =
            found.stages.iter().map(|of| (of.stage, (of.share * 900.0).round() as i64)).collect();
        // 80 ms and 10 ms of 90 ms; decoding was waited for in neither.
        assert_eq!(shares, [("read", 800), ("decode", 0), ("unattributed", 100)]);
        assert!((found.stages.iter().map(|of| of.share).sum::<f64>() - 1.0).abs() < 1e-12);
        assert_eq!(found.by_share().iter().map(|of| of.stage).collect::<Vec<_>>(), ["read", "unattributed"]);
        let (stage, worked, before) = found.most_worked().unwrap();
        assert!(stage == "read" && (worked - 0.27).abs() < 1e-12 && (before - 0.03).abs() < 1e-12);
        // What is no slower has no reason to be.
        assert_eq!(SlowStages::between(slow_batches, &[&fast], &[&slow]), None);
        assert_eq!(SlowStages::between(slow_batches, &[&fast], &[&fast]), None);
    }
}
