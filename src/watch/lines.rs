//! Where there is no terminal: a line with its time for each change.

use std::collections::{BTreeMap, BTreeSet};

use expctl_text::format::rate;

use super::frame::{behind, duration, header, left, rates};
use super::view::View;

/// A trial's progress is said so often on its way.
const PARTS: u64 = 10;

/// Turns looks into lines.
#[derive(Debug, Default)]
pub struct Lines {
    begun: bool,
    summary: String,
    trouble: Option<String>,
    /// Attempt and tenth of the way of each running trial.
    running: BTreeMap<String, (u32, u64)>,
    stragglers: BTreeSet<(String, u32)>,
    failed: BTreeSet<String>,
    completed: BTreeSet<String>,
}

impl Lines {
    /// What is new since the last look.
    pub fn changes(&mut self, view: &View) -> Vec<String> {
        let mut said = Vec::new();
        if !self.begun {
            said.push(header(view));
        }
        let running = std::mem::take(&mut self.running);
        for now in &view.running {
            let part = now.pace.as_ref().map_or(0, |p| p.step * PARTS / p.steps_total.max(1));
            let before = running.get(&now.trial).filter(|(attempt, _)| *attempt == now.attempt);
            if before.is_none() {
                said.push(format!("{}: attempt {} runs", now.trial, now.attempt));
            }
            if let Some(pace) = now.pace.as_ref().filter(|_| before.map_or(part > 0, |(_, before)| part > *before)) {
                let (step, of) = (pace.step, pace.steps_total);
                said.push(format!("{}: step {step}/{of}, {}{}", now.trial, rates(pace), left(pace.estimated_s_left)));
            }
            for rank in now.pace.iter().flat_map(|pace| &pace.ranks) {
                let key = (now.trial.clone(), rank.rank);
                if !rank.straggler {
                    self.stragglers.remove(&key);
                } else if self.stragglers.insert(key) {
                    said.push(format!("{}: {}", now.trial, behind(rank)));
                }
            }
            self.running.insert(now.trial.clone(), (now.attempt, part));
        }
        for done in &view.completed {
            if self.completed.insert(done.trial.clone()) {
                let rates = done.it_per_s.zip(done.samples_per_s);
                let rates = rates.map(|(it, samples)| format!(", {} it/s, {} samples/s", rate(it), rate(samples)));
                said.push(format!("{}: completed{}", done.trial, rates.unwrap_or_default()));
            }
        }
        let mut failed = BTreeSet::new();
        for failure in &view.failures {
            let reason = if failure.reason.is_empty() { String::new() } else { format!(": {}", failure.reason) };
            let line = format!("{}: {}{reason}", failure.trial, failure.state.name());
            if !self.failed.contains(&line) {
                said.push(line.clone());
            }
            failed.insert(line);
        }
        self.failed = failed;
        if self.trouble != view.trouble {
            self.trouble.clone_from(&view.trouble);
            said.push(match &view.trouble {
                Some(trouble) => format!("Slurm cannot be asked: {trouble}"),
                None => "Slurm answers again".to_owned(),
            });
        }
        let summary = view.summary();
        if summary != self.summary {
            said.push(format!("{summary}{}", left(view.estimated_s_left)));
            self.summary = summary;
        }
        if view.ended {
            said.push(format!("ended after {}", duration(view.elapsed_s as f64)));
        }
        self.begun = true;
        let time = jiff::Timestamp::from_second(view.time).map(|t| t.to_string()).unwrap_or_default();
        said.into_iter().map(|line| format!("{time} job {}: {line}", view.job)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::frame::tests::view;

    #[test]
    fn a_line_for_each_change_and_none_without() {
        let mut lines = Lines::default();
        let mut now = view(1, 0);
        let first = lines.changes(&now);
        assert!(first.iter().all(|line| line.starts_with("2026-01-02T03:05:45Z job 12: ")), "{first:?}");
        let words: Vec<&str> = first.iter().map(|line| line.split_once("job 12: ").unwrap().1).collect();
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
        // The rates of a trial that completed are said once.
        let rates = |it| crate::watch::view::Completed { trial: "lazy-r9".into(), it_per_s: it, samples_per_s: it };
        now.completed = vec![rates(Some(75.6249))];
        let said = lines.changes(&now);
        assert!(said.len() == 1 && said[0].ends_with("lazy-r9: completed, 75.625 it/s, 75.625 samples/s"), "{said:?}");
        assert_eq!(lines.changes(&now), [""; 0]);
        // Not another tenth of the way yet, then one.
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
