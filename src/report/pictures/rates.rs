use super::words::{basis, counted, cut_intervals, far_apart};
use crate::plot::{Axis, Bar, Chart, Layer, Panel, Point};
use crate::report::figures::all_rates;
use crate::stats::{Estimate, rate_over_runs};
use expctl_record::MeasuredJob;

/// Samples per second of each variant: the mean over its runs with its interval, and each run as a dot; none where no variant
/// has a completed run.
pub(super) fn rates(job: &MeasuredJob) -> Option<Chart> {
    let (mut variants, mut bases) = (Vec::new(), Vec::new());
    for (label, runs) in job.by_label() {
        let rates: Vec<f64> = all_rates(&runs).iter().map(|rates| rates.samples_per_s).collect();
        let each: Vec<Estimate> = rates.iter().map(|value| Estimate::plain(*value)).collect();
        bases.extend((!rates.is_empty()).then(|| counted(&runs)));
        variants.extend(rate_over_runs(&each).map(|mean| (runs[0].trial.variant.clone(), label, rates, mean)));
    }
    if variants.is_empty() {
        return None;
    }
    let log = far_apart(variants.iter().flat_map(|(_, _, rates, _)| rates.iter().copied()));
    let (mut bars, mut dots, mut middles): (Vec<Bar>, Vec<Point>, Vec<Point>) = Default::default();
    for (i, (_, _, rates, mean)) in variants.iter().enumerate() {
        let x = i as f64;
        let interval = mean.interval.map(|interval| [interval.low, interval.high]);
        // On a logarithmic axis the length of a bar means nothing: there it is but its interval.
        let from = if log { mean.value } else { 0.0 };
        bars.push(Bar { x, width: 0.7, from, to: mean.value, interval });
        middles.push([x, mean.value]);
        // Beside the whisker and beside each other.
        let place = |j: usize| 0.07 + if rates.len() > 1 { 0.26 * j as f64 / (rates.len() - 1) as f64 } else { 0.13 };
        dots.extend(rates.iter().enumerate().map(|(j, rate)| [x + place(j), *rate]));
    }
    let y = Axis::new("rate (samples/s)");
    let most = variants.iter().flat_map(|(_, _, rates, _)| rates.iter().copied()).fold(0.0, f64::max);
    let (y, cut) = if log { (y, false) } else { cut_intervals(y, &bars, most) };
    let counts: Vec<usize> = variants.iter().map(|(_, _, rates, _)| rates.len()).collect();
    let mut layers = vec![Layer::Bars { name: "mean over runs".into(), colour: 0, bars }];
    if log {
        layers.push(Layer::Dots { name: "mean over runs".into(), colour: 0, points: middles });
    }
    if counts.iter().any(|n| *n > 1) {
        layers.push(Layer::Dots { name: "each run".into(), colour: 1, points: dots });
    }
    let baseline = variants.iter().filter(|(variant, ..)| Some(variant) == job.record.baseline.as_ref());
    if let [(_, label, _, mean)] = &baseline.collect::<Vec<_>>()[..]
        && variants.len() > 1
    {
        layers.push(Layer::Rule { name: format!("baseline {label}"), y: mean.value });
    }
    let names = variants.iter().map(|(_, label, ..)| label.clone());
    let panel = Panel { title: String::new(), x: Axis::new("").named(names), y: if log { y.log() } else { y }, layers };
    let whiskers =
        if counts.iter().any(|n| *n > 1) { ", whiskers their 95 % interval over runs (derived)" } else { "" };
    let cut = if cut { " Whiskers without a bar across go on beyond the picture." } else { "" };
    let alone = if counts.contains(&1) { " A single run has no interval." } else { "" };
    Some(Chart {
        name: "rates".into(),
        title: "How fast each variant is".into(),
        alt: "Samples per second of each variant, with the interval over its runs.".into(),
        caption: format!(
            "Measured, {}: samples/s over all ranks; the geometric mean over the runs (tables have the median){whiskers}.{alone}{cut}",
            basis(&bases)
        ),
        panels: vec![panel],
        columns: 1,
    })
}
