//! A chart of a history: the rate of each job with its interval, and the levels between changes.

use expctl_charts::{Axis, Bar, Chart, Layer, Panel, Point};
use expctl_text::format;

use super::rate_history::RateHistory;
use super::series::RateSeries;

/// Names below an axis at most: with more jobs only some are named.
const MAX_NAMES: usize = 24;

/// The rates of all series of several jobs, a panel each; `None` if there is no such series.
pub fn rates_chart(history: &RateHistory) -> Option<Chart> {
    let several: Vec<&RateSeries> = history.series.iter().filter(|series| series.jobs.len() > 1).collect();
    let titled = several.len() > 1;
    let panels: Vec<Panel> = several.iter().filter_map(|series| panel(series, titled)).collect();
    if panels.is_empty() {
        return None;
    }
    let jobs = several.iter().map(|series| series.jobs.len()).sum();
    Some(chart(format!("{} over the jobs of the ledger", history.name), panels, jobs))
}

fn chart(title: String, panels: Vec<Panel>, jobs: usize) -> Chart {
    Chart {
        name: "history".into(),
        title,
        alt: "Samples per second of each job with the interval over its runs, and the levels between changes.".into(),
        caption: format!(
            "Measured, {}: samples/s over all ranks, a dot for each run and the geometric mean of a job, whiskers its 95 % interval \
             (derived); lines are levels between changes (derived).",
            format::count(jobs as u64, "job")
        ),
        panels,
        columns: 1,
    }
}

/// The rates of one series; `None` without a rate.
pub fn series_chart(series: &RateSeries) -> Option<Chart> {
    Some(chart(series.name.clone(), vec![panel(series, false)?], series.jobs.len()))
}

/// One series, its jobs from left to right; `None` without a rate.
fn panel(series: &RateSeries, titled: bool) -> Option<Panel> {
    let (mut bars, mut means, mut runs) = (Vec::new(), Vec::<Point>::new(), Vec::<Point>::new());
    for (place, job) in series.jobs.iter().enumerate() {
        let Some(rate) = job.samples_per_s_rate else { continue };
        let x = place as f64;
        let interval = rate.interval.map(|ends| [ends.low, ends.high]);
        bars.push(Bar { x, width: 0.5, from: rate.value, to: rate.value, interval });
        means.push([x, rate.value]);
        if job.samples_per_s.len() > 1 {
            runs.extend(job.samples_per_s.iter().map(|rate| [x + 0.25, *rate]));
        }
    }
    if means.is_empty() {
        return None;
    }
    let name = || "mean of a job".to_owned();
    let mut layers =
        vec![Layer::Bars { name: name(), colour: 0, bars }, Layer::Dots { name: name(), colour: 0, points: means }];
    if !runs.is_empty() {
        layers.push(Layer::Dots { name: "each run".into(), colour: 1, points: runs });
    }
    let place = |job: u64| series.jobs.iter().position(|other| other.job == job).map(|place| place as f64);
    for level in &series.levels {
        if let (Some(first), Some(last)) = (place(level.first), place(level.last)) {
            let points = vec![[first - 0.4, level.samples_per_s], [last + 0.4, level.samples_per_s]];
            layers.push(Layer::Line { name: "level".into(), colour: 2, points });
        }
    }
    let every = series.jobs.len().div_ceil(MAX_NAMES);
    let named = |(place, job): (usize, &super::job_rates::JobRates)| match place % every {
        0 => job.job.to_string(),
        _ => String::new(),
    };
    let names = series.jobs.iter().enumerate().map(named);
    let title = if titled { series.name.clone() } else { String::new() };
    Some(Panel { title, x: Axis::new("job, oldest first").named(names), y: Axis::new("rate (samples/s)"), layers })
}
