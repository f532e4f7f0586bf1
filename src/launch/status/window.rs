//! What a rank did in the last seconds, read off its journal as it grows.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use expctl_record::{AttemptDir, JournalTail, PerStage, Stage, StepRecord};

/// How far back the window goes, in the rank's own time, s. Loader threads deliver in bursts: a shorter one would show those.
pub const WINDOW_S: u64 = 10;
/// Steps that the window has at least, where steps are long.
const LEAST: usize = 5;
/// Of what is new, not more than this is read: some thousand steps.
const MOST_BYTES: u64 = 1 << 20;

/// Follows the journal of one rank.
#[derive(Debug)]
pub struct Window {
    journal: PathBuf,
    tail: JournalTail,
    steps: Vec<StepRecord>,
    /// When something came, by this machine's clock.
    moved: Option<Instant>,
}

/// The last steps of a rank, on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Glance {
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
    /// What the window's steps waited for, summed, ns.
    pub exposed: PerStage<u64>,
    /// Wall time of the window's steps, summed, ns.
    pub wall_ns: u64,
    /// Time since the last step came.
    pub silent: Duration,
}

impl Window {
    /// Follow `rank` of an attempt, from its last steps on.
    pub fn new(attempt: &AttemptDir, rank: u32) -> Self {
        let journal = attempt.journal_path(rank);
        Self { tail: JournalTail::new(&journal), journal, steps: Vec::new(), moved: None }
    }

    /// Read what is new. A journal that is not there (not yet, or already a table) or that cannot be read changes nothing:
    /// the outcome will say what was wrong with it.
    pub fn read(&mut self) {
        let before = self.steps.len();
        let mut new = std::mem::take(&mut self.steps);
        let _ = self.tail.skip_to_last(MOST_BYTES).and_then(|()| self.tail.read_new(&mut new));
        self.steps = new;
        if self.steps.len() > before {
            // What was there before the first look came when the file was last written.
            let age = self.journal.metadata().and_then(|m| m.modified()).ok().and_then(|at| at.elapsed().ok());
            let age = if before == 0 { age.unwrap_or_default() } else { Duration::ZERO };
            self.moved = Instant::now().checked_sub(age);
        }
        let Some(end) = self.steps.last().map(|step| step.start_ns + step.wall_ns) else { return };
        let from = end.saturating_sub(WINDOW_S * 1_000_000_000);
        let old = self.steps.iter().take_while(|step| step.start_ns + step.wall_ns <= from).count();
        self.steps.drain(..old.min(self.steps.len().saturating_sub(LEAST)));
    }

    /// The average of the window; none before the first step.
    pub fn glance(&self) -> Option<Glance> {
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
        Some(Glance {
            done,
            steps: self.steps.len() as u64,
            it_per_s: n / seconds,
            samples_per_s: samples as f64 / seconds,
            own_ns: wall_ns.saturating_sub(waited) as f64 / n,
            exposed,
            wall_ns,
            silent: self.moved.map(|at| at.elapsed()).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_record::{JobDir, Journal};

    #[test]
    fn the_window_holds_the_last_seconds_and_at_least_some_steps() {
        let dir = tempfile::tempdir().unwrap();
        let attempt = JobDir::new(dir.path()).next_attempt("t").unwrap();
        let mut window = Window::new(&attempt, 0);
        window.read();
        assert_eq!(window.glance(), None);
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
        let slow = window.glance().unwrap();
        assert_eq!((slow.done, slow.steps, slow.it_per_s), (10, LEAST as u64, 0.2));
        (10..210).for_each(|step| append(step, 100));
        window.read();
        let fast = window.glance().unwrap();
        assert_eq!((fast.done, fast.steps, fast.own_ns), (210, 100, 75e6));
        assert!((fast.samples_per_s - 80.0).abs() < 1e-9 && (fast.it_per_s - 10.0).abs() < 1e-9);
        // A table in its place changes nothing.
        std::fs::remove_file(attempt.journal_path(0)).unwrap();
        window.read();
        assert_eq!(window.glance().unwrap().done, 210);
    }
}
