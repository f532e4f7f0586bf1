//! Charts of steps: exposed time by stage, boxplots and distributions of step times.

use expctl_charts::{Axis, Bar, BoxMark, Chart, Layer, Panel, Point};
use expctl_ledger::{MeasuredJob, Stage};
use expctl_stats::{mean, quantile};

use super::{MAX_BARS, MAX_LINES, basis, counted, evenly, far_apart, min_max};
use crate::report::breakdown::Breakdown;
use crate::report::rates::completed_steps;

/// Index into the palette of unattributed time: grey.
const GREY: usize = 9;

/// Ratio of step times from which a second panel shows shares, because the stages of the shorter step are not visible.
const MANY_TIMES: f64 = 4.0;

/// Exposed time of each stage in the mean step of each variant, stacked. `None` without a completed run.
pub(super) fn stages_chart(job: &MeasuredJob) -> Option<Chart> {
    let mut counts = Vec::new();
    let mut variants: Vec<(String, Breakdown)> = Vec::new();
    for (label, runs) in job.by_label() {
        if let Some(breakdown) = Breakdown::from_steps(completed_steps(&runs)).filter(|breakdown| breakdown.wall > 0.0)
        {
            counts.push(counted(&runs));
            variants.push((label, breakdown));
        }
    }
    if variants.is_empty() {
        return None;
    }
    let (variants, left_out) = evenly(variants, MAX_BARS, |(_, breakdown): &(String, Breakdown)| breakdown.wall);
    let mut panels = vec![stages_panel(&variants, "time", Axis::new("exposed time (ms/step)"), |_| 1e-6)];
    // See [`MANY_TIMES`].
    if min_max(variants.iter().map(|(_, breakdown)| breakdown.wall)).is_some_and(|[low, high]| high > MANY_TIMES * low)
    {
        panels.push(stages_panel(&variants, "share", Axis::new("share of the step (%)"), |breakdown| {
            100.0 / breakdown.wall
        }));
    } else {
        panels[0].title = String::new();
    }
    Some(Chart {
        name: "stages".into(),
        title: "Where a step's time goes".into(),
        alt: "Exposed time of each stage in the mean step of each variant, stacked.".into(),
        caption: format!(
            "Measured, means over {}; unattributed (derived): wall time that no stage claims.{left_out}",
            basis(&counts)
        ),
        panels,
        columns: 1,
    })
}

/// Exposed times in the unit that `unit` gives for a variant, as a factor of ns.
fn stages_panel(variants: &[(String, Breakdown)], title: &str, y: Axis, unit: impl Fn(&Breakdown) -> f64) -> Panel {
    let exposed = |breakdown: &Breakdown, stage: Stage| {
        breakdown.exposed.iter().find(|(s, _)| *s == stage).and_then(|(_, ns)| *ns).unwrap_or(0.0)
    };
    let happens = |stage: &Stage| variants.iter().any(|(_, breakdown)| exposed(breakdown, *stage) > 0.0);
    let mut tops = vec![0.0; variants.len()];
    let mut layers = Vec::new();
    let mut stack = |name: String, colour: usize, of: &dyn Fn(&Breakdown) -> f64| {
        let bars = variants.iter().zip(&mut tops).enumerate().map(|(i, ((_, breakdown), top))| {
            let (from, to) = (*top, *top + of(breakdown) * unit(breakdown));
            *top = to;
            Bar { x: i as f64, width: 0.7, from, to, interval: None }
        });
        layers.push(Layer::Bars { name, colour, bars: bars.collect() });
    };
    // Grey is for unattributed time.
    let colours = (0..).filter(|colour| colour % 10 != GREY);
    for (stage, colour) in Stage::ALL.into_iter().filter(happens).zip(colours) {
        stack(stage.name().to_owned(), colour, &|breakdown| exposed(breakdown, stage));
    }
    stack("unattributed".to_owned(), GREY, &|breakdown| breakdown.unattributed);
    let names = variants.iter().map(|(label, _)| label.clone());
    Panel { title: title.to_owned(), x: Axis::new("").named(names), y, layers }
}

/// Range of the whiskers of a [`TimeBox`].
pub const WHISKERS: &str = "1 % to 99 %";

/// Width of the boxes of one group, in units of the axis.
const GROUP_WIDTH: f64 = 0.7;

