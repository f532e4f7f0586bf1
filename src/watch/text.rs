//! A [`View`] of a job as text: [`frame`] fills a terminal with it, [`Lines`] prints one line for each change.

use std::collections::{BTreeMap, BTreeSet};

use console::{measure_text_width, truncate_str};
use expctl_settings::{EMULATED, with_point};
use expctl_text::format::{MISSING, moment, percent, rate};

use super::{FailedTrial, RunningTrial, View};
use crate::launch::status::{Pace, RankPace, WINDOW_S};

/// From this time without a step on, s, a trial's line says how long ago its last step was.
const MIN_SILENCE: f64 = 5.0;
/// Maximum number of lines that are reserved for failed trials before the running ones are laid out. Failed trials also
/// get all lines that are free afterwards.
const MAX_RESERVED_FAILURES: usize = 5;
/// Before lines that belong to the one above.
const INDENT: &str = "    ";
/// Columns that the name of a trial or config always has.
const MIN_NAME: usize = 12;

/// The view as lines for a terminal of `height` rows and `width` columns: header, summary and progress of the job, its
/// running trials, its failed ones, and a foot. Trials that do not fit are counted. Where a terminal is too narrow, long
/// names lose their middle, and the state and rates of a trial go on in further lines; only reasons and the rates of
/// single ranks are cut off.
pub fn frame(view: &View, height: usize, width: usize) -> Vec<String> {
    let (total, over) = (view.total(), view.over());
    let mut lines = head(view, height, width);
    lines.push(format!("{} {over} of {total} ended", bar(over, total, (width / 3).min(24))));
    lines.extend(view.trouble.iter().map(|trouble| format!("Slurm cannot be asked: {trouble}")));
    let failed: Vec<String> = view.failures.iter().map(|failure| failed_trial(failure, width)).collect();
    let running: Vec<Vec<String>> = view.running.iter().map(|running| trial(running, width)).collect();
    // One line is for the foot. An empty line stands before the running trials, and one before the failed ones.
    let free = height.saturating_sub(lines.len() + 1);
    let for_failed = if failed.is_empty() { 0 } else { 1 + failed.len().min(MAX_RESERVED_FAILURES) };
    let for_running = free - for_failed.min(free / 2);
    let mut running_lines = vec![String::new()];
    let mut shown = 0;
    for trial in &running {
        // A line for the number of trials that are not shown, unless this one is the last.
        let more = usize::from(shown + 1 < running.len());
        let room = for_running.saturating_sub(running_lines.len() + more);
        // Of the first one a part says more than its number.
        if room == 0 || (trial.len() > room && shown > 0) {
            break;
        }
        running_lines.extend(trial.iter().take(room).cloned());
        shown += 1;
    }
    if shown < running.len() && running_lines.len() < for_running {
        running_lines.push(format!("… and {} more that run", running.len() - shown));
    }
    let free = free.saturating_sub(running_lines.len());
    lines.extend(running_lines);
    if !failed.is_empty() && free > 1 {
        lines.push(String::new());
        // The last ones are shown. Where not all fit, one line is for their number.
        let fit = failed.len().min(free - 1);
        let fit = if fit < failed.len() { fit - 1 } else { fit };
        lines.extend(failed[failed.len() - fit..].iter().cloned());
        if fit < failed.len() {
            lines.push(format!("… and {} more that did not complete", failed.len() - fit));
        }
    }
    lines.truncate(height.saturating_sub(1));
    lines.push(if view.ended { String::new() } else { "q leaves; the job goes on".to_owned() });
    lines.iter().map(|line| truncate_str(line.trim_end(), width, "…").into_owned()).collect()
}

/// Header and summary, in as many lines as they need, but for a low terminal, where the running trials need the lines more.
fn head(view: &View, height: usize, width: usize) -> Vec<String> {
    let room = width.saturating_sub(INDENT.len() + view.backend.len() + " on ,".len()).max(MIN_NAME);
    let summary = format!("{}{}", view.summary(), remaining_time(view.estimated_s_left));
    let cut = vec![header(view, &without_middle(&view.config, room)), summary];
    let mut whole = Vec::new();
    for line in &cut {
        whole.push(String::new());
        flow(&mut whole, line, width);
    }
    if whole.len() > height / 3 { cut } else { whole }
}

