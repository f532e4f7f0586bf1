use super::words::{basis, counted, far_apart};
use crate::plot::{Axis, Chart, Layer, Panel, Point};
use crate::report::figures::completed_steps;
use expctl_record::MeasuredJob;

/// Points that a line is made of: more than a picture can show.
const POINTS: usize = 200;

/// Step times of a variant, in seconds, sorted.
struct Times {
    label: String,
    sorted: Vec<f64>,
    /// Runs times ranks: so many stretches of steps lie in `sorted`.
    stretches: f64,
}

/// How step times are spread, and what the sorted steps add up to; none where no variant has two steps.
pub(super) fn times(job: &MeasuredJob) -> Option<Chart> {
    let mut variants = Vec::new();
    let mut counts = Vec::new();
    for (label, runs) in job.by_label() {
        let mut sorted: Vec<f64> = completed_steps(&runs).map(|step| step.wall_ns as f64 / 1e9).collect();
        sorted.sort_by(f64::total_cmp);
        if sorted.len() > 1 {
            let stretches = runs.iter().filter(|run| run.completed()).map(|run| run.ranks.len()).sum::<usize>() as f64;
            counts.push(counted(&runs));
            variants.push(Times { label, sorted, stretches });
        }
    }
    if variants.is_empty() {
        return None;
    }
    let all = || variants.iter().flat_map(|times| [times.sorted[0], times.sorted[times.sorted.len() - 1]]);
    let by_log = |axis: Axis, log: bool| if log { axis.log() } else { axis };
    let spread = Panel {
        title: "how step times are spread".into(),
        x: by_log(Axis::new("step time (s)"), far_apart(all())),
        y: Axis::new("share of steps").between(0.0, 1.0),
        layers: layers(&variants, shares),
    };
    let totals = variants.iter().map(|times| times.sorted.iter().sum::<f64>() / times.stretches);
    let together = Panel {
        title: "what they add up to, fastest first".into(),
        x: Axis::new("share of steps").between(0.0, 1.0),
        y: by_log(Axis::new("time of these steps (s)"), far_apart(totals)),
        layers: layers(&variants, sums),
    };
    Some(Chart {
        name: "times".into(),
        title: "Step times".into(),
        alt: "Left, the distribution of step times of each variant; right, their sum from the fastest step on.".into(),
        caption: format!(
            "Measured, {}. Left: share of steps that took no longer. Right (derived): time of the \
             fastest steps up to that share, of a mean run and rank; a late bend is a few slow steps.",
            basis(&counts)
        ),
        panels: vec![spread, together],
        columns: 2,
    })
}

fn layers(variants: &[Times], of: fn(&Times) -> Vec<Point>) -> Vec<Layer> {
    let line = |(colour, times): (usize, &Times)| Layer::Line { name: times.label.clone(), colour, points: of(times) };
    variants.iter().enumerate().map(line).collect()
}

/// Places in a sorted list, evenly, the first and the last among them.
fn places(n: usize) -> impl Iterator<Item = usize> {
    let points = n.min(POINTS);
    (0..points).map(move |i| i * (n - 1) / (points - 1).max(1))
}

fn shares(times: &Times) -> Vec<Point> {
    let n = times.sorted.len();
    let mut points = vec![[times.sorted[0], 0.0]];
    points.extend(places(n).map(|i| [times.sorted[i], (i + 1) as f64 / n as f64]));
    points
}

fn sums(times: &Times) -> Vec<Point> {
    let n = times.sorted.len();
    let mut sum = 0.0;
    let sums: Vec<f64> = times
        .sorted
        .iter()
        .map(|time| {
            sum += time;
            sum / times.stretches
        })
        .collect();
    std::iter::once([0.0, 0.0]).chain(places(n).map(|i| [(i + 1) as f64 / n as f64, sums[i]])).collect()
}