/// A box of a boxplot: times of batches or steps, in the unit of the axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeBox {
    /// 1st and 99th percentile.
    pub whiskers: [f64; 2],
    /// Lower and upper quartile.
    pub quartiles: [f64; 2],
    /// Median.
    pub median: f64,
    /// Mean.
    pub mean: f64,
}

impl TimeBox {
    /// Box of times, in any order; `None` without times.
    pub fn from_times(times: &[f64]) -> Option<Self> {
        let at = |share| quantile(times, share);
        Some(Self {
            whiskers: [at(0.01)?, at(0.99)?],
            quartiles: [at(0.25)?, at(0.75)?],
            median: at(0.5)?,
            mean: mean(times)?,
        })
    }
}

/// A boxplot with a name below each group of boxes and a dot at each mean. Box `n` of a group belongs to `series[n]`. The axis is
/// logarithmic if the times are far apart.
pub fn box_panel(groups: &[(String, Vec<Option<TimeBox>>)], series: &[&str], y: &str) -> Panel {
    let slot = GROUP_WIDTH / series.len().max(1) as f64;
    let x = |group: usize, n: usize| group as f64 + (n as f64 + 0.5) * slot - GROUP_WIDTH / 2.0;
    let placed = |n: usize| {
        let boxes = groups.iter().enumerate().filter_map(move |(group, (_, boxes))| Some((group, (*boxes.get(n)?)?)));
        boxes.map(move |(group, of)| (x(group, n), of))
    };
    let mut layers: Vec<Layer> = Vec::new();
    for (colour, name) in series.iter().enumerate() {
        let mark = |(x, of): (f64, TimeBox)| {
            let TimeBox { whiskers, quartiles, median, .. } = of;
            BoxMark { x, width: slot * 0.85, whiskers, quartiles, median }
        };
        let boxes = placed(colour).map(mark).collect();
        layers.push(Layer::Boxes { name: (*name).to_owned(), colour, whiskers: WHISKERS.to_owned(), boxes });
    }
    let means = (0..series.len()).flat_map(placed).map(|(x, of)| [x, of.mean]).collect();
    layers.push(Layer::Dots { name: "mean".to_owned(), colour: series.len(), points: means });
    let all = || groups.iter().flat_map(|(_, boxes)| boxes.iter().flatten());
    let log = far_apart(all().flat_map(|of| of.whiskers.into_iter().chain([of.mean])));
    let y = Axis::new(y);
    let names = groups.iter().map(|(name, _)| name.clone());
    Panel { title: String::new(), x: Axis::new("").named(names), y: if log { y.log() } else { y }, layers }
}

/// Step times of each variant as a box. `None` if no variant has two measured steps.
pub(super) fn boxplot_chart(job: &MeasuredJob) -> Option<Chart> {
    let (mut groups, mut counts) = (Vec::new(), Vec::new());
    for (label, runs) in job.by_label() {
        let times: Vec<f64> = completed_steps(&runs).map(|step| step.wall_ns as f64 / 1e6).collect();
        if times.len() > 1 {
            counts.push(counted(&runs));
            groups.push((label, vec![TimeBox::from_times(&times)]));
        }
    }
    if groups.is_empty() {
        return None;
    }
    let median_of =
        |(_, boxes): &(String, Vec<Option<TimeBox>>)| boxes.iter().flatten().map(|of| of.median).sum::<f64>();
    let (groups, left_out) = evenly(groups, MAX_BARS, median_of);
    Some(Chart {
        name: "boxplot".into(),
        title: "How long a batch takes".into(),
        alt: "A boxplot of the step times of each variant.".into(),
        caption: format!(
            "Measured, {}. Box: quartiles and median; whiskers: {WHISKERS} of the steps; dot: mean.{left_out}",
            basis(&counts)
        ),
        panels: vec![box_panel(&groups, &["steps"], "step time (ms)")],
        columns: 1,
    })
}

/// Maximum number of points of a line.
const MAX_POINTS: usize = 200;

/// Step times of a variant, in ms, sorted.
struct SortedTimes {
    label: String,
    sorted: Vec<f64>,
    /// Number of runs times ranks in `sorted`.
    series: f64,
}

