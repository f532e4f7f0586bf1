//! Charts of rates: by variant, time per epoch, and against the number of ranks or another swept key.

use std::collections::{BTreeMap, BTreeSet};

use expctl_charts::{Axis, Bar, Chart, Layer, Panel, Point};
use expctl_ledger::{MeasuredJob, Run};
use expctl_stats::{Estimate, RateOverRuns, rate_over_runs};

use super::{MAX_BARS, MAX_LINES, basis, counted, cut_intervals, evenly, far_apart, min_max};
use crate::report::epoch_time::{EpochTime, whole_epochs};
use crate::report::rates::all_rates;
use crate::report::scaling::scaled_variants;
use crate::report::side_by_side::packs;

/// Samples/s of each variant: the mean over its runs with its interval, and each run as a dot. `None` without a completed run.
pub(super) fn rates_chart(job: &MeasuredJob) -> Option<Chart> {
    let (mut variants, mut bases) = (Vec::new(), Vec::new());
    for (label, runs) in job.by_label() {
        let rates: Vec<f64> = all_rates(&runs).iter().map(|rates| rates.samples_per_s).collect();
        let each = independent(&runs);
        bases.extend((!rates.is_empty()).then(|| counted(&runs)));
        variants.extend(rate_over_runs(&each).map(|mean| (runs[0].trial.variant.clone(), label, rates, mean)));
    }
    if variants.is_empty() {
        return None;
    }
    let of_baseline = variants.iter().filter(|(variant, ..)| Some(variant) == job.record.baseline.as_ref());
    let baseline = match &of_baseline.collect::<Vec<_>>()[..] {
        [(_, label, _, mean)] if variants.len() > 1 => Some((format!("baseline {label}"), mean.value)),
        _ => None,
    };
    let (variants, left_out) = evenly(variants, MAX_BARS, |(.., mean)| mean.value);
    let log = far_apart(variants.iter().flat_map(|(_, _, rates, _)| rates.iter().copied()));
    let (mut bars, mut dots, mut middles): (Vec<Bar>, Vec<Point>, Vec<Point>) = Default::default();
    for (i, (_, _, rates, mean)) in variants.iter().enumerate() {
        let x = i as f64;
        let interval = mean.interval.map(|interval| [interval.low, interval.high]);
        // On a logarithmic axis the length of a bar means nothing: then only its interval is drawn.
        let from = if log { mean.value } else { 0.0 };
        bars.push(Bar { x, width: 0.7, from, to: mean.value, interval });
        middles.push([x, mean.value]);
        // Beside the whisker and beside each other.
        let offset = |j: usize| 0.07 + if rates.len() > 1 { 0.26 * j as f64 / (rates.len() - 1) as f64 } else { 0.13 };
        dots.extend(rates.iter().enumerate().map(|(j, rate)| [x + offset(j), *rate]));
    }
    let y = Axis::new("rate (samples/s)");
    let max = variants.iter().flat_map(|(_, _, rates, _)| rates.iter().copied()).fold(0.0, f64::max);
    let (y, cut) = if log { (y, false) } else { cut_intervals(y, &bars, max) };
    let counts: Vec<usize> = variants.iter().map(|(_, _, rates, _)| rates.len()).collect();
    let mut layers = vec![Layer::Bars { name: "mean over runs".into(), colour: 0, bars }];
    if log {
        layers.push(Layer::Dots { name: "mean over runs".into(), colour: 0, points: middles });
    }
    if counts.iter().any(|n| *n > 1) {
        layers.push(Layer::Dots { name: "each run".into(), colour: 1, points: dots });
    }
    layers.extend(baseline.map(|(name, y)| Layer::Rule { name, y }));
    let names = variants.iter().map(|(_, label, ..)| label.clone());
    let panel = Panel { title: String::new(), x: Axis::new("").named(names), y: if log { y.log() } else { y }, layers };
    let whiskers = if counts.iter().any(|n| *n > 1) { "; whiskers: 95 % interval over runs (derived)" } else { "" };
    let cut = if cut { " Whiskers without a bar across go on beyond the picture." } else { "" };
    let alone = if counts.contains(&1) { " A single run has no interval." } else { "" };
    Some(Chart {
        name: "rates".into(),
        title: "How fast each variant is".into(),
        alt: "Samples per second of each variant, with the interval over its runs.".into(),
        caption: format!(
            "Measured, {}: geometric mean over the runs (tables: median){whiskers}.{alone}{cut}{left_out}",
            basis(&bases)
        ),
        panels: vec![panel],
        columns: 1,
    })
}

