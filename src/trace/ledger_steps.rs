use expctl_record::{AttemptDir, PerStage, RecordError, Stage, StepRecord};

use super::stages::StepTimes;

/// A stage of a rank, or its whole step, in the trace and in the ledger; means over the same steps, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreement {
    /// The stage; none for the whole step.
    pub stage: Option<Stage>,
    /// Busy, by trace and ledger; of the whole step its length.
    pub busy: (f64, f64),
    /// Exposed.
    pub exposed: (f64, f64),
}

/// Share of a step from which on a stage's difference says anything: below, it is that of the few microseconds that a range
/// itself takes.
pub const WORTH_COMPARING: f64 = 0.01;

impl Agreement {
    /// Busy and exposed time of the trace, each less the ledger's, as a share of that; none where the ledger has no time.
    pub fn differences(&self) -> [Option<f64>; 2] {
        let share = |(trace, ledger): (f64, f64)| (ledger > 0.0).then(|| trace / ledger - 1.0);
        [share(self.busy), share(self.exposed)]
    }

    /// The largest difference of those figures that are worth comparing in a step of so many ns.
    pub fn largest(&self, step: f64) -> Option<f64> {
        let worth = |(trace, ledger): (f64, f64)| trace.max(ledger) >= step * WORTH_COMPARING;
        let figures = [self.busy, self.exposed].into_iter().zip(self.differences());
        figures
            .filter(|(figures, _)| worth(*figures))
            // A time that the ledger lacks is wholly different.
            .map(|(_, difference)| difference.map_or(f64::INFINITY, f64::abs))
            .reduce(f64::max)
    }
}

/// The steps of `rank` in the ledger that `times` are of, in their order; none for one that is not there.
///
/// # Errors
/// The table of steps cannot be read.
pub fn records(attempt: &AttemptDir, rank: u32, times: &[StepTimes]) -> Result<Vec<Option<StepRecord>>, RecordError> {
    let steps = attempt.steps(rank)?;
    Ok(times.iter().map(|times| steps.iter().find(|step| step.step == times.step).cloned()).collect())
}

/// A step in the trace, and the same in the ledger.
type Pair<'p> = (&'p StepTimes, &'p StepRecord);

/// Trace and ledger side by side, for the stages that either has; the whole step last. Empty where the ledger has none of
/// the steps.
pub fn agreements(times: &[StepTimes], records: &[Option<StepRecord>]) -> Vec<Agreement> {
    let pairs: Vec<Pair<'_>> =
        times.iter().zip(records).filter_map(|(times, record)| Some((times, record.as_ref()?))).collect();
    if pairs.is_empty() {
        return Vec::new();
    }
    let mean = |of: &dyn Fn(&Pair<'_>) -> (u64, u64)| {
        let (trace, ledger) = pairs.iter().map(of).fold((0, 0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
        (trace as f64 / pairs.len() as f64, ledger as f64 / pairs.len() as f64)
    };
    let both = |trace: &PerStage<u64>, ledger: &PerStage<u64>, stage| (trace[stage], ledger[stage]);
    let mut all: Vec<Agreement> = Vec::new();
    for stage in Stage::ALL {
        let busy = mean(&|(times, record)| both(&times.busy, &record.busy, stage));
        let exposed = mean(&|(times, record)| both(&times.exposed, &record.exposed, stage));
        if [busy.0, busy.1, exposed.0, exposed.1].iter().any(|ns| *ns > 0.0) {
            all.push(Agreement { stage: Some(stage), busy, exposed });
        }
    }
    let wall = mean(&|(times, record)| (times.wall, record.wall_ns));
    all.push(Agreement { stage: None, busy: wall, exposed: wall });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_figures_that_make_a_part_of_the_step_are_judged() {
        let mut times = StepTimes { step: 3, wall: 990, ..StepTimes::default() };
        let mut record = StepRecord { step: 3, wall_ns: 1000, ..StepRecord::default() };
        for (stage, trace, ledger) in [(Stage::Forward, 612, 600), (Stage::Clip, 9, 4), (Stage::Read, 0, 0)] {
            (times.busy[stage], times.exposed[stage]) = (trace, trace);
            (record.busy[stage], record.exposed[stage]) = (ledger, ledger);
        }
        let found = agreements(&[times, StepTimes::default()], &[Some(record), None]);
        assert_eq!(found.iter().map(|a| a.stage).collect::<Vec<_>>(), [Some(Stage::Forward), Some(Stage::Clip), None]);
        let largest: Vec<_> = found.iter().map(|a| a.largest(1000.0).map(|d| (d * 1e4).round())).collect();
        assert_eq!(largest, [Some(200.0), None, Some(100.0)]);
        assert_eq!(found[1].differences(), [Some(1.25), Some(1.25)]);
        assert!(agreements(&[times], &[None]).is_empty());
        let lost = Agreement { stage: None, busy: (50.0, 0.0), exposed: (0.0, 0.0) };
        assert_eq!(lost.largest(1000.0), Some(f64::INFINITY));
    }
}
