//! [`Pace`]: how fast a running trial is, over all its ranks, read from their journals.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use expctl_ledger::{AttemptDir, JournalTail, PerStage, Stage, StepRecord};
use expctl_settings::Trial;
use expctl_stats::median;
use serde::Serialize;

/// A rank is a straggler if its own time is at least this multiple of the median over the ranks.
const STRAGGLER: f64 = 1.10;
/// Steps in the window below which no rank is called a straggler.
const MIN_STRAGGLER_STEPS: u64 = 5;

/// The last steps of the ranks of one attempt.
#[derive(Debug)]
pub struct TrialWindows {
    attempt: AttemptDir,
    ranks: Vec<StepWindow>,
    /// Node of each rank, once the attempt says so.
    nodes: Vec<String>,
}

/// The pace of a running trial, measured over the last ten seconds of each rank.
#[derive(Clone, Debug, Serialize)]
pub struct Pace {
    /// Steps that all ranks have done, warm-up included.
    pub step: u64,
    /// Steps of the trial.
    pub steps_total: u64,
    /// Steps per second of the slowest rank; `None` before each rank has done a step.
    pub it_per_s: Option<f64>,
    /// Samples per second of all ranks together.
    pub samples_per_s: Option<f64>,
    /// The stage that the steps waited for longest.
    pub slowest_stage: Option<Stage>,
    /// Its share of the steps' wall time, 0 to 1.
    pub slowest_share: Option<f64>,
    /// That share of each stage that the steps waited for, in order; empty before each rank has done a step.
    #[serde(skip)]
    pub shares: Vec<(Stage, f64)>,
    /// Estimated time to the last step, s: the remaining steps at the pace of the slowest rank.
    pub estimated_s_left: Option<f64>,
    /// Seconds since the last step of the rank that is silent longest.
    pub last_step_s: Option<f64>,
    /// The ranks.
    pub ranks: Vec<RankPace>,
}

/// The pace of one rank.
#[derive(Clone, Debug, Serialize)]
pub struct RankPace {
    /// The rank.
    pub rank: u32,
    /// Its node, once known.
    pub node: Option<String>,
    /// Steps that it has done.
    pub step: u64,
    /// Steps per second; `None` before its first step.
    pub it_per_s: Option<f64>,
    /// Samples per second.
    pub samples_per_s: Option<f64>,
    /// Time of a step less the wait for other ranks, as a multiple of the median over the ranks.
    pub own_time: Option<f64>,
    /// Whether it holds up the others: `own_time` is at least 1.1.
    pub straggler: bool,
    /// Seconds since its last step.
    pub last_step_s: Option<f64>,
}

impl TrialWindows {
    /// Follow all ranks of an attempt.
    pub fn new(attempt: &AttemptDir, trial: &Trial) -> Self {
        let ranks = (0..trial.settings.launch.ranks).map(|rank| StepWindow::new(attempt, rank)).collect();
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
        self.ranks.iter_mut().for_each(StepWindow::read);
    }

    /// The pace of the trial.
    pub fn pace(&self, trial: &Trial) -> Pace {
        let measure = &trial.settings.measure;
        let glances: Vec<Option<WindowRates>> = self.ranks.iter().map(StepWindow::rates).collect();
        pace(&glances, &self.nodes, measure.warmup.saturating_add(measure.steps))
    }
}

