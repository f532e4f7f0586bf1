//! Pictures of batch times.

use expctl_charts::{Axis, Chart, Layer, Panel, Point};
use expctl_text::format::thousands;

use super::analysis::{Analysis, MethodTimings, SeriesTimings};
use super::distribution::{CurvePoint, Distribution, MAX_EPOCHS};
use super::markdown::ordinal;
use super::source::{ALL_ROWS, TimingsClass};
use crate::report::html::PageChart;
use crate::report::pictures::{EpochBar, TimeBox, WHISKERS, box_panel, epoch_panel};

/// Points of a drawn curve.
const CURVE_POINTS: usize = 120;

/// All pictures, for files.
pub fn charts(analysis: &Analysis) -> Vec<Chart> {
    page_charts(analysis).into_iter().map(|of_page| of_page.chart).collect()
}

/// All pictures, with the epoch of each line and dot for pages: times as boxes and per epoch; sums, shares and ratios of the sorted
/// times; then the batches of each method.
pub fn page_charts(analysis: &Analysis) -> Vec<PageChart> {
    let mut charts: Vec<PageChart> = vec![boxplot(analysis).into()];
    charts.extend(epoch_times(analysis).map(PageChart::from));
    charts.extend([sums(analysis), shares(analysis), ratios(analysis)]);
    let stems = stems(analysis.methods.iter().map(|method| method.method.as_str()));
    for (method, stem) in analysis.methods.iter().zip(&stems) {
        charts.push(batches(analysis, method, stem, false));
        if method.epochs.iter().any(|epoch| !epoch.scatter.detail.is_empty()) {
            charts.push(batches(analysis, method, stem, true));
        }
    }
    charts
}

/// Times of the batches of each method as boxes, those of the first epoch beside those of all later ones.
fn boxplot(analysis: &Analysis) -> Chart {
    let several = analysis.methods.iter().any(|method| method.first_epoch.is_some());
    let series: &[&str] = if several { &["first epoch", "later epochs"] } else { &["batches"] };
    let groups: Vec<(String, Vec<Option<TimeBox>>)> = analysis
        .methods
        .iter()
        .map(|method| {
            let boxes = match method.first_and_later() {
                Some((first, later)) => vec![Some(time_box(first)), Some(time_box(later))],
                None => vec![Some(time_box(&method.all))],
            };
            (method.method.clone(), boxes)
        })
        .collect();
    let title = "How long a batch takes";
    Chart {
        name: "boxplot".to_owned(),
        title: title.to_owned(),
        alt: "A boxplot of the batch times of each method.".to_owned(),
        caption: format!(
            "{title} ({}). Box: quartiles and median; whiskers: {WHISKERS} of the batches; dot: mean. Derived from {} batch times.",
            analysis.source.name,
            class(analysis)
        ),
        panels: vec![box_panel(&groups, series, "batch time (s)")],
        columns: 1,
    }
}

fn time_box(times: &Distribution) -> TimeBox {
    let [p1, _, p25, p50, p75, _, p99] = times.quantiles_s;
    TimeBox { whiskers: [p1, p99], quartiles: [p25, p75], median: p50, mean: times.mean_s }
}

/// Time per epoch of each method; `None` where no whole epoch was timed.
fn epoch_times(analysis: &Analysis) -> Option<Chart> {
    let bar = |method: &MethodTimings| {
        let first = method.first_epoch.as_ref().map(|first| first.epoch.as_str());
        let whole = || method.epochs.iter().filter(|epoch| epoch.whole);
        // A single epoch is the first.
        let is_first = |epoch: &&SeriesTimings| first.is_none_or(|first| epoch.epoch == first);
        Some(EpochBar {
            name: method.method.clone(),
            time: method.epoch_time?,
            first: whole().filter(is_first).map(|epoch| epoch.times.total_s).collect(),
            later: whole().filter(|epoch| !is_first(epoch)).map(|epoch| epoch.times.total_s).collect(),
        })
    };
    let bars: Vec<EpochBar> = analysis.methods.iter().filter_map(bar).collect();
    if !bars.iter().any(|bar| bar.time.measured()) {
        return None;
    }
    let (panel, cut) = epoch_panel(&bars);
    let title = "Time per epoch";
    Some(Chart {
        name: "epoch_time".to_owned(),
        title: title.to_owned(),
        alt: "Seconds of an epoch of each method, with the interval over its epochs, and each epoch as a dot."
            .to_owned(),
        caption: format!(
            "{title} ({}): the times of all its batches together, mean over the whole epochs; whiskers: its 95 % interval over these. Derived \
             from {} batch times.{cut}",
            analysis.source.name,
            class(analysis)
        ),
        panels: vec![panel],
        columns: 1,
    })
}

