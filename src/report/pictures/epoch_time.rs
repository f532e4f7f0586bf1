use super::words::{cut_intervals, far_apart};
use crate::plot::{Axis, Bar, Chart, Layer, Panel, Point};
use crate::report::epoch_time::{EpochTime, whole_epochs};
use crate::report::figures::run_estimates;
use crate::stats::{Estimate, RateOverRuns, rate_over_runs};
use expctl_record::{MeasuredJob, Run};

/// What an epoch takes in one variant or method.
#[derive(Clone, Debug)]
pub struct EpochBar {
    /// Name below the bar.
    pub name: String,
    /// The bar and its interval.
    pub time: EpochTime,
    /// Seconds of the first epoch of each run that was timed whole.
    pub first: Vec<f64>,
    /// Seconds of the later ones.
    pub later: Vec<f64>,
}

/// Bars of the time per epoch with their intervals, and each whole epoch as a dot.
pub fn epoch_panel(bars: &[EpochBar]) -> (Panel, &'static str) {
    let dots = || bars.iter().flat_map(|bar| bar.first.iter().chain(&bar.later).copied());
    let log = far_apart(bars.iter().map(|bar| bar.time.time_s.value).chain(dots()));
    let drawn = |(i, bar): (usize, &EpochBar)| {
        let RateOverRuns { value, interval, .. } = bar.time.time_s;
        // On a logarithmic axis the length of a bar means nothing: there it is but its interval.
        let from = if log { value } else { 0.0 };
        Bar { x: i as f64, width: 0.7, from, to: value, interval: interval.map(|i| [i.low, i.high]) }
    };
    let all: Vec<Bar> = bars.iter().enumerate().map(drawn).collect();
    let highest = all.iter().map(|bar| bar.to).chain(dots()).fold(0.0, f64::max);
    let y = Axis::new("time per epoch (s)");
    let (y, cut) = if log { (y.log(), false) } else { cut_intervals(y, &all, highest) };
    let mut layers = Vec::new();
    for (name, colour, measured) in [("mean over epochs", 0, true), ("derived from the rate", 3, false)] {
        let of_kind = bars.iter().zip(&all).filter(|(bar, _)| bar.time.measured() == measured);
        let kind: Vec<Bar> = of_kind.map(|(_, bar)| *bar).collect();
        if kind.is_empty() {
            continue;
        }
        let middles: Vec<Point> = kind.iter().map(|bar| [bar.x, bar.to]).collect();
        layers.push(Layer::Bars { name: name.to_owned(), colour, bars: kind });
        if log {
            layers.push(Layer::Dots { name: name.to_owned(), colour, points: middles });
        }
    }
    // The first epochs left of the whiskers, the later ones right of them.
    let first: Vec<Point> = bars.iter().enumerate().flat_map(|(i, bar)| beside(i, &bar.first, -1.0)).collect();
    let later: Vec<Point> = bars.iter().enumerate().flat_map(|(i, bar)| beside(i, &bar.later, 1.0)).collect();
    for (name, colour, points) in [("first epoch", 1, first), ("later epochs", 2, later)] {
        if !points.is_empty() {
            layers.push(Layer::Dots { name: name.to_owned(), colour, points });
        }
    }
    let names = bars.iter().map(|bar| bar.name.clone());
    let panel = Panel { title: String::new(), x: Axis::new("").named(names), y, layers };
    (panel, if cut { " Whiskers without a bar across go on beyond the picture." } else { "" })
}

/// Dots of one bar beside each other, on one side of its whisker: -1 is left, 1 right.
fn beside(bar: usize, times: &[f64], side: f64) -> Vec<Point> {
    let step = if times.len() > 1 { 0.2 / (times.len() - 1) as f64 } else { 0.0 };
    times.iter().enumerate().map(|(j, time)| [bar as f64 + side * (0.09 + step * j as f64), *time]).collect()
}

/// What an epoch takes each variant; none where no whole epoch was timed.
pub(super) fn epoch_time(job: &MeasuredJob) -> Option<Chart> {
    let groups = job.by_label();
    let all: Vec<(Vec<f64>, Vec<f64>)> = groups.iter().map(|(_, runs)| first_and_later(runs)).collect();
    if all.iter().all(|(first, later)| first.is_empty() && later.is_empty()) {
        return None;
    }
    let mut bars = Vec::new();
    for ((name, runs), (first, later)) in groups.into_iter().zip(all) {
        let time = EpochTime::of(&runs, || it_per_s(&runs));
        bars.extend(time.map(|time| EpochBar { name, time, first, later }));
    }
    let counts: Vec<String> = bars.iter().filter(|bar| bar.time.measured()).map(|bar| bar.time.count()).collect();
    let basis = match &counts[..] {
        [first, rest @ ..] if rest.iter().all(|count| count == first) => format!("{first} each"),
        _ => format!("{} by variant", counts.join(", ")),
    };
    let derived = match bars.iter().all(|bar| bar.time.measured()) {
        true => "",
        false => " Derived from the rate: batches of an epoch over it/s, where no whole epoch was timed.",
    };
    let (panel, cut) = epoch_panel(&bars);
    Some(Chart {
        name: "epoch_time".into(),
        title: "Time per epoch".into(),
        alt: "Seconds of an epoch of each variant, with the interval, and each epoch as a dot.".into(),
        caption: format!(
            "Measured, {basis}: summed wall time of the steps of a whole epoch, of the rank that takes longest; mean over epochs and runs. \
             Whiskers (derived): its 95 % interval over runs, of a single run over its epochs.{derived}{cut}"
        ),
        panels: vec![panel],
        columns: 1,
    })
}

/// Seconds of the whole first epochs of the runs of a variant, and of all their later ones.
fn first_and_later(runs: &[&Run]) -> (Vec<f64>, Vec<f64>) {
    let (mut first, mut later) = (Vec::new(), Vec::new());
    for run in runs {
        let begun = run.ranks.first().and_then(|steps| steps.first()).map(|step| step.epoch);
        for (epoch, time) in whole_epochs(run) {
            if Some(epoch) == begun { &mut first } else { &mut later }.push(time);
        }
    }
    (first, later)
}

fn it_per_s(runs: &[&Run]) -> Option<RateOverRuns> {
    let rates: Vec<Estimate> = runs.iter().filter_map(|run| Some(run_estimates(run)?.0)).collect();
    rate_over_runs(&rates)
}
