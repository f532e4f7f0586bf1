//! How a trial that runs goes, over all its ranks.

use expctl_record::{AttemptDir, Stage, Trial};
use serde::Serialize;

use super::window::{Glance, Window};
use crate::stats::median;

/// A rank is a straggler if it works so much longer than the median of the ranks.
const STRAGGLER: f64 = 1.10;
/// Steps below which no rank is called one.
const ENOUGH: u64 = 5;

/// Follows the ranks of one attempt.
#[derive(Debug)]
pub struct TrialWindows {
    attempt: AttemptDir,
    ranks: Vec<Window>,
    /// Node of each rank, once the attempt says so.
    nodes: Vec<String>,
}

/// A trial that runs: measured over the last ten seconds of each rank.
#[derive(Clone, Debug, Serialize)]
pub struct Pace {
    /// Steps that all ranks have done, warm-up included.
    pub step: u64,
    /// Steps of the trial.
    pub steps_total: u64,
    /// Steps per second of the slowest rank; none before each rank has done a step.
    pub it_per_s: Option<f64>,
    /// Samples per second of all ranks together.
    pub samples_per_s: Option<f64>,
    /// The stage that the steps waited for longest.
    pub slowest_stage: Option<Stage>,
    /// Its share of the steps' wall time, 0 to 1.
    pub slowest_share: Option<f64>,
    /// Estimated time to the last step, s: what is left, as fast as the last steps of the slowest rank.
    pub estimated_s_left: Option<f64>,
    /// Seconds since the last step of the rank that is silent longest.
    pub last_step_s: Option<f64>,
    /// The ranks.
    pub ranks: Vec<RankPace>,
}

/// One rank of it.
#[derive(Clone, Debug, Serialize)]
pub struct RankPace {
    /// The rank.
    pub rank: u32,
    /// Its node, once known.
    pub node: Option<String>,
    /// Steps that it has done.
    pub step: u64,
    /// Steps per second; none before its first step.
    pub it_per_s: Option<f64>,
    /// Samples per second.
    pub samples_per_s: Option<f64>,
    /// Its own time for a step before it waits for others, as a multiple of the median over the ranks.
    pub own_time: Option<f64>,
    /// Whether it holds up the others: its own time is 10 % above the median or more.
    pub straggler: bool,
    /// Seconds since its last step.
    pub last_step_s: Option<f64>,
}

impl TrialWindows {
    /// Follow all ranks of an attempt.
    pub fn new(attempt: &AttemptDir, trial: &Trial) -> Self {
        let ranks = (0..trial.settings.launch.ranks).map(|rank| Window::new(attempt, rank)).collect();
        Self { attempt: attempt.clone(), ranks, nodes: Vec::new() }
    }

    /// The attempt that is followed.
    pub fn attempt(&self) -> &AttemptDir {
        &self.attempt
    }

    /// Read what is new in all journals.
    pub fn read(&mut self) {
        if self.nodes.is_empty()
            && let Ok(Some(environment)) = self.attempt.environment()
        {
            self.nodes = environment.ranks.into_iter().map(|rank| rank.host).collect();
        }
        self.ranks.iter_mut().for_each(Window::read);
    }

    /// How the trial goes.
    pub fn pace(&self, trial: &Trial) -> Pace {
        let measure = &trial.settings.measure;
        let glances: Vec<Option<Glance>> = self.ranks.iter().map(Window::glance).collect();
        pace(&glances, &self.nodes, measure.warmup.saturating_add(measure.steps))
    }
}

