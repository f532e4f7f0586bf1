//! Charts over time: step times with hardware samples, and the work of each rank.

use expctl_charts::{Axis, Chart, Layer, Panel, Point, ShadedCell};
use expctl_ledger::{HardwareSample, MeasuredJob, Run, Stage, StepRecord};
use expctl_stats::median;

use super::{basis, completed_runs};
use crate::report::rates::measured_steps;

/// Most variants shown, the first runs: more lines over each other say nothing.
const MAX_LINES: usize = 6;
/// Minimum number of samples of a line.
const MIN_SAMPLES: usize = 3;

/// Label of an axis, and its figure of a sample, given the seconds since the sample before.
type SampleFigure = (&'static str, fn(&HardwareSample, f64) -> Option<f64>);

const SAMPLE_FIGURES: [SampleFigure; 4] = [
    ("processors (%)", |sample, _| sample.cpu_percent),
    ("memory (GB)", |sample, _| Some(sample.rss_bytes? as f64 / 1e9)),
    ("from disks (MB/s)", |sample, seconds| Some(sample.disk_read_bytes? as f64 / 1e6 / seconds)),
    ("GPU busy (%)", |sample, _| sample.gpu_percent),
];

/// Rank 0 of a run, with the name of its variant.
struct TimelineRun<'a> {
    label: String,
    run: &'a Run,
}

/// Step times over time, and below them resource usage, of rank 0 of the first completed run of each variant. `None` without samples.
pub(super) fn timeline_chart(job: &MeasuredJob) -> Option<Chart> {
    let has = |run: &Run| run.completed() && samples(run).filter(|s| s.at_ns > Some(0)).count() >= MIN_SAMPLES;
    let mut runs = Vec::new();
    for (label, of_label) in job.by_label() {
        runs.extend(of_label.into_iter().find(|run| has(run)).map(|run| TimelineRun { label, run }));
    }
    let all = runs.len();
    runs.truncate(MAX_LINES);
    if runs.is_empty() {
        return None;
    }
    let end = runs.iter().filter_map(|one| steps(one).last().copied()).map(|[end, _]| end).fold(0.0, f64::max);
    let x = || Axis::new("time (s)").between(0.0, end.max(f64::MIN_POSITIVE));
    let mut panels =
        vec![Panel { title: String::new(), x: x(), y: Axis::new("step time (ms)"), layers: lines(&runs, steps) }];
    for (name, figure) in SAMPLE_FIGURES {
        let layers = lines(&runs, |one| points(one, figure));
        if !layers.is_empty() {
            panels.push(Panel { title: String::new(), x: x(), y: Axis::new(name), layers });
        }
    }
    let resumed = match runs.iter().any(|one| one.run.resumed()) {
        true => " Of a run that went on from a checkpoint, its last attempt alone.",
        false => "",
    };
    let left_out = if all > MAX_LINES { format!(" The first {MAX_LINES} of {all} variants.") } else { String::new() };
    Some(Chart {
        name: "timeline".into(),
        title: "What was taken as the steps went by".into(),
        alt: "Step times over time, and below them processor time, memory, disk reads and GPU use of the same moments."
            .into(),
        caption: format!(
            "Measured, one run and rank each (rank 0 of the first completed run): steps by their end, warm-up included, and hardware samples of \
             that rank; amounts of a sample are of the time since the one before.{resumed}{left_out}"
        ),
        panels,
        columns: 1,
    })
}

fn samples(run: &Run) -> impl Iterator<Item = &HardwareSample> {
    run.parts.last().and_then(|part| part.samples.first()).into_iter().flatten()
}

/// End and duration of each step of the last attempt, because each attempt has its own clock.
fn steps(one: &TimelineRun<'_>) -> Vec<Point> {
    let all = one.run.parts.last().map_or(&[][..], |part| one.run.steps_of(part, 0));
    all.iter().map(|step| [(step.start_ns + step.wall_ns) as f64 / 1e9, step.wall_ns as f64 / 1e6]).collect()
}

/// A figure of the samples from the first step on.
fn points(one: &TimelineRun<'_>, figure: fn(&HardwareSample, f64) -> Option<f64>) -> Vec<Point> {
    let all: Vec<&HardwareSample> = samples(one.run).collect();
    let point = |two: &[&HardwareSample]| {
        let at = two[1].at_ns.filter(|at| *at >= 0)? as f64 / 1e9;
        let seconds = (two[1].clock_ns.saturating_sub(two[0].clock_ns)) as f64 / 1e9;
        Some([at, figure(two[1], seconds).filter(|value| value.is_finite())?])
    };
    all.windows(2).filter_map(point).collect()
}

fn lines(runs: &[TimelineRun<'_>], of: impl Fn(&TimelineRun<'_>) -> Vec<Point>) -> Vec<Layer> {
    let line = |(colour, one): (usize, &TimelineRun<'_>)| {
        let points = of(one);
        (!points.is_empty()).then(|| Layer::Line { name: one.label.clone(), colour, points })
    };
    runs.iter().enumerate().filter_map(line).collect()
}

