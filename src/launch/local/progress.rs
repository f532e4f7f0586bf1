use std::time::{Duration, Instant};

use expctl_record::{AttemptDir, JournalTail, Rates, StepRecord, StepTotals, Trial};
use expctl_text::format;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::console::say;

/// How often a line is printed where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows how far a trial is, read off the journal of rank 0: a bar on a terminal, a line now and then elsewhere.
pub(super) struct Progress {
    bar: ProgressBar,
    terminal: bool,
    label: String,
    total: u64,
    tail: JournalTail,
    steps: Vec<StepRecord>,
    printed: Instant,
    started: Instant,
    ranks: u64,
}

impl Progress {
    /// Follow rank 0 of `attempt`, the `number`-th of `of` trials.
    pub(super) fn new(attempt: &AttemptDir, trial: &Trial, number: usize, of: usize) -> Self {
        let measure = &trial.settings.measure;
        let total = measure.warmup + measure.steps;
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        let terminal = !bar.is_hidden();
        let label = format!("[{number}/{of}] {}", trial.id);
        if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:24} {pos}/{len} {msg} ETA {eta}") {
            bar.set_style(style);
        }
        bar.set_prefix(label.clone());
        if !terminal {
            say(format!("{label}: {total} steps on {} rank(s)", trial.settings.launch.ranks));
        }
        Self {
            bar,
            terminal,
            label,
            total,
            tail: JournalTail::new(&attempt.journal_path(0)),
            steps: Vec::new(),
            printed: Instant::now(),
            started: Instant::now(),
            ranks: u64::from(trial.settings.launch.ranks),
        }
    }

    /// Read what is new and show it.
    pub(super) fn tick(&mut self) {
        // Progress is a courtesy: a journal that cannot be read is reported when the attempt is concluded.
        if self.tail.read_new(&mut self.steps).is_err() || self.steps.is_empty() {
            return;
        }
        let message = format!("{} (last {} steps)", self.recent_rates(), self.recent().len());
        self.bar.set_position(self.done());
        self.bar.set_message(message.clone());
        if !self.terminal && self.printed.elapsed() >= LINE_EVERY {
            self.printed = Instant::now();
            let (done, left) = (self.done(), self.total.saturating_sub(self.done()));
            let eta = Duration::from_secs(self.started.elapsed().as_secs() * left / self.steps.len() as u64);
            say(format!("{}: step {done}/{}, {message}, ETA {}", self.label, self.total, HumanDuration(eta)));
        }
    }

    /// Steps of the trial that are done, those before a checkpoint included.
    fn done(&self) -> u64 {
        self.steps.last().map_or(0, |step| step.step + 1)
    }

    /// The last word on the trial, with the rates that the ledger gives it: those of the note.
    pub(super) fn finish(self, state: &str, rates: Option<Rates>) {
        let rates = rates.map(|rates| format!(", {}", words(&rates))).unwrap_or_default();
        self.bar.finish_and_clear();
        say(format!("{}: {state}{rates}", self.label));
    }

    /// The last 20 steps.
    fn recent(&self) -> &[StepRecord] {
        &self.steps[self.steps.len().saturating_sub(20)..]
    }

    /// Rates over the last steps of rank 0, warm-up or not; all ranks have batches of the same size.
    fn recent_rates(&self) -> String {
        let steps: Vec<StepRecord> =
            self.recent().iter().map(|step| StepRecord { measured: true, ..step.clone() }).collect();
        let rates = StepTotals::from_steps(&steps).rates();
        let of_all = |rates: Rates| Rates { samples_per_s: rates.samples_per_s * self.ranks as f64, ..rates };
        rates.map_or_else(|| format::MISSING.to_owned(), |rates| words(&of_all(rates)))
    }
}

/// `75.6 it/s, 2419.2 samples/s`, in the digits of the note.
fn words(rates: &Rates) -> String {
    format!("{} it/s, {} samples/s", format::rate(rates.it_per_s), format::rate(rates.samples_per_s))
}
