use expctl_record::{Run, Stage, StepRecord};
use serde::Serialize;

use super::figures::measured;
use super::format;

/// Seconds that a rank spent on a stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StageSeconds {
    /// The stage.
    pub stage: Stage,
    /// What its steps waited for the stage, s.
    pub exposed_s: f64,
    /// What was worked on it, summed over the threads of the rank, s.
    pub busy_s: f64,
}

/// What some steps of a rank took together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepSeconds {
    /// Number of the steps; a mean over ranks, so not always whole.
    pub steps: f64,
    /// Their summed wall time, s.
    pub wall_s: f64,
    /// The stages that happened in them, in their order.
    pub stages: Vec<StageSeconds>,
}

/// Seconds that a rank spent in its steps, by stage; means over the ranks of one run or of several. What passes between steps
/// (start, validation, checkpoints) is in none of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunTotals {
    /// Ranks that the means are over, those of all runs together.
    pub ranks: usize,
    /// The measured steps.
    pub measured: StepSeconds,
    /// All steps of the run, warm-up included.
    pub run: StepSeconds,
}

impl RunTotals {
    /// Over the completed ones among `runs`; none without measured steps.
    pub fn of(runs: &[&Run]) -> Option<Self> {
        let completed = runs.iter().filter(|run| run.completed());
        Self::of_ranks(&completed.flat_map(|run| run.ranks.iter().map(Vec::as_slice)).collect::<Vec<_>>())
    }

    /// Over the steps of ranks; none without measured steps.
    pub fn of_ranks(ranks: &[&[StepRecord]]) -> Option<Self> {
        let of_measured = StepSeconds::of(ranks.len(), ranks.iter().flat_map(|steps| measured(steps)))?;
        let run = StepSeconds::of(ranks.len(), ranks.iter().flat_map(|steps| steps.iter()))?;
        Some(Self { ranks: ranks.len(), measured: of_measured, run })
    }

    /// One sentence: the seconds of the measured steps by stage, and those of all steps.
    pub fn sentence(&self) -> String {
        let over = if self.ranks == 1 { String::new() } else { format!(" (mean of {} ranks)", self.ranks) };
        let (measured, run) = (&self.measured, &self.run);
        format!(
            "In seconds, of a rank{over}: {} in {} measured steps{}; {} in all {} steps with the warm-up{}.",
            format::seconds(measured.wall_s),
            format::rate(measured.steps),
            measured.exposed(),
            format::seconds(run.wall_s),
            format::rate(run.steps),
            run.exposed(),
        )
    }
}

impl StepSeconds {
    /// Sums over `steps` by rank, of so many `ranks`; none of no steps.
    fn of<'a>(ranks: usize, steps: impl Iterator<Item = &'a StepRecord>) -> Option<Self> {
        let (mut n, mut wall) = (0_u64, 0_u64);
        let mut times: [(u64, u64); Stage::ALL.len()] = Default::default();
        for step in steps {
            n += 1;
            wall += step.wall_ns;
            for (stage, (exposed, busy)) in Stage::ALL.into_iter().zip(&mut times) {
                *exposed += step.exposed[stage];
                *busy += step.busy[stage];
            }
        }
        let seconds = |ns: u64| ns as f64 / 1e9 / ranks as f64;
        let of_stage = |(stage, (exposed, busy)): (Stage, (u64, u64))| {
            let happened = exposed > 0 || busy > 0;
            happened.then(|| StageSeconds { stage, exposed_s: seconds(exposed), busy_s: seconds(busy) })
        };
        let stages = Stage::ALL.into_iter().zip(times).filter_map(of_stage).collect();
        (n > 0).then(|| Self { steps: n as f64 / ranks as f64, wall_s: seconds(wall), stages })
    }

    /// `, exposed collate 4 s, forward 2 s`; empty where no step waited for a stage.
    fn exposed(&self) -> String {
        let waited = self.stages.iter().filter(|of| of.exposed_s > 0.0);
        let words: Vec<String> = waited.map(|of| format!("{} {}", of.stage, format::seconds(of.exposed_s))).collect();
        if words.is_empty() { String::new() } else { format!(", exposed {}", words.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of 100 ms, of which 60 ms wait for collate and 25 ms are forward; the first is warm-up and takes a second.
    fn steps(measured: u64) -> Vec<StepRecord> {
        let step = |step: u64| {
            let wall_ns = if step == 0 { 1_000_000_000 } else { 100_000_000 };
            let mut record = StepRecord { step, measured: step > 0, wall_ns, ..StepRecord::default() };
            record.exposed[Stage::Collate] = 60_000_000;
            record.busy[Stage::Collate] = 240_000_000;
            record.exposed[Stage::Forward] = 25_000_000;
            record.busy[Stage::Forward] = 25_000_000;
            record
        };
        (0..=measured).map(step).collect()
    }

    #[test]
    fn stages_are_summed_over_the_run_of_a_rank() {
        let (first, second) = (steps(10), steps(30));
        let totals = RunTotals::of_ranks(&[&first, &second]).unwrap();
        // 10 and 30 measured steps: 20 in the mean, of 0.1 s.
        assert_eq!((totals.ranks, totals.measured.steps, totals.run.steps), (2, 20.0, 21.0));
        assert_eq!((totals.measured.wall_s, totals.run.wall_s), (2.0, 3.0));
        let stages: Vec<_> = totals.measured.stages.iter().map(|s| (s.stage, s.exposed_s, s.busy_s)).collect();
        assert_eq!(stages, [(Stage::Collate, 1.2, 4.8), (Stage::Forward, 0.5, 0.5)]);
        assert_eq!(
            totals.sentence(),
            "In seconds, of a rank (mean of 2 ranks): 2 s in 20 measured steps, exposed collate 1.2 s, forward 500 ms; \
             3 s in all 21 steps with the warm-up, exposed collate 1.3 s, forward 525 ms."
        );
        assert_eq!(RunTotals::of_ranks(&[]), None);
        assert_eq!(RunTotals::of_ranks(&[&first[..1]]), None);
    }
}
