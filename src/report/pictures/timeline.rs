use expctl_record::{HardwareSample, MeasuredJob, Run};

use crate::plot::{Axis, Chart, Layer, Panel, Point};

/// Most variants shown, the first ones: more lines over each other say nothing.
const MOST: usize = 6;
/// Samples below which a line is none.
const FEWEST: usize = 3;

/// A figure of a sample, what its axis is called, and how long the interval in front of it was, in seconds.
type Figure = (&'static str, fn(&HardwareSample, f64) -> Option<f64>);

const FIGURES: [Figure; 4] = [
    ("processors (%)", |sample, _| sample.cpu_percent),
    ("memory (GB)", |sample, _| Some(sample.rss_bytes? as f64 / 1e9)),
    ("from disks (MB/s)", |sample, seconds| Some(sample.disk_read_bytes? as f64 / 1e6 / seconds)),
    ("GPU busy (%)", |sample, _| sample.gpu_percent),
];

/// Rank 0 of a run, with the name of its variant.
struct One<'a> {
    label: String,
    run: &'a Run,
}

/// Step times as they went by, and below them what the processes took meanwhile, of rank 0 of the first completed run of each
/// variant; none where no run has samples.
pub(super) fn timeline(job: &MeasuredJob) -> Option<Chart> {
    let has = |run: &Run| run.completed() && samples(run).filter(|s| s.at_ns > Some(0)).count() >= FEWEST;
    let mut ones = Vec::new();
    for (label, runs) in job.by_label() {
        ones.extend(runs.into_iter().find(|run| has(run)).map(|run| One { label, run }));
    }
    let all = ones.len();
    ones.truncate(MOST);
    if ones.is_empty() {
        return None;
    }
    let end = ones.iter().filter_map(|one| steps(one).last().copied()).map(|[end, _]| end).fold(0.0, f64::max);
    let x = || Axis::new("time (s)").between(0.0, end.max(f64::MIN_POSITIVE));
    let mut panels =
        vec![Panel { title: String::new(), x: x(), y: Axis::new("step time (ms)"), layers: lines(&ones, steps) }];
    for (name, figure) in FIGURES {
        let layers = lines(&ones, |one| points(one, figure));
        if !layers.is_empty() {
            panels.push(Panel { title: String::new(), x: x(), y: Axis::new(name), layers });
        }
    }
    let resumed = match ones.iter().any(|one| one.run.resumed()) {
        true => " Of a run that went on from a checkpoint, its last attempt alone.",
        false => "",
    };
    let left_out = if all > MOST { format!(" The first {MOST} of {all} variants.") } else { String::new() };
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

/// End and duration of each step of the last attempt: the clock of an attempt begins anew.
fn steps(one: &One<'_>) -> Vec<Point> {
    let all = one.run.parts.last().map_or(&[][..], |part| one.run.steps_of(part, 0));
    all.iter().map(|step| [(step.start_ns + step.wall_ns) as f64 / 1e9, step.wall_ns as f64 / 1e6]).collect()
}

/// A figure of the samples from the first step on.
fn points(one: &One<'_>, figure: fn(&HardwareSample, f64) -> Option<f64>) -> Vec<Point> {
    let all: Vec<&HardwareSample> = samples(one.run).collect();
    let point = |two: &[&HardwareSample]| {
        let at = two[1].at_ns.filter(|at| *at >= 0)? as f64 / 1e9;
        let seconds = (two[1].clock_ns.saturating_sub(two[0].clock_ns)) as f64 / 1e9;
        Some([at, figure(two[1], seconds).filter(|value| value.is_finite())?])
    };
    all.windows(2).filter_map(point).collect()
}

fn lines(ones: &[One<'_>], of: impl Fn(&One<'_>) -> Vec<Point>) -> Vec<Layer> {
    let line = |(colour, one): (usize, &One<'_>)| {
        let points = of(one);
        (!points.is_empty()).then(|| Layer::Line { name: one.label.clone(), colour, points })
    };
    ones.iter().enumerate().filter_map(line).collect()
}