fn pace(glances: &[Option<Glance>], nodes: &[String], steps_total: u64) -> Pace {
    let all: Option<Vec<Glance>> = glances.iter().copied().collect();
    let own: Vec<f64> = glances.iter().flatten().map(|g| g.own_ns).collect();
    let middle = median(&own).filter(|middle| *middle > 0.0);
    let enough = glances.len() > 1 && glances.iter().all(|g| g.is_some_and(|g| g.steps >= ENOUGH));
    let rank = |(rank, glance): (u32, &Option<Glance>)| {
        let own_time = glance.zip(middle).map(|(glance, middle)| glance.own_ns / middle);
        RankPace {
            rank,
            node: nodes.get(rank as usize).filter(|node| !node.is_empty()).cloned(),
            step: glance.map_or(0, |g| g.done),
            it_per_s: glance.map(|g| g.it_per_s),
            samples_per_s: glance.map(|g| g.samples_per_s),
            own_time: own_time.filter(|_| glances.len() > 1),
            straggler: enough && own_time.is_some_and(|own| own >= STRAGGLER),
            last_step_s: glance.map(|g| g.silent.as_secs_f64()),
        }
    };
    let ranks: Vec<RankPace> = (0..).zip(glances).map(rank).collect();
    let left = |g: &Glance| steps_total.saturating_sub(g.done) as f64 / g.it_per_s;
    let slowest = all.as_deref().and_then(slowest_stage);
    let most = |values: Vec<f64>| values.into_iter().max_by(f64::total_cmp);
    Pace {
        step: ranks.iter().map(|r| r.step).min().unwrap_or(0),
        steps_total,
        it_per_s: all.as_ref().and_then(|all| all.iter().map(|g| g.it_per_s).min_by(f64::total_cmp)),
        samples_per_s: all.as_ref().map(|all| all.iter().map(|g| g.samples_per_s).sum()),
        slowest_stage: slowest.map(|(stage, _)| stage),
        slowest_share: slowest.map(|(_, share)| share),
        estimated_s_left: all.as_ref().and_then(|all| most(all.iter().map(left).collect())),
        last_step_s: most(ranks.iter().filter_map(|r| r.last_step_s).collect()),
        ranks,
    }
}

fn slowest_stage(ranks: &[Glance]) -> Option<(Stage, f64)> {
    let wall: u64 = ranks.iter().map(|g| g.wall_ns).sum();
    let waited = |stage: Stage| ranks.iter().map(|g| g.exposed[stage]).sum::<u64>();
    let (stage, ns) = Stage::ALL.into_iter().map(|stage| (stage, waited(stage))).max_by_key(|(_, ns)| *ns)?;
    (ns > 0 && wall > 0).then(|| (stage, ns as f64 / wall as f64))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use expctl_record::PerStage;

    fn glance(done: u64, own_ms: f64, step_ms: u64) -> Option<Glance> {
        let mut exposed = PerStage::<u64>::default();
        exposed[Stage::Collate] = step_ms * 5_000_000;
        exposed[Stage::Forward] = step_ms * 2_000_000;
        let rate = 1000.0 / step_ms as f64;
        Some(Glance {
            done,
            steps: 10,
            it_per_s: rate,
            samples_per_s: rate * 8.0,
            own_ns: own_ms * 1e6,
            exposed,
            wall_ns: step_ms * 10_000_000,
            silent: Duration::from_secs(2),
        })
    }

    #[test]
    fn the_rank_that_holds_up_the_others_is_marked() {
        // All steps take as long as those of rank 2, which alone works all the time.
        let glances = [glance(40, 80.0, 100), glance(40, 82.0, 100), glance(39, 99.0, 100), glance(40, 81.0, 100)];
        let nodes = ["a", "a", "b", "b"].map(str::to_owned);
        let seen = pace(&glances, &nodes, 140);
        assert_eq!(seen.ranks.iter().filter(|r| r.straggler).map(|r| r.rank).collect::<Vec<_>>(), [2]);
        assert_eq!(seen.ranks[2].node.as_deref(), Some("b"));
        assert!((seen.ranks[2].own_time.unwrap() - 99.0 / 81.5).abs() < 1e-9);
        assert_eq!((seen.step, seen.it_per_s, seen.samples_per_s), (39, Some(10.0), Some(320.0)));
        assert_eq!((seen.slowest_stage, seen.slowest_share), (Some(Stage::Collate), Some(0.5)));
        assert!((seen.estimated_s_left.unwrap() - 10.1).abs() < 1e-9);
        // 9 % is none.
        let even = pace(&[glance(40, 80.0, 100), glance(40, 80.0, 100), glance(40, 87.0, 100)], &[], 140);
        assert!(even.ranks.iter().all(|r| !r.straggler && r.node.is_none()));
    }

    #[test]
    fn nothing_is_said_of_the_whole_before_every_rank_has_a_step() {
        let seen = pace(&[glance(1, 80.0, 100), None], &[], 140);
        assert_eq!((seen.step, seen.it_per_s, seen.samples_per_s), (0, None, None));
        assert!(seen.estimated_s_left.is_none() && seen.slowest_stage.is_none());
        assert_eq!(seen.ranks[0].it_per_s, Some(10.0));
        assert!(seen.ranks.iter().all(|r| !r.straggler));
    }
}