/// Write text behind the last of the lines, and go on in a new one where a part up to a comma does not fit into `width`.
fn flow(lines: &mut Vec<String>, text: &str, width: usize) {
    for part in text.split_inclusive(", ") {
        let fits = |line: &str| measure_text_width(line) + measure_text_width(part.trim_end()) <= width;
        match lines.last_mut() {
            Some(line) if line.trim().is_empty() || fits(line.as_str()) => line.push_str(part),
            _ => lines.push(format!("{INDENT}{part}")),
        }
    }
}

/// A text in at most `width` columns: of a longer one the middle is left out, because names often differ in their ends.
fn without_middle(text: &str, width: usize) -> String {
    if measure_text_width(text) <= width {
        return text.to_owned();
    }
    let around = width.saturating_sub(1);
    let start = truncate_str(text, around.div_ceil(2), "");
    let fits = |end: &&str| measure_text_width(end) <= around / 2;
    let end = text.char_indices().map(|(at, _)| &text[at..]).find(fits).unwrap_or_default();
    format!("{start}…{end}")
}

/// The name of a trial and what is said of it, with as much of the name as fits into `width` beside that.
fn named(name: &str, said: &str, width: usize) -> String {
    let room = width.saturating_sub(measure_text_width(said)).max(MIN_NAME);
    format!("{}{said}", without_middle(name, room))
}

/// `failed lazy-r1: rank 0 exited with code 1`. A name takes half of the line if not all of it fits.
fn failed_trial(failure: &FailedTrial, width: usize) -> String {
    let reason = if failure.reason.is_empty() { String::new() } else { format!(": {}", failure.reason) };
    let (state, name) = (failure.state.name(), with_point(&failure.trial, &failure.point));
    let line = format!("{state} {name}{reason}");
    if measure_text_width(&line) <= width {
        return line;
    }
    format!("{state} {}{reason}", without_middle(&name, (width / 2).max(MIN_NAME)))
}

/// `job 12, small on slurm, array 12 and 15, submitted 2026-01-02 03:04 UTC, 5 min ago`. `config`: its name, or as much
/// of it as fits.
fn header(view: &View, config: &str) -> String {
    let arrays: Vec<String> = view.arrays.iter().map(u64::to_string).collect();
    let arrays = if arrays.is_empty() { String::new() } else { format!(", array {}", arrays.join(" and ")) };
    let (submitted, elapsed) = (moment(view.submitted), duration(view.elapsed_s as f64));
    let elapsed = if view.ended { format!("took {elapsed}") } else { format!("{elapsed} ago") };
    format!("job {}, {config} on {}{arrays}, submitted {submitted}, {elapsed}", view.job, view.backend)
}

/// The lines of a running trial: its progress, its rates (in lines below where they do not fit beside it), and its ranks if it has several.
fn trial(running: &RunningTrial, width: usize) -> Vec<String> {
    let again = if running.attempt > 1 { format!(", attempt {}", running.attempt) } else { String::new() };
    let reason = if running.reason.is_empty() { String::new() } else { format!(", {}", running.reason) };
    let (name, state) = (with_point(&running.trial, &running.point), format!("{again}{reason}"));
    let first = |progress: &str| -> Vec<String> {
        let said = format!("{state}: {progress}");
        if measure_text_width(&said) + measure_text_width(&name).min(MIN_NAME) <= width {
            return vec![named(&name, &said, width)];
        }
        vec![named(&name, &state, width), format!("{INDENT}{progress}")]
    };
    let Some(pace) = &running.pace else { return first("starting") };
    let last_step = pace.last_step_s.filter(|s| *s >= MIN_SILENCE).map(|s| format!(", last step {} ago", duration(s)));
    let rates =
        if pace.ranks.iter().all(|r| r.step == 0) { "no step yet".to_owned() } else { rates(pace, running.emulated) };
    let progress = bar(pace.step as usize, pace.steps_total as usize, (width / 5).min(12));
    let mut lines = first(&format!("{progress} {}/{}", pace.step, pace.steps_total));
    match lines.last_mut() {
        Some(line) if measure_text_width(line.as_str()) + measure_text_width(&rates) + 2 <= width => {
            line.push_str(", ")
        }
        _ => lines.push(INDENT.to_owned()),
    }
    let more = format!("{}{}", remaining_time(pace.estimated_s_left), last_step.unwrap_or_default());
    flow(&mut lines, &format!("{rates}{more}"), width);
    if pace.ranks.len() > 1 {
        lines.extend(rank_lines(&pace.ranks, width));
    }
    lines
}

