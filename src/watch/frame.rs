//! [`fn@frame`] fills a terminal with a [`View`] of a job.

use console::{measure_text_width, truncate_str};
use expctl_settings::with_point;
use expctl_text::format::{MISSING, rate};

use super::text::{duration, header, rates, remaining_time, straggler_text};
use super::{FailedTrial, RunningTrial, View};
use crate::launch::status::RankPace;

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

/// A progress bar of `width` characters: `████░░░░`. It is empty where `total` is 0.
fn bar(done: usize, total: usize, width: usize) -> String {
    let full = (width * done.min(total)).checked_div(total).unwrap_or(0);
    format!("{}{}", "█".repeat(full), "░".repeat(width - full))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::text::sample::view;

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
}