/// Time per epoch of one variant or method.
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
        // As in [`rates_chart`].
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
    let first: Vec<Point> = bars.iter().enumerate().flat_map(|(i, bar)| dots_beside(i, &bar.first, -1.0)).collect();
    let later: Vec<Point> = bars.iter().enumerate().flat_map(|(i, bar)| dots_beside(i, &bar.later, 1.0)).collect();
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
fn dots_beside(bar: usize, times: &[f64], side: f64) -> Vec<Point> {
    let step = if times.len() > 1 { 0.2 / (times.len() - 1) as f64 } else { 0.0 };
    times.iter().enumerate().map(|(j, time)| [bar as f64 + side * (0.09 + step * j as f64), *time]).collect()
}

/// Time per epoch of each variant. `None` if no whole epoch was timed.
pub(super) fn epoch_time_chart(job: &MeasuredJob) -> Option<Chart> {
    let groups = job.by_label();
    let all: Vec<(Vec<f64>, Vec<f64>)> = groups.iter().map(|(_, runs)| first_and_later_epochs(runs)).collect();
    if all.iter().all(|(first, later)| first.is_empty() && later.is_empty()) {
        return None;
    }
    let mut bars = Vec::new();
    for ((name, runs), (first, later)) in groups.into_iter().zip(all) {
        let time = EpochTime::from_runs(&runs, || it_per_s(&runs));
        bars.extend(time.map(|time| EpochBar { name, time, first, later }));
    }
    let (bars, left_out) = evenly(bars, MAX_BARS, |bar: &EpochBar| bar.time.time_s.value);
    let counts: Vec<String> = bars.iter().filter(|bar| bar.time.measured()).map(|bar| bar.time.count()).collect();
    let basis = match &counts[..] {
        [first, rest @ ..] if rest.iter().all(|count| count == first) => format!("{first} each"),
        _ => format!("{} by variant", counts.join(", ")),
    };
    let derived = match bars.iter().all(|bar| bar.time.measured()) {
        true => "",
        false => " In another colour: derived from the rate.",
    };
    let (panel, cut) = epoch_panel(&bars);
    Some(Chart {
        name: "epoch_time".into(),
        title: "Time per epoch".into(),
        alt: "Seconds of an epoch of each variant, with the interval, and each epoch as a dot.".into(),
        caption: format!(
            "Measured, {basis}: mean over whole epochs and runs; whiskers: 95 % interval over runs, of a single run over its epochs \
             (derived).{derived}{cut}{left_out}"
        ),
        panels: vec![panel],
        columns: 1,
    })
}

/// Seconds of the whole first epochs of the runs of a variant, and of all their later ones.
fn first_and_later_epochs(runs: &[&Run]) -> (Vec<f64>, Vec<f64>) {
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
    let rates: Vec<Estimate> = packs(runs).iter().filter_map(|pack| Some(pack.estimates()?.0)).collect();
    rate_over_runs(&rates)
}

/// Number of ranks up to which the axis has a name for each.
const MAX_NAMED_RANKS: u32 = 16;

/// Rates of a variant against a number, at one point of the other swept settings.
struct RateCurve {
    label: String,
    /// The number, the rate, numbers of runs and steps.
    points: Vec<(f64, RateOverRuns, (usize, usize))>,
}

/// Mean samples/s of some runs, with their number and that of their steps; `None` without a completed run.
fn samples_rate(runs: &[&Run]) -> Option<(RateOverRuns, (usize, usize))> {
    Some((rate_over_runs(&independent(runs))?, counted(runs)))
}

/// Samples/s of some runs, those of runs side by side as one value per pack.
fn independent(runs: &[&Run]) -> Vec<Estimate> {
    packs(runs).iter().filter_map(|pack| Some(Estimate::plain(pack.rates()?.samples_per_s))).collect()
}

/// Samples per second against ranks, with the line of perfect scaling; `None` if no variant ran on several.
pub(super) fn scaling_chart(job: &MeasuredJob) -> Option<Chart> {
    let curves = scaled_variants(job).into_iter().map(|scaled| {
        let points = scaled.sizes.iter().filter_map(|size| {
            let (rate, counts) = samples_rate(&size.runs)?;
            Some((f64::from(size.ranks), rate, counts))
        });
        RateCurve { points: points.collect(), label: scaled.label }
    });
    let (all, left_out) = evenly(curves.collect(), MAX_LINES, RateCurve::first_rate);
    let max_ranks = all.iter().flat_map(|curve| &curve.points).map(|(ranks, ..)| *ranks).reduce(f64::max)?;
    let mut layers: Vec<Layer> =
        all.iter().enumerate().filter_map(|(i, curve)| curve.ideal(i + 10, max_ranks)).collect();
    layers.extend(all.iter().enumerate().flat_map(|(i, curve)| curve.layers(i)));
    let x = Axis::new("ranks");
    let x = if max_ranks <= f64::from(MAX_NAMED_RANKS) {
        x.named((0..=max_ranks as u32).map(|n| n.to_string()))
    } else {
        x.between(0.0, max_ranks * 1.03)
    };
    Some(Chart {
        name: "scaling".into(),
        title: "What more ranks bring".into(),
        alt: "Samples per second against the number of ranks, with the line of perfect scaling.".into(),
        caption: format!(
            "{} Dotted (derived): as many times the rate of the fewest ranks as there are more ranks.{left_out}",
            curves_caption(&all)
        ),
        panels: vec![Panel { title: String::new(), x, y: Axis::new("rate (samples/s)"), layers }],
        columns: 1,
    })
}

