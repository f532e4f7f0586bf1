//! [`Lines`] prints one line for each change between two views of a job.

use std::collections::{BTreeMap, BTreeSet};

use expctl_settings::{EMULATED, with_point};
use expctl_text::format::rate;

use super::View;
use super::text::{duration, header, rates, remaining_time, straggler_text};

/// A running trial gets a line whenever another one of so many equal fractions of its steps is done.
const PROGRESS_LINES: u64 = 10;

/// Output where there is no terminal: a line, with its time, for each change between two views of a job. The fields are
/// what has been printed so far.
#[derive(Debug, Default)]
pub struct Lines {
    /// Whether there was a view before.
    begun: bool,
    summary: String,
    trouble: Option<String>,
    /// Of each running trial, by its id: its attempt, and how many of the [`PROGRESS_LINES`] fractions of its steps were
    /// done.
    running: BTreeMap<String, (u32, u64)>,
    /// Trial and rank.
    stragglers: BTreeSet<(String, u32)>,
    /// Lines of the failed trials.
    failed: BTreeSet<String>,
    /// Ids of the completed trials.
    completed: BTreeSet<String>,
}

impl Lines {
    /// The changes since the last view, a line each: `2026-01-02T03:05:45Z job 12: …`. The first view gives the header, too.
    pub fn changes(&mut self, view: &View) -> Vec<String> {
        let mut messages = Vec::new();
        if !self.begun {
            // Without `job 12, `: every line begins with the job.
            messages.push(
                header(view, &view.config).split_once(", ").map_or_else(String::new, |(_, rest)| rest.to_owned()),
            );
        }
        let previous = std::mem::take(&mut self.running);
        for now in &view.running {
            let name = with_point(&now.trial, &now.point);
            let fractions = now.pace.as_ref().map_or(0, |p| p.step * PROGRESS_LINES / p.steps_total.max(1));
            let before = previous.get(&now.trial).filter(|(attempt, _)| *attempt == now.attempt);
            if before.is_none() {
                messages.push(format!("{name}: attempt {} runs", now.attempt));
            }
            let has_progress = fractions > before.map_or(0, |(_, fractions)| *fractions);
            if let Some(pace) = now.pace.as_ref().filter(|_| has_progress) {
                let (step, of) = (pace.step, pace.steps_total);
                let remaining = remaining_time(pace.estimated_s_left);
                messages.push(format!("{name}: step {step}/{of}, {}{remaining}", rates(pace, now.emulated)));
            }
            for rank in now.pace.iter().flat_map(|pace| &pace.ranks) {
                let key = (now.trial.clone(), rank.rank);
                if !rank.straggler {
                    self.stragglers.remove(&key);
                } else if self.stragglers.insert(key) {
                    messages.push(format!("{name}: {}", straggler_text(rank)));
                }
            }
            self.running.insert(now.trial.clone(), (now.attempt, fractions));
        }
        for done in &view.completed {
            if self.completed.insert(done.trial.clone()) {
                let rates = done.it_per_s.zip(done.samples_per_s);
                let emulated = if done.emulated { format!(" ({EMULATED})") } else { String::new() };
                let rates =
                    rates.map(|(it, samples)| format!(", {} it/s, {} samples/s{emulated}", rate(it), rate(samples)));
                let name = with_point(&done.trial, &done.point);
                messages.push(format!("{name}: completed{}", rates.unwrap_or_default()));
            }
        }
        let mut failed = BTreeSet::new();
        for failure in &view.failures {
            let reason = if failure.reason.is_empty() { String::new() } else { format!(": {}", failure.reason) };
            let name = with_point(&failure.trial, &failure.point);
            let line = format!("{name}: {}{reason}", failure.state.name());
            if !self.failed.contains(&line) {
                messages.push(line.clone());
            }
            failed.insert(line);
        }
        self.failed = failed;
        if self.trouble != view.trouble {
            self.trouble.clone_from(&view.trouble);
            messages.push(match &view.trouble {
                Some(trouble) => format!("Slurm cannot be asked: {trouble}"),
                None => "Slurm answers again".to_owned(),
            });
        }
        let summary = view.summary();
        if summary != self.summary {
            messages.push(format!("{summary}{}", remaining_time(view.estimated_s_left)));
            self.summary = summary;
        }
        if view.ended {
            messages.push(format!("ended after {}", duration(view.elapsed_s as f64)));
        }
        self.begun = true;
        let time = jiff::Timestamp::from_second(view.time).map(|t| t.to_string()).unwrap_or_default();
        messages.into_iter().map(|line| format!("{time} job {}: {line}", view.job)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::text::sample::view;
    use crate::watch::{CompletedTrial, frame};

    #[test]
    fn rates_of_emulated_steps_are_called_so() {
        let mut now = view(1, 0);
        now.running[0].emulated = true;
        assert!(frame(&now, 24, 200).join("\n").contains("9.5 it/s, 152 samples/s (emulated, last 10 s)"));
        let mut lines = Lines::default();
        let first = lines.changes(&now);
        assert!(first.iter().any(|line| line.contains("152 samples/s (emulated, last 10 s)")), "{first:?}");
        now.completed = vec![CompletedTrial {
            trial: "lazy-r9".into(),
            point: String::new(),
            it_per_s: Some(5.0),
            samples_per_s: Some(40.0),
            emulated: true,
        }];
        let said = lines.changes(&now);
        assert!(said[0].ends_with("lazy-r9: completed, 5 it/s, 40 samples/s (emulated)"), "{said:?}");
    }

    #[test]
    fn a_line_for_each_change_and_none_without() {
        let mut lines = Lines::default();
        let mut now = view(1, 0);
        let first = lines.changes(&now);
        assert!(first.iter().all(|line| line.starts_with("2026-01-02T03:05:45Z job 12: ")), "{first:?}");
        let words: Vec<&str> = first.iter().map(|line| line.split_once("job 12: ").unwrap().1).collect();
        assert!(words[0].starts_with("086_ddp on slurm, "), "{words:?}");
        assert_eq!(
            words[1..4],
            [
                "lazy-r0: attempt 1 runs",
                "lazy-r0: step 40/100, waits most for collate (62.5 %), 9.5 it/s, 152 samples/s (last 10 s), about 6 s left (estimated)",
                "lazy-r0: rank 1 on n1 takes 18 % longer than the median of the ranks",
            ]
        );
        now.time += 1;
        now.estimated_s_left = Some(199.0);
        assert_eq!(lines.changes(&now), [""; 0]);
        // The rates of a completed trial are printed once.
        let rates = |it| CompletedTrial {
            trial: "lazy-r9".into(),
            point: "loader.workers=2".into(),
            it_per_s: it,
            samples_per_s: it,
            emulated: false,
        };
        now.completed = vec![rates(Some(75.6249))];
        let said = lines.changes(&now);
        assert!(
            said.len() == 1
                && said[0].ends_with("lazy-r9 (loader.workers=2): completed, 75.625 it/s, 75.625 samples/s"),
            "{said:?}"
        );
        assert_eq!(lines.changes(&now), [""; 0]);
        // Step 49 is in the same tenth of the steps as step 40; step 50 begins another one.
        for (step, said) in [(49, 0), (50, 1)] {
            now.running[0].pace.as_mut().unwrap().step = step;
            assert_eq!(lines.changes(&now).len(), said, "step {step}");
        }
        now.trouble = Some("no answer".into());
        assert!(lines.changes(&now)[0].ends_with("Slurm cannot be asked: no answer"));
        let mut later = view(0, 1);
        later.ended = true;
        let last = lines.changes(&later);
        assert!(last[0].ends_with("ids-r0: failed: it broke") && last[1].ends_with("Slurm answers again"), "{last:?}");
        assert!(last.last().unwrap().ends_with("job 12: ended after 1 min 40 s"), "{last:?}");
    }
}