/// Distribution of step times, and sums of the sorted times. `None` if no variant has two steps.
pub(super) fn times_chart(job: &MeasuredJob) -> Option<Chart> {
    let mut variants = Vec::new();
    let mut counts = Vec::new();
    for (label, runs) in job.by_label() {
        let mut sorted: Vec<f64> = completed_steps(&runs).map(|step| step.wall_ns as f64 / 1e6).collect();
        sorted.sort_by(f64::total_cmp);
        if sorted.len() > 1 {
            let series = runs.iter().filter(|run| run.completed()).map(|run| run.ranks.len()).sum::<usize>() as f64;
            counts.push(counted(&runs));
            variants.push(SortedTimes { label, sorted, series });
        }
    }
    if variants.is_empty() {
        return None;
    }
    let mean_of = |times: &SortedTimes| times.sorted.iter().sum::<f64>() / times.sorted.len() as f64;
    let (variants, left_out) = evenly(variants, MAX_LINES, mean_of);
    let all = || variants.iter().flat_map(|times| [times.sorted[0], times.sorted[times.sorted.len() - 1]]);
    let by_log = |axis: Axis, log: bool| if log { axis.log() } else { axis };
    let spread = Panel {
        title: "how step times are spread".into(),
        x: by_log(Axis::new("step time (ms)"), far_apart(all())),
        y: Axis::new("share of steps").between(0.0, 1.0),
        layers: lines(&variants, shares),
    };
    let totals = variants.iter().map(|times| times.sorted.iter().sum::<f64>() / 1e3 / times.series);
    let together = Panel {
        title: "what they add up to, fastest first".into(),
        x: Axis::new("share of steps").between(0.0, 1.0),
        y: by_log(Axis::new("time of these steps (s)"), far_apart(totals)),
        layers: lines(&variants, sums),
    };
    Some(Chart {
        name: "times".into(),
        title: "Step times".into(),
        alt: "Left, the distribution of step times of each variant; right, their sum from the fastest step on.".into(),
        caption: format!("Measured, {}; the sum (derived) is of a mean run and rank.{left_out}", basis(&counts)),
        panels: vec![spread, together],
        columns: 2,
    })
}

fn lines(variants: &[SortedTimes], of: fn(&SortedTimes) -> Vec<Point>) -> Vec<Layer> {
    let line =
        |(colour, times): (usize, &SortedTimes)| Layer::Line { name: times.label.clone(), colour, points: of(times) };
    variants.iter().enumerate().map(line).collect()
}

/// Evenly spread indices of a list, the first and the last among them.
fn indices(n: usize) -> impl Iterator<Item = usize> {
    let points = n.min(MAX_POINTS);
    (0..points).map(move |i| i * (n - 1) / (points - 1).max(1))
}

fn shares(times: &SortedTimes) -> Vec<Point> {
    let n = times.sorted.len();
    let mut points = vec![[times.sorted[0], 0.0]];
    points.extend(indices(n).map(|i| [times.sorted[i], (i + 1) as f64 / n as f64]));
    points
}

fn sums(times: &SortedTimes) -> Vec<Point> {
    let n = times.sorted.len();
    let mut sum = 0.0;
    let sums: Vec<f64> = times
        .sorted
        .iter()
        .map(|time| {
            sum += time / 1e3;
            sum / times.series
        })
        .collect();
    std::iter::once([0.0, 0.0]).chain(indices(n).map(|i| [(i + 1) as f64 / n as f64, sums[i]])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_of_a_group_stand_beside_each_other() {
        let times: Vec<f64> = (1..=101).map(f64::from).collect();
        let one = TimeBox::from_times(&times).unwrap();
        assert_eq!((one.whiskers, one.quartiles, one.median, one.mean), ([2.0, 100.0], [26.0, 76.0], 51.0, 51.0));
        assert_eq!(TimeBox::from_times(&[]), None);
        let groups = [("a".to_owned(), vec![Some(one), Some(one)]), ("b".to_owned(), vec![None, Some(one)])];
        let panel = box_panel(&groups, &["first", "later"], "time (s)");
        let boxes = |layer: &Layer| match layer {
            Layer::Boxes { boxes, .. } => boxes.iter().map(|mark| (mark.x * 1000.0).round()).collect(),
            _ => Vec::new(),
        };
        assert_eq!(boxes(&panel.layers[0]), [-175.0]);
        assert_eq!(boxes(&panel.layers[1]), [175.0, 1175.0]);
        assert_eq!(panel.y.scale, expctl_charts::Scale::Log);
    }
}