fn sums(analysis: &Analysis) -> PageChart {
    let points = |p: &CurvePoint| Some([p.batches as f64, p.time_s / 60.0]);
    curves(
        analysis,
        "time_sums",
        "Cumulative batch times, sorted",
        "Batches sorted by time, their times added up: a bend upwards at the end is the time of the slow ones.",
        (Axis::new("batches, fastest first"), Axis::new("total time (minutes)")),
        points,
    )
}

fn shares(analysis: &Analysis) -> PageChart {
    let axis = |label| Axis::new(label).between(0.0, 100.0);
    curves(
        analysis,
        "cdfs",
        "Share of time by share of batches",
        "Share of the total time that the fastest batches take, by their share of all batches.",
        (axis("batches, fastest first (%)"), axis("total time (%)")),
        |p| Some([p.batch_share * 100.0, p.time_share * 100.0]),
    )
}

fn ratios(analysis: &Analysis) -> PageChart {
    curves(
        analysis,
        "ratios",
        "Mean of the slower over mean of the faster batches",
        "How many times as long the slower batches take as the faster ones, by where the sorted batches are cut.",
        (Axis::new("cut: batches below it (%)").between(0.0, 100.0), Axis::new("slower / faster").log()),
        |p| Some([p.batch_share * 100.0, p.ratio?]),
    )
}

fn curves(
    analysis: &Analysis,
    name: &str,
    title: &str,
    alt: &str,
    (x, y): (Axis, Axis),
    point: impl Fn(&CurvePoint) -> Option<Point>,
) -> PageChart {
    let (mut layers, mut of) = (Vec::new(), Vec::new());
    for (colour, method) in analysis.methods.iter().enumerate() {
        for epoch in method.epochs.iter().take(MAX_EPOCHS) {
            let all = &epoch.times.curve;
            // At both ends, where points are closer, all are drawn.
            let step = all.len().div_ceil(CURVE_POINTS).max(1);
            let ends = 12;
            let kept = all.iter().enumerate().filter(|(i, _)| i % step == 0 || *i < ends || i + ends >= all.len());
            of.push(epoch_words(&epoch.epoch));
            layers.push(Layer::Line {
                name: method.method.clone(),
                colour,
                points: kept.filter_map(|(_, p)| point(p)).collect(),
            });
        }
    }
    let epochs = analysis.methods.iter().map(|m| m.epochs.len()).max().unwrap_or_default();
    let lines = if epochs > MAX_EPOCHS {
        format!("one line per epoch, the first {MAX_EPOCHS}")
    } else {
        "one line per epoch".into()
    };
    let chart = Chart {
        name: name.to_owned(),
        title: title.to_owned(),
        alt: alt.to_owned(),
        caption: format!(
            "{} ({}); {lines}. Derived from {} batch times.",
            title,
            analysis.source.name,
            class(analysis)
        ),
        panels: vec![Panel { title: String::new(), x, y, layers }],
        columns: 1,
    };
    PageChart { chart, of: vec![of] }
}

/// `epoch 3`; empty where there are no epochs.
fn epoch_words(epoch: &str) -> String {
    if epoch == ALL_ROWS { String::new() } else { format!("epoch {epoch}") }
}

