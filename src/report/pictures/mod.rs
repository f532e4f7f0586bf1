//! Charts of a measured job.
//!
//! Invariant: every caption has the class of the figures and the numbers of runs and steps. A chart without information is left out.

mod rates;
mod steps;
mod timeline;

use std::collections::BTreeSet;

use expctl_charts::{Axis, Bar, Chart, Layer, Panel, Point};
use expctl_ledger::{LearningRecord, MeasuredJob, Run};
use expctl_text::format;

use super::rates::completed_steps;

pub use rates::{EpochBar, epoch_panel};
pub use steps::{TimeBox, WHISKERS, box_panel};

/// All charts of a job, in reading order.
pub fn charts(job: &MeasuredJob) -> Vec<Chart> {
    [
        rates::rates_chart(job),
        steps::stages_chart(job),
        rates::epoch_time_chart(job),
        steps::boxplot_chart(job),
        steps::times_chart(job),
        timeline::timeline_chart(job),
        timeline::ranks_chart(job),
        rates::scaling_chart(job),
        rates::sweep_chart(job),
        learning_chart(job),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The picture of the answer: the rate of each variant with its interval, and below it the stages of its mean step. `None` without a
/// completed run.
pub fn overview_chart(job: &MeasuredJob) -> Option<Chart> {
    let (rates, stages) = (rates::rates_chart(job)?, steps::stages_chart(job)?);
    let titled = |panel: Option<Panel>, title: &str| panel.map(|panel| Panel { title: title.into(), ..panel });
    // The colours of the picture are the stages'.
    let neutral = |panel: Panel| Panel { layers: panel.layers.into_iter().map(Layer::neutral).collect(), ..panel };
    // Of steps of very different lengths the last panel has shares.
    let panels = [
        titled(rates.panels.into_iter().next().map(neutral), "samples per second, with their interval"),
        titled(stages.panels.into_iter().last(), "where a step's time goes"),
    ];
    Some(Chart {
        name: "overview".into(),
        title: "How fast each variant is, and why".into(),
        alt: "Samples per second of each variant with the interval over its runs, and below them the stages of its mean step.".into(),
        caption: format!("{} {}", rates.caption, stages.caption),
        panels: panels.into_iter().flatten().collect(),
        columns: 1,
    })
}

/// Most variants with a bar or a box each: of more than a hundred, none can be told from the next in a picture of this width, and its files
/// would grow with the job.
const MAX_BARS: usize = 100;
/// Most variants with a line each.
const MAX_LINES: usize = 40;

/// At most `most` of all variants, in their order: evenly from the one with the smallest `figure` (a rate or a time) to the one with the largest.
/// With them what the caption says of that; empty if they are all.
fn evenly<T>(all: Vec<T>, most: usize, figure: impl Fn(&T) -> f64) -> (Vec<T>, String) {
    let n = all.len();
    if n <= most {
        return (all, String::new());
    }
    let mut by_figure: Vec<usize> = (0..n).collect();
    by_figure.sort_by(|a, b| figure(&all[*a]).total_cmp(&figure(&all[*b])));
    let chosen: BTreeSet<usize> = (0..most).map(|i| by_figure[i * (n - 1) / (most - 1)]).collect();
    let shown = all.into_iter().enumerate().filter(|(index, _)| chosen.contains(index)).map(|(_, one)| one);
    (
        shown.collect(),
        format!(" {most} of {} variants, evenly from the slowest to the fastest.", format::thousands(n as u64)),
    )
}

/// Name of the chart of learning curves, which has its own section in a note.
pub const LEARNING: &str = "learning";

/// Title of a panel, and its figure of an epoch.
type EpochFigure = (&'static str, fn(&LearningRecord) -> Option<f64>);

const EPOCH_FIGURES: [EpochFigure; 3] = [
    ("training loss", |record| Some(record.train_loss)),
    ("validation loss", |record| Some(record.validation.as_ref()?.loss)),
    ("validation, Pearson", |record| record.validation.as_ref()?.pearson),
];

/// Learning curves: a line for each run, a colour for each variant. `None` without epochs.
fn learning_chart(job: &MeasuredJob) -> Option<Chart> {
    let mut groups = job.by_label();
    let mut left_out = String::new();
    if groups.len() > MAX_LINES {
        groups.retain(|(_, runs)| runs.iter().any(|run| !run.learning.is_empty()));
        if groups.len() > MAX_LINES {
            left_out = format!(" The first {MAX_LINES} of {} variants.", format::thousands(groups.len() as u64));
        }
        groups.truncate(MAX_LINES);
    }
    let panels: Vec<Panel> = EPOCH_FIGURES.into_iter().filter_map(|figure| learning_panel(&groups, figure)).collect();
    if panels.is_empty() {
        return None;
    }
    let runs = groups.iter().flat_map(|(_, runs)| runs).filter(|run| !run.learning.is_empty()).count() as u64;
    Some(Chart {
        name: LEARNING.into(),
        title: "What training came to".into(),
        alt: "Training loss, validation loss and Pearson's correlation over the epochs, a line for each run.".into(),
        caption: format!("Measured, {}: a line each, a colour for each variant.{left_out}", format::count(runs, "run")),
        panels,
        columns: 1,
    })
}

/// One figure over the epochs; `None` if no run has it.
fn learning_panel(groups: &[(String, Vec<&Run>)], (name, of): EpochFigure) -> Option<Panel> {
    let mut layers = Vec::new();
    for (colour, (label, runs)) in groups.iter().enumerate() {
        for run in runs {
            let points: Vec<Point> =
                run.learning.iter().filter_map(|record| Some([(record.epoch + 1) as f64, of(record)?])).collect();
            if points.iter().any(|[_, value]| value.is_finite()) {
                // One epoch is no line.
                layers.push(Layer::Line { name: label.clone(), colour, points: points.clone() });
                layers.push(Layer::Dots { name: label.clone(), colour, points });
            }
        }
    }
    (!layers.is_empty()).then(|| Panel { title: name.into(), x: Axis::new("epoch"), y: Axis::new(name), layers })
}

/// Ratio of times from which the axis is logarithmic.
const FAR_APART: f64 = 30.0;

/// Minimum and maximum of the finite values; `None` without any.
fn min_max(values: impl IntoIterator<Item = f64>) -> Option<[f64; 2]> {
    let ends = values
        .into_iter()
        .filter(|v| v.is_finite())
        .fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], v| [low.min(v), high.max(v)]);
    (ends[0] <= ends[1]).then_some(ends)
}

/// Whether positive values are too far apart for a linear axis.
fn far_apart(values: impl IntoIterator<Item = f64>) -> bool {
    min_max(values.into_iter().filter(|v| *v > 0.0)).is_some_and(|[low, high]| high / low > FAR_APART)
}

/// Multiple of the highest value at which intervals are cut off.
const MAX_INTERVAL: f64 = 2.0;

/// A linear axis from 0 for bars with the highest value `highest`, and whether it cuts intervals off: the interval of two runs can be so
/// wide that nothing else would be visible.
fn cut_intervals(y: Axis, bars: &[Bar], highest: f64) -> (Axis, bool) {
    let top = bars.iter().filter_map(|bar| bar.interval).fold(0.0, |top: f64, [_, high]| top.max(high));
    if top > MAX_INTERVAL * highest { (y.between(0.0, MAX_INTERVAL * highest), true) } else { (y, false) }
}

/// `3 runs and 120 steps of all ranks each`, `2 to 5 runs and 80 to 200 steps of all ranks each` from the numbers of
/// completed runs and measured steps (of all ranks) of each variant.
fn basis(counts: &[(usize, usize)]) -> String {
    let shown = |of: fn(&(usize, usize)) -> usize, what: &str| match min_max(counts.iter().map(|n| of(n) as f64)) {
        Some([low, high]) if low < high => {
            format!("{} to {} {what}s", format::thousands(low as u64), format::thousands(high as u64))
        }
        Some([n, _]) => format::count(n as u64, what),
        None => format!("no {what}"),
    };
    format!("{} and {} of all ranks each", shown(|(runs, _)| *runs, "run"), shown(|(_, steps)| *steps, "step"))
}

/// Numbers of runs and steps of a variant, for a caption.
fn counted(runs: &[&Run]) -> (usize, usize) {
    (completed_runs(runs), completed_steps(runs).count())
}

/// Number of completed runs.
fn completed_runs(runs: &[&Run]) -> usize {
    runs.iter().filter(|run| run.completed()).count()
}

#[cfg(test)]
mod tests {
    use super::evenly;

    #[test]
    fn of_too_many_variants_those_from_the_slowest_to_the_fastest_are_shown_in_their_order() {
        let rates = vec![5.0, 1.0, 9.0, 3.0, 7.0];
        assert_eq!(evenly(rates.clone(), 5, |rate| *rate), (rates.clone(), String::new()));
        let (shown, said) = evenly(rates, 3, |rate| *rate);
        assert_eq!(
            (shown, said.as_str()),
            (vec![5.0, 1.0, 9.0], " 3 of 5 variants, evenly from the slowest to the fastest.")
        );
    }
}