/// Maximum number of columns of a map; with more steps, several share a column.
const MAX_COLUMNS: usize = 100;
/// Maximum number of variants: those whose ranks differ most.
const MAX_MAPS: usize = 6;
/// Number of ranks up to which each is named beside the map.
const MAX_NAMED_RANKS: usize = 32;

/// Work of the ranks of a variant: wall time less exposed allreduce.
struct RankMap {
    label: String,
    runs: usize,
    ranks: usize,
    steps: usize,
    /// First and last step of each column, from 0.
    bins: Vec<[usize; 2]>,
    /// By rank and column: mean work, ms.
    work: Vec<Vec<f64>>,
}

/// Work of each rank over the steps. `None` if no variant ran on several ranks.
pub(super) fn ranks_chart(job: &MeasuredJob) -> Option<Chart> {
    let mut maps: Vec<RankMap> =
        job.by_label().into_iter().filter_map(|(label, runs)| RankMap::from_runs(label, &runs)).collect();
    let all = maps.len();
    if all > MAX_MAPS {
        let mut uneven: Vec<f64> = maps.iter().map(RankMap::unevenness).collect();
        uneven.sort_by(f64::total_cmp);
        let min = uneven[all - MAX_MAPS];
        maps.retain(|map| map.unevenness() >= min);
        maps.truncate(MAX_MAPS);
    }
    let several = maps.len() > 1;
    let counts: Vec<_> = maps.iter().map(|map| (map.runs, map.runs * map.ranks * map.steps)).collect();
    maps.first()?;
    let chosen = if all > MAX_MAPS {
        format!(" The {MAX_MAPS} of {all} variants whose ranks differ most.")
    } else {
        String::new()
    };
    let unit = if several { " Against the median of the variant, so that one scale does for all." } else { "" };
    Some(Chart {
        name: "ranks".into(),
        title: "What each rank works by itself".into(),
        alt: "Wall time less exposed allreduce of each rank over the steps, as colours.".into(),
        caption: format!(
            "Derived from measured times, {}, means over runs: wall time of a rank less its exposed allreduce, by step. A bright row is \
             a rank that the others wait for.{unit}{chosen}",
            basis(&counts)
        ),
        panels: maps.into_iter().map(|map| map.panel(several)).collect(),
        columns: 1,
    })
}

impl RankMap {
    /// Map of the completed runs; `None` with a single rank.
    fn from_runs(label: String, runs: &[&Run]) -> Option<Self> {
        let ranks = runs.iter().filter(|run| run.completed()).map(|run| run.ranks.len()).min()?;
        let tables: Vec<Vec<Vec<&StepRecord>>> = runs
            .iter()
            .filter(|run| run.completed())
            .map(|run| run.ranks.iter().map(|steps| measured_steps(steps).collect()).collect())
            .collect();
        // Only steps that all ranks and runs have.
        let steps = tables.iter().flatten().map(Vec::len).min().unwrap_or(0);
        if ranks < 2 || steps == 0 {
            return None;
        }
        let columns = steps.min(MAX_COLUMNS);
        let bins: Vec<[usize; 2]> = (0..columns).map(|i| [i * steps / columns, (i + 1) * steps / columns]).collect();
        let work = |step: &StepRecord| step.wall_ns.saturating_sub(step.exposed[Stage::Allreduce]) as f64 / 1e6;
        let mean = |rank: usize, [from, to]: [usize; 2]| {
            let sum: f64 = tables.iter().flat_map(|table| &table[rank][from..to]).map(|step| work(step)).sum();
            sum / (tables.len() * (to - from)) as f64
        };
        let work = (0..ranks).map(|rank| bins.iter().map(|bin| mean(rank, *bin)).collect()).collect();
        Some(Self { label, runs: completed_runs(runs), ranks, steps, bins, work })
    }

    /// Mean work of the slowest rank over that of the median rank.
    fn unevenness(&self) -> f64 {
        let means: Vec<f64> = self.work.iter().map(|row| row.iter().sum::<f64>() / row.len() as f64).collect();
        let max = means.iter().copied().fold(0.0, f64::max);
        median(&means).filter(|middle| *middle > 0.0).map_or(0.0, |middle| max / middle)
    }

    fn panel(self, relative: bool) -> Panel {
        let middle = median(&self.work.concat()).filter(|middle| *middle > 0.0).unwrap_or(1.0);
        let (name, unit) = if relative { ("own work (× median)", middle) } else { ("own work (ms/step)", 1.0) };
        let rows = self.work.iter().enumerate().flat_map(|(rank, row)| {
            row.iter().zip(&self.bins).map(move |(work, [from, to])| {
                let (x, y) = ([*from as f64, *to as f64], [rank as f64 - 0.5, rank as f64 + 0.5]);
                ShadedCell { x, y, value: work / unit }
            })
        });
        let cells = rows.collect();
        let y = Axis::new("rank");
        Panel {
            title: self.label,
            x: Axis::new("measured step").between(0.0, self.steps as f64),
            y: if self.ranks <= MAX_NAMED_RANKS { y.named((0..self.ranks).map(|rank| rank.to_string())) } else { y },
            layers: vec![Layer::Cells { name: name.into(), cells }],
        }
    }
}