/// Samples per second against the values of the one key that was swept; `None` if several were, if it is no number, and for ranks, which have
/// a chart of their own.
pub(super) fn sweep_chart(job: &MeasuredJob) -> Option<Chart> {
    let key = swept_key(job).filter(|key| key != "launch.ranks")?;
    let mut curves: Vec<RateCurve> = Vec::new();
    for (_, runs) in job.by_label() {
        let mut trial = runs[0].trial.clone();
        let value = trial.point.remove(&key)?.as_f64()?;
        let Some((rate, counts)) = samples_rate(&runs) else { continue };
        let (label, point) = (trial.label(), (value, rate, counts));
        match curves.iter_mut().find(|curve| curve.label == label) {
            Some(curve) => curve.points.push(point),
            None => curves.push(RateCurve { label, points: vec![point] }),
        }
    }
    curves.retain(|curve| curve.points.len() > 1);
    curves.iter_mut().for_each(|curve| curve.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    let (curves, left_out) = evenly(curves, MAX_LINES, RateCurve::first_rate);
    let values = || curves.iter().flat_map(|curve| &curve.points).map(|(value, ..)| *value);
    let [lowest, _] = min_max(values())?;
    // 0 has no place on a logarithmic axis.
    let log = lowest > 0.0 && far_apart(values());
    let x = Axis::new(key.as_str());
    let panel = Panel {
        title: String::new(),
        x: if log { x.log() } else { x },
        y: Axis::new("rate (samples/s)"),
        layers: curves.iter().enumerate().flat_map(|(i, curve)| curve.layers(i)).collect(),
    };
    Some(Chart {
        name: "sweep".into(),
        title: format!("What {key} brings"),
        alt: format!("Samples per second of each variant against {key}."),
        caption: format!("{}{left_out}", curves_caption(&curves)),
        panels: vec![panel],
        columns: 1,
    })
}

/// The key that has several values among the points of a job; `None` if none has, or several have.
fn swept_key(job: &MeasuredJob) -> Option<String> {
    let mut values: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (key, value) in job.runs.iter().flat_map(|run| &run.trial.point) {
        values.entry(key).or_default().insert(value.to_string());
    }
    values.retain(|_, values| values.len() > 1);
    match values.into_keys().collect::<Vec<_>>()[..] {
        [key] => Some(key.to_owned()),
        _ => None,
    }
}

/// What the points of some curves are.
fn curves_caption(curves: &[RateCurve]) -> String {
    let counts: Vec<_> = curves.iter().flat_map(|curve| &curve.points).map(|(_, _, n)| *n).collect();
    format!(
        "Measured, {}: samples/s over all ranks, geometric mean over the runs (tables have the median), with the 95 % interval over runs where \
         there are several (derived).",
        basis(&counts)
    )
}

impl RateCurve {
    /// The rate at the lowest number; 0 without a point.
    fn first_rate(&self) -> f64 {
        self.points.first().map_or(0.0, |(_, rate, _)| rate.value)
    }

    /// As many times the rate at the lowest number as the number is higher.
    fn ideal(&self, colour: usize, highest: f64) -> Option<Layer> {
        let (lowest, rate, _) = self.points.first()?;
        let one = rate.value / lowest;
        let points = vec![[*lowest, rate.value], [highest, one * highest]];
        Some(Layer::Line { name: "perfect scaling".into(), colour, points })
    }

    fn layers(&self, colour: usize) -> Vec<Layer> {
        let points: Vec<_> = self.points.iter().map(|(number, rate, _)| [*number, rate.value]).collect();
        let whisker = |(number, rate, _): &(f64, RateOverRuns, (usize, usize))| {
            let interval = rate.interval.map(|interval| [interval.low, interval.high]);
            Bar { x: *number, width: 0.0, from: rate.value, to: rate.value, interval }
        };
        let name = || self.label.clone();
        vec![
            Layer::Line { name: name(), colour, points: points.clone() },
            Layer::Bars { name: name(), colour, bars: self.points.iter().map(whisker).collect() },
            Layer::Dots { name: name(), colour, points },
        ]
    }
}