/// Single batches of a method, a panel per epoch, coloured by batch number modulo the period.
fn batches(analysis: &Analysis, timings: &MethodTimings, stem: &str, detail: bool) -> PageChart {
    let period = timings.period;
    // The range that was asked for, up to the last batch that is drawn.
    let last = timings.epochs.iter().filter_map(|epoch| epoch.scatter.detail.last()).map(|(batch, _)| batch + 1).max();
    let drawn = analysis.range.start..last.unwrap_or(analysis.range.end);
    let dots = |epoch: &SeriesTimings| if detail { epoch.scatter.detail.clone() } else { epoch.scatter.whole.clone() };
    let drawn_epochs = || timings.epochs.iter().take(MAX_EPOCHS);
    let panels = drawn_epochs().map(|epoch| {
        let all = dots(epoch);
        let layers = match period {
            Some(period) => (0..period.min(MAX_COLOURS))
                .map(|residue| Layer::Dots {
                    name: if period > MAX_COLOURS {
                        format!("{residue}, {}… mod {period}", residue + MAX_COLOURS)
                    } else {
                        format!("{residue} mod {period}")
                    },
                    colour: residue,
                    points: all
                        .iter()
                        .filter(|(batch, _)| (*batch % period as u64) as usize % MAX_COLOURS == residue)
                        .map(|(batch, time)| [*batch as f64, *time])
                        .collect(),
                })
                .collect(),
            None => vec![Layer::Dots {
                name: "batch".to_owned(),
                colour: 0,
                points: all.iter().map(|(batch, time)| [*batch as f64, *time]).collect(),
            }],
        };
        let x = Axis::new("batch");
        let x = if detail { x.between(drawn.start as f64, drawn.end as f64) } else { x };
        let title = if epoch.epoch == ALL_ROWS { String::new() } else { format!("Epoch {}", epoch.epoch) };
        Panel { title, x, y: Axis::new("time (s)").log(), layers }
    });
    let range = format!("[{}, {})", drawn.start, drawn.end);
    let folded = period.map_or("no period".to_owned(), |p| format!("coloured by batch number mod {p}"));
    let epochs = match timings.epochs.len() {
        n if n > MAX_EPOCHS => format!("the first {MAX_EPOCHS} of {n} epochs"),
        _ => "all epochs".to_owned(),
    };
    let what = match detail {
        true if timings.epochs.len() > MAX_EPOCHS => format!("batches {range}, {epochs}"),
        true => format!("batches {range}"),
        false => epochs,
    };
    let shown = if detail {
        format!("Every batch of {range}.")
    } else {
        let slowest = timings.epochs.iter().map(|e| e.scatter.slowest).max().unwrap_or_default();
        let batches = timings.epochs.iter().take(MAX_EPOCHS).map(|e| e.times.batches).max().unwrap_or_default();
        let others = timings.epochs.iter().map(|e| e.scatter.whole.len()).max().unwrap_or_default();
        format!(
            "Of up to {} batches an epoch, {} are drawn: the {} slowest and, of the others, one from each stretch of equal length.",
            thousands(batches),
            thousands(others as u64),
            thousands(slowest as u64)
        )
    };
    let period_name = period.map_or(String::new(), |p| format!("_mod{p}"));
    // All layers of a panel are of its epoch.
    let layers = period.map_or(1, |period| period.min(MAX_COLOURS));
    let of = drawn_epochs().map(|epoch| vec![epoch_words(&epoch.epoch); layers]).collect();
    let place = if detail { format!("_{}_{}", analysis.range.start, analysis.range.end) } else { String::new() };
    let chart = Chart {
        name: format!("{}_batches{period_name}{place}", stem),
        title: format!("{}: {what}, {folded}", timings.method),
        alt: match period {
            Some(p) => {
                format!("Time of single batches by their number; the slow ones come about every {} batch.", ordinal(p))
            }
            None => "Time of single batches by their number.".to_owned(),
        },
        caption: format!(
            "{} ({}), {what}, {folded}. {shown} Times: {}.",
            timings.method,
            analysis.source.name,
            class(analysis)
        ),
        panels: panels.collect(),
        columns: 1,
    };
    PageChart { chart, of }
}

/// Colours that can be told apart.
const MAX_COLOURS: usize = 10;

fn class(analysis: &Analysis) -> &'static str {
    match analysis.source.class {
        TimingsClass::Generated => "generated (nobody measured them)",
        other => other.name(),
    }
}

/// A name as part of a file name: lowercase letters, digits and `_`.
fn stem(name: &str) -> String {
    let plain: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
    let parts: Vec<&str> = plain.split('_').filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { ALL_ROWS.to_owned() } else { parts.join("_") }
}

/// A different stem for each name: equal ones get a running number.
fn stems<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut taken = std::collections::HashSet::new();
    let free = |name| {
        let stem = stem(name);
        let numbered = (2..).map(|n: u64| format!("{stem}_{n}"));
        let mut all = std::iter::once(stem.clone()).chain(numbered);
        all.find(|stem| taken.insert(stem.clone())).unwrap_or(stem)
    };
    names.into_iter().map(free).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_are_different() {
        assert_eq!([stem("MappedCollection"), stem("a (x=1)"), stem("é")], ["mappedcollection", "a_x_1", "all"]);
        assert_eq!(stems(["a-1", "a_1", "b", "a 1", "a 1 2"]), ["a_1", "a_1_2", "b", "a_1_3", "a_1_2_2"]);
    }
}