/// Stragglers and the rate of each rank: in one line if they fit, else in one each.
fn rank_lines(ranks: &[RankPace], width: usize) -> Vec<String> {
    let stragglers: Vec<String> = ranks.iter().filter(|rank| rank.straggler).map(straggler_text).collect();
    let rates = ranks.iter().map(|r| format!("r{} {}", r.rank, r.it_per_s.map_or(MISSING.to_owned(), rate)));
    let rates = format!("{INDENT}{} it/s", rates.collect::<Vec<_>>().join("  "));
    if stragglers.is_empty() {
        return vec![rates];
    }
    let stragglers = format!("{INDENT}{}", stragglers.join("; "));
    if measure_text_width(&stragglers) + "; ".len() + measure_text_width(rates.trim_start()) <= width {
        return vec![format!("{stragglers}; {}", rates.trim_start())];
    }
    vec![stragglers, rates]
}

/// `rank 3 on n2 takes 18 % longer than the median of the ranks`: for a step, without the wait for other ranks.
fn straggler_text(rank: &RankPace) -> String {
    let node = rank.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
    let more = (rank.own_time.unwrap_or(1.0) - 1.0) * 100.0;
    format!("rank {}{node} takes {more:.0} % longer than the median of the ranks", rank.rank)
}

/// `waits most for collate (62 %), 12.3 it/s, 98 samples/s (last 10 s)`. Of emulated steps the end is
/// `(emulated, last 10 s)`.
fn rates(pace: &Pace, emulated: bool) -> String {
    let shown = |value: Option<f64>| value.map_or_else(|| MISSING.to_owned(), rate);
    let stage = pace.slowest_stage.zip(pace.slowest_share);
    let stage = stage.map(|(stage, share)| format!("waits most for {stage} ({}), ", percent(share)));
    let (it, samples) = (shown(pace.it_per_s), shown(pace.samples_per_s));
    let emulated = if emulated { format!("{EMULATED}, ") } else { String::new() };
    format!("{}{it} it/s, {samples} samples/s ({emulated}last {WINDOW_S} s)", stage.unwrap_or_default())
}

/// `, about 3 min left (estimated)`; empty without an estimate.
fn remaining_time(seconds: Option<f64>) -> String {
    seconds.map(|s| format!(", about {} left (estimated)", duration(s))).unwrap_or_default()
}

/// A duration in at most two units: `12 s`, `3 min 5 s`, `5 h 20 min`, `9 d 3 h`. Below 0 it is `0 s`.
fn duration(seconds: f64) -> String {
    let s = seconds.max(0.0).round() as u64;
    let two_units = |n: u64, unit: &str, rest: u64, smaller_unit: &str| match rest {
        0 => format!("{n} {unit}"),
        rest => format!("{n} {unit} {rest} {smaller_unit}"),
    };
    match s {
        0..60 => format!("{s} s"),
        60..3600 => two_units(s / 60, "min", s % 60, "s"),
        3600..86_400 => two_units(s / 3600, "h", s % 3600 / 60, "min"),
        _ => two_units(s / 86_400, "d", s % 86_400 / 3600, "h"),
    }
}

