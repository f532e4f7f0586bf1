use super::words::{basis, counted};
use crate::plot::{Axis, Bar, Chart, Layer, Panel};
use crate::report::figures::all_rates;
use crate::report::worlds::scaled;
use crate::stats::{Estimate, RateOverRuns, rate_over_runs};
use expctl_record::MeasuredJob;

/// Ranks up to which each number has its place named.
const NAMED: u32 = 16;

/// One variant, at one point of everything else that is swept, over the ranks.
struct Series {
    label: String,
    /// Ranks, rate and number of runs and steps.
    points: Vec<(u32, RateOverRuns, (usize, usize))>,
}

/// Samples per second against ranks, with the line of perfect scaling; none where no variant ran on several numbers of ranks.
pub(super) fn scaling(job: &MeasuredJob) -> Option<Chart> {
    let series = scaled(job).into_iter().map(|scaled| {
        let points = scaled.worlds.iter().filter_map(|world| {
            let rates = all_rates(&world.runs);
            let each: Vec<Estimate> = rates.iter().map(|rates| Estimate::plain(rates.samples_per_s)).collect();
            Some((world.ranks, rate_over_runs(&each)?, counted(&world.runs)))
        });
        Series { points: points.collect(), label: scaled.label }
    });
    let all: Vec<Series> = series.collect();
    let most = all.iter().flat_map(|series| &series.points).map(|(ranks, ..)| *ranks).max()?;
    let counts: Vec<_> = all.iter().flat_map(|series| &series.points).map(|(_, _, n)| *n).collect();
    let mut layers: Vec<Layer> = all.iter().enumerate().filter_map(|(i, series)| series.ideal(i + 10, most)).collect();
    layers.extend(all.iter().enumerate().flat_map(|(i, series)| series.layers(i)));
    let x = Axis::new("ranks");
    let x =
        if most <= NAMED { x.named((0..=most).map(|n| n.to_string())) } else { x.between(0.0, f64::from(most) * 1.03) };
    Some(Chart {
        name: "scaling".into(),
        title: "What more ranks bring".into(),
        alt: "Samples per second against the number of ranks, with the line of perfect scaling.".into(),
        caption: format!(
            "Measured, {}: samples/s over all ranks, geometric mean over the runs (tables have the median), with the 95 % interval over runs where there are \
             several (derived). Dotted (derived): as many times the rate of the fewest ranks as there are more ranks.",
            basis(&counts)
        ),
        panels: vec![Panel { title: String::new(), x, y: Axis::new("rate (samples/s)"), layers }],
        columns: 1,
    })
}

impl Series {
    fn ideal(&self, colour: usize, most: u32) -> Option<Layer> {
        let (ranks, rate, _) = self.points.first()?;
        let one = rate.value / f64::from(*ranks);
        let end = |ranks: u32| [f64::from(ranks), one * f64::from(ranks)];
        Some(Layer::Line { name: "perfect scaling".into(), colour, points: vec![end(*ranks), end(most)] })
    }

    fn layers(&self, colour: usize) -> Vec<Layer> {
        let points: Vec<_> = self.points.iter().map(|(ranks, rate, _)| [f64::from(*ranks), rate.value]).collect();
        let whisker = |(ranks, rate, _): &(u32, RateOverRuns, (usize, usize))| {
            let interval = rate.interval.map(|interval| [interval.low, interval.high]);
            Bar { x: f64::from(*ranks), width: 0.0, from: rate.value, to: rate.value, interval }
        };
        let name = || self.label.clone();
        vec![
            Layer::Line { name: name(), colour, points: points.clone() },
            Layer::Bars { name: name(), colour, bars: self.points.iter().map(whisker).collect() },
            Layer::Dots { name: name(), colour, points },
        ]
    }
}
