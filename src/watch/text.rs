//! What is said of a job and of its running trials, in a frame of a terminal as in a line.

use expctl_settings::EMULATED;
use expctl_text::format::{MISSING, moment, percent, rate};

use super::View;
use crate::launch::status::{Pace, RankPace, WINDOW_S};

/// `job 12, small on slurm, array 12 and 15, submitted 2026-01-02 03:04 UTC, 5 min ago`. `config`: its name, or as much
/// of it as fits.
pub fn header(view: &View, config: &str) -> String {
    let arrays: Vec<String> = view.arrays.iter().map(u64::to_string).collect();
    let arrays = if arrays.is_empty() { String::new() } else { format!(", array {}", arrays.join(" and ")) };
    let (submitted, elapsed) = (moment(view.submitted), duration(view.elapsed_s as f64));
    let elapsed = if view.ended { format!("took {elapsed}") } else { format!("{elapsed} ago") };
    format!("job {}, {config} on {}{arrays}, submitted {submitted}, {elapsed}", view.job, view.backend)
}

/// `rank 3 on n2 takes 18 % longer than the median of the ranks`: for a step, without the wait for other ranks.
pub fn straggler_text(rank: &RankPace) -> String {
    let node = rank.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
    let more = (rank.own_time.unwrap_or(1.0) - 1.0) * 100.0;
    format!("rank {}{node} takes {more:.0} % longer than the median of the ranks", rank.rank)
}

/// `waits most for collate (62 %), 12.3 it/s, 98 samples/s (last 10 s)`. Of emulated steps the end is
/// `(emulated, last 10 s)`.
pub fn rates(pace: &Pace, emulated: bool) -> String {
    let shown = |value: Option<f64>| value.map_or_else(|| MISSING.to_owned(), rate);
    let stage = pace.slowest_stage.zip(pace.slowest_share);
    let stage = stage.map(|(stage, share)| format!("waits most for {stage} ({}), ", percent(share)));
    let (it, samples) = (shown(pace.it_per_s), shown(pace.samples_per_s));
    let emulated = if emulated { format!("{EMULATED}, ") } else { String::new() };
    format!("{}{it} it/s, {samples} samples/s ({emulated}last {WINDOW_S} s)", stage.unwrap_or_default())
}

/// `, about 3 min left (estimated)`; empty without an estimate.
pub fn remaining_time(seconds: Option<f64>) -> String {
    seconds.map(|s| format!(", about {} left (estimated)", duration(s))).unwrap_or_default()
}

/// A duration in at most two units: `12 s`, `3 min 5 s`, `5 h 20 min`, `9 d 3 h`. Below 0 it is `0 s`.
pub fn duration(seconds: f64) -> String {
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

/// A job to be shown.
#[cfg(test)]
pub mod sample {
    use super::*;
    use crate::watch::{FailedTrial, RunningTrial, StateCount, WaitingTrials};
    use expctl_ledger::{AttemptState, Stage};

    /// A job with running trials of two ranks, of which rank 1 is a straggler, with failed trials, and with three that wait.
    pub fn view(running: usize, failures: usize) -> View {
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
}