/// A progress bar of `width` characters: `████░░░░`. It is empty where `total` is 0.
fn bar(done: usize, total: usize, width: usize) -> String {
    let full = (width * done.min(total)).checked_div(total).unwrap_or(0);
    format!("{}{}", "█".repeat(full), "░".repeat(width - full))
}

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
    use crate::watch::{CompletedTrial, StateCount, WaitingTrials};
    use expctl_ledger::AttemptState;
    use expctl_ledger::Stage;

    /// A job with running trials of two ranks, of which rank 1 is a straggler, with failed trials, and with three that wait.
    fn view(running: usize, failures: usize) -> View {
        let rank = |rank: u32| RankPace {
            rank,
            node: Some(format!("n{rank}")),
            step: 40,
            it_per_s: Some(9.5),
            samples_per_s: Some(76.0),
            own_time: Some(if rank == 1 { 1.18 } else { 1.0 }),
            straggler: rank == 1,
            last_step_s: Some(75.0),
        };
        let pace = Pace {
            step: 40,
            steps_total: 100,
            it_per_s: Some(9.5),
            samples_per_s: Some(152.0),
            slowest_stage: Some(Stage::Collate),
            slowest_share: Some(0.625),
            shares: Vec::new(),
            estimated_s_left: Some(6.3),
            last_step_s: Some(75.0),
            ranks: vec![rank(0), rank(1)],
        };
        let one = |task: usize| RunningTrial {
            task,
            trial: format!("lazy-r{task}"),
            point: String::new(),
            attempt: 1,
            reason: String::new(),
            since_s: 4.0,
            emulated: false,
            pace: Some(pace.clone()),
        };
        let failed = |n: usize| FailedTrial {
            trial: format!("ids-r{n}"),
            point: String::new(),
            state: AttemptState::Failed,
            reason: "it broke".into(),
        };
        View {
            time: 1_767_323_145,
            job: 12,
            config: "086_ddp".into(),
            backend: "slurm".into(),
            arrays: vec![12, 15],
            submitted: 1_767_323_045,
            elapsed_s: 100,
            ended: false,
            trials: vec![
                StateCount { state: AttemptState::Failed, trials: failures },
                StateCount { state: AttemptState::Running, trials: running },
                StateCount { state: AttemptState::Waiting, trials: 3 },
            ],
            estimated_s_left: Some(200.0),
            trouble: None,
            running: (0..running).map(one).collect(),
            completed: Vec::new(),
            waiting: vec![WaitingTrials { reason: "JobArrayTaskLimit".into(), trials: 3 }],
            failures: (0..failures).map(failed).collect(),
        }
    }

    #[test]
    fn a_frame_shows_running_and_failed_trials() {
        insta::assert_snapshot!(frame(&view(2, 1), 24, 120).join("\n"), @r"
        job 12, 086_ddp on slurm, array 12 and 15, submitted 2026-01-02 03:04 UTC, 1 min 40 s ago
        1 failed, 2 running, 3 waiting (JobArrayTaskLimit), about 3 min 20 s left (estimated)
        ████░░░░░░░░░░░░░░░░░░░░ 1 of 6 ended

        lazy-r0: ████░░░░░░░░ 40/100, waits most for collate (62.5 %), 9.5 it/s, 152 samples/s (last 10 s),
            about 6 s left (estimated), last step 1 min 15 s ago
            rank 1 on n1 takes 18 % longer than the median of the ranks; r0 9.5  r1 9.5 it/s
        lazy-r1: ████░░░░░░░░ 40/100, waits most for collate (62.5 %), 9.5 it/s, 152 samples/s (last 10 s),
            about 6 s left (estimated), last step 1 min 15 s ago
            rank 1 on n1 takes 18 % longer than the median of the ranks; r0 9.5  r1 9.5 it/s

        failed ids-r0: it broke
        q leaves; the job goes on
        ");
    }

    /// A job of long names, on a terminal of 24 rows.
    fn frame_of_long_names(width: usize) -> String {
        let mut view = view(1, 1);
        view.config = "arrayloader_ranks_peers_of_all_formats".into();
        view.running[0].point = "loader.workers=0, pipeline.store=\"lmdb\"".into();
        view.failures[0].point = view.running[0].point.clone();
        let lines = frame(&view, 24, width);
        assert!(lines.iter().all(|line| measure_text_width(line) <= width), "{lines:?}");
        lines.join("\n")
    }

    #[test]
    fn on_40_columns_the_state_and_the_rates_of_a_trial_are_there() {
        insta::assert_snapshot!(frame_of_long_names(40), @r#"
        job 12,
            arrayloader_r…_all_formats on slurm,
            array 12 and 15,
            submitted 2026-01-02 03:04 UTC,
            1 min 40 s ago
        1 failed, 1 running,
            3 waiting (JobArrayTaskLimit),
            about 3 min 20 s left (estimated)
        ██░░░░░░░░░░░ 1 of 5 ended

        lazy-r0 (lo…ore="lmdb"): ███░░░░░ 40/100
            waits most for collate (62.5 %),
            9.5 it/s, 152 samples/s (last 10 s),
            about 6 s left (estimated),
            last step 1 min 15 s ago
            rank 1 on n1 takes 18 % longer than…
            r0 9.5  r1 9.5 it/s

        failed ids-r0 (lo…e="lmdb"): it broke
        q leaves; the job goes on
        "#);
    }

    #[test]
    fn on_60_columns_the_state_and_the_rates_of_a_trial_are_there() {
        insta::assert_snapshot!(frame_of_long_names(60), @r#"
        job 12, arrayloader_ranks_peers_of_all_formats on slurm,
            array 12 and 15, submitted 2026-01-02 03:04 UTC,
            1 min 40 s ago
        1 failed, 1 running, 3 waiting (JobArrayTaskLimit),
            about 3 min 20 s left (estimated)
        ████░░░░░░░░░░░░░░░░ 1 of 5 ended

        lazy-r0 (loader.wor…eline.store="lmdb"): ████░░░░░░░░ 40/100
            waits most for collate (62.5 %), 9.5 it/s,
            152 samples/s (last 10 s), about 6 s left (estimated),
            last step 1 min 15 s ago
            rank 1 on n1 takes 18 % longer than the median of the r…
            r0 9.5  r1 9.5 it/s

        failed ids-r0 (loader.….store="lmdb"): it broke
        q leaves; the job goes on
        "#);
    }

    #[test]
    fn on_80_columns_the_state_and_the_rates_of_a_trial_are_there() {
        insta::assert_snapshot!(frame_of_long_names(80), @r#"
        job 12, arrayloader_ranks_peers_of_all_formats on slurm, array 12 and 15,
            submitted 2026-01-02 03:04 UTC, 1 min 40 s ago
        1 failed, 1 running, 3 waiting (JobArrayTaskLimit),
            about 3 min 20 s left (estimated)
        ████░░░░░░░░░░░░░░░░░░░░ 1 of 5 ended

        lazy-r0 (loader.workers=0, pipeline.store="lmdb"): ████░░░░░░░░ 40/100
            waits most for collate (62.5 %), 9.5 it/s, 152 samples/s (last 10 s),
            about 6 s left (estimated), last step 1 min 15 s ago
            rank 1 on n1 takes 18 % longer than the median of the ranks
            r0 9.5  r1 9.5 it/s

        failed ids-r0 (loader.workers=0, pipeline.store="lmdb"): it broke
        q leaves; the job goes on
        "#);
    }

    #[test]
    fn progress_has_its_own_line_beside_a_long_state() {
        let mut view = view(1, 0);
        (view.running[0].attempt, view.running[0].reason) = (2, "Slurm says COMPLETING".into());
        view.running[0].point = "loader.workers=0, pipeline.store=\"lmdb\"".into();
        let lines = trial(&view.running[0], 48);
        assert_eq!(lines[..2], ["lazy-r0…lmdb\"), attempt 2, Slurm says COMPLETING", "    ███░░░░░░ 40/100"]);
        view.running[0].pace = None;
        assert_eq!(trial(&view.running[0], 48)[1], "    starting");
        assert_eq!(trial(&view.running[0], 200).len(), 1);
    }

    #[test]
    fn a_low_terminal_keeps_its_lines_for_the_trials() {
        let lines = frame(&view(1, 0), 9, 60);
        assert!(lines[0].ends_with('…') && lines.iter().any(|line| line.contains("9.5 it/s")), "{lines:?}");
    }

    #[test]
    fn the_middle_of_a_long_name_is_left_out() {
        assert_eq!(
            [0, 1, 2, 5, 7, 8].map(|width| without_middle("abcdefgh", width)),
            ["…", "…", "a…", "ab…gh", "abc…fgh", "abcdefgh"]
        );
    }

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
    fn it_fits_every_terminal() {
        for (height, width) in [(3, 11), (4, 20), (5, 40), (8, 80), (24, 80), (50, 200)] {
            for (running, failures) in [(0, 0), (1, 0), (0, 30), (3, 2), (30, 30), (500, 1)] {
                let lines = frame(&view(running, failures), height, width);
                assert!(lines.len() <= height, "{running} {failures} in {height}: {lines:?}");
                assert!(lines.iter().all(|line| console::measure_text_width(line) <= width), "{lines:?}");
            }
        }
        let lines = frame(&view(30, 30), 24, 100);
        assert!(lines.iter().any(|l| l.starts_with("… and ") && l.ends_with(" more that run")), "{lines:?}");
        assert!(lines.iter().any(|l| l.ends_with(" more that did not complete")), "{lines:?}");
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