fn pace(glances: &[Option<WindowRates>], nodes: &[String], steps_total: u64) -> Pace {
    let all: Option<Vec<WindowRates>> = glances.iter().copied().collect();
    let own: Vec<f64> = glances.iter().flatten().map(|g| g.own_ns).collect();
    let middle = median(&own).filter(|middle| *middle > 0.0);
    let enough = glances.len() > 1 && glances.iter().all(|g| g.is_some_and(|g| g.steps >= MIN_STRAGGLER_STEPS));
    let rank = |(rank, glance): (u32, &Option<WindowRates>)| {
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
    let left = |g: &WindowRates| steps_total.saturating_sub(g.done) as f64 / g.it_per_s;
    let shares = all.as_deref().map(exposed_shares).unwrap_or_default();
    let slowest = shares.iter().max_by(|a, b| a.1.total_cmp(&b.1)).copied();
    let max = |values: Vec<f64>| values.into_iter().max_by(f64::total_cmp);
    Pace {
        step: ranks.iter().map(|r| r.step).min().unwrap_or(0),
        steps_total,
        it_per_s: all.as_ref().and_then(|all| all.iter().map(|g| g.it_per_s).min_by(f64::total_cmp)),
        samples_per_s: all.as_ref().map(|all| all.iter().map(|g| g.samples_per_s).sum()),
        slowest_stage: slowest.map(|(stage, _)| stage),
        slowest_share: slowest.map(|(_, share)| share),
        shares,
        estimated_s_left: all.as_ref().and_then(|all| max(all.iter().map(left).collect())),
        last_step_s: max(ranks.iter().filter_map(|r| r.last_step_s).collect()),
        ranks,
    }
}

/// The stages that the steps waited for, each with its share of their wall time, over all ranks.
fn exposed_shares(ranks: &[WindowRates]) -> Vec<(Stage, f64)> {
    let wall: u64 = ranks.iter().map(|g| g.wall_ns).sum();
    let waited = Stage::ALL.map(|stage| (stage, ranks.iter().map(|g| g.exposed[stage]).sum::<u64>()));
    let waited = waited.into_iter().filter(|(_, ns)| *ns > 0 && wall > 0);
    waited.map(|(stage, ns)| (stage, ns as f64 / wall as f64)).collect()
}

/// Length of the window in the rank's own time, s. Loader threads deliver in bursts, which a shorter one would show.
pub const WINDOW_S: u64 = 10;
/// Steps that the window has at least, where steps are long.
const MIN_STEPS: usize = 5;
/// Bytes at the end of a journal that are read at most: some thousand steps.
const MAX_BYTES: u64 = 1 << 20;

/// The last steps of one rank, read from its journal as it grows.
#[derive(Debug)]
struct StepWindow {
    journal: PathBuf,
    tail: JournalTail,
    steps: Vec<StepRecord>,
    /// When the last step appeared, by this machine's clock.
    last_step: Option<Instant>,
}

/// Averages over the window of a rank.
#[derive(Clone, Copy, Debug, PartialEq)]
struct WindowRates {
    /// Steps of the trial that are done.
    pub done: u64,
    /// Steps in the window.
    pub steps: u64,
    /// Steps per second.
    pub it_per_s: f64,
    /// Samples per second.
    pub samples_per_s: f64,
    /// Wall time of a step less its wait for the other ranks, ns.
    pub own_ns: f64,
    /// Exposed time of the window's steps by stage, summed, ns.
    pub exposed: PerStage<u64>,
    /// Wall time of the window's steps, summed, ns.
    pub wall_ns: u64,
    /// Time since the last step appeared.
    pub silent: Duration,
}

impl StepWindow {
    /// Follow `rank` of an attempt, from its last steps on.
    fn new(attempt: &AttemptDir, rank: u32) -> Self {
        let journal = attempt.journal_path(rank);
        Self { tail: JournalTail::new(&journal), journal, steps: Vec::new(), last_step: None }
    }

    /// Read new steps. A journal that does not exist (yet, or any more) or cannot be read changes nothing: the outcome
    /// will report it.
    fn read(&mut self) {
        let before = self.steps.len();
        let mut new = std::mem::take(&mut self.steps);
        let _ = self.tail.skip_to_last(MAX_BYTES).and_then(|()| self.tail.read_new(&mut new));
        self.steps = new;
        if self.steps.len() > before {
            // Steps from before the first read appeared when the file was last written.
            let age = self.journal.metadata().and_then(|m| m.modified()).ok().and_then(|at| at.elapsed().ok());
            let age = if before == 0 { age.unwrap_or_default() } else { Duration::ZERO };
            self.last_step = Instant::now().checked_sub(age);
        }
        let Some(end) = self.steps.last().map(|step| step.start_ns + step.wall_ns) else { return };
        let from = end.saturating_sub(WINDOW_S * 1_000_000_000);
        let old = self.steps.iter().take_while(|step| step.start_ns + step.wall_ns <= from).count();
        self.steps.drain(..old.min(self.steps.len().saturating_sub(MIN_STEPS)));
    }

    /// Averages over the window; `None` before the first step.
    fn rates(&self) -> Option<WindowRates> {
        let done = self.steps.last()?.step + 1;
        let (mut wall_ns, mut samples, mut waited) = (0u64, 0u64, 0u64);
        let mut exposed = PerStage::<u64>::default();
        for step in &self.steps {
            wall_ns += step.wall_ns;
            samples += step.samples;
            waited += step.exposed[Stage::Allreduce];
            for stage in Stage::ALL {
                exposed[stage] += step.exposed[stage];
            }
        }
        let (n, seconds) = (self.steps.len() as f64, wall_ns.max(1) as f64 / 1e9);
        Some(WindowRates {
            done,
            steps: self.steps.len() as u64,
            it_per_s: n / seconds,
            samples_per_s: samples as f64 / seconds,
            own_ns: wall_ns.saturating_sub(waited) as f64 / n,
            exposed,
            wall_ns,
            silent: self.last_step.map(|at| at.elapsed()).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_ledger::{JobDir, Journal};

    fn glance(done: u64, own_ms: f64, step_ms: u64) -> Option<WindowRates> {
        let mut exposed = PerStage::<u64>::default();
        exposed[Stage::Collate] = step_ms * 5_000_000;
        exposed[Stage::Forward] = step_ms * 2_000_000;
        let rate = 1000.0 / step_ms as f64;
        Some(WindowRates {
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
        assert_eq!(seen.shares, [(Stage::Collate, 0.5), (Stage::Forward, 0.2)]);
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

    #[test]
    fn the_window_holds_the_last_seconds_and_at_least_some_steps() {
        let dir = tempfile::tempdir().unwrap();
        let attempt = JobDir::new(dir.path()).next_attempt("t").unwrap();
        let mut window = StepWindow::new(&attempt, 0);
        window.read();
        assert_eq!(window.rates(), None);
        let mut journal = Journal::create(&attempt.journal_path(0)).unwrap();
        let mut start_ns = 0;
        let mut append = |step, wall_ms: u64| {
            let wall_ns = wall_ms * 1_000_000;
            let mut record = StepRecord { step, start_ns, wall_ns, samples: 8, ..StepRecord::default() };
            record.exposed[Stage::Allreduce] = wall_ns / 4;
            journal.append(&record).unwrap();
            start_ns += wall_ns;
        };
        // Slow steps, then 20 s of fast ones: the slow ones leave the window.
        (0..10).for_each(|step| append(step, 5000));
        window.read();
        let slow = window.rates().unwrap();
        assert_eq!((slow.done, slow.steps, slow.it_per_s), (10, MIN_STEPS as u64, 0.2));
        (10..210).for_each(|step| append(step, 100));
        window.read();
        let fast = window.rates().unwrap();
        assert_eq!((fast.done, fast.steps, fast.own_ns), (210, 100, 75e6));
        assert!((fast.samples_per_s - 80.0).abs() < 1e-9 && (fast.it_per_s - 10.0).abs() < 1e-9);
        // A table in its place changes nothing.
        std::fs::remove_file(attempt.journal_path(0)).unwrap();
        window.read();
        assert_eq!(window.rates().unwrap().done, 210);
    }
}
