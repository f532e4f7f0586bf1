use super::words::{ALL, ordinal, stems};
use super::{Analysis, Class, CurvePoint, MethodTimings, SeriesTimings};
use crate::plot::{Axis, Chart, Layer, Panel, Point};
use crate::report::format::thousands;

/// Epochs of a method that pictures show.
pub(super) const SHOWN: usize = 5;
/// Points of a curve.
const CURVE: usize = 120;

/// All pictures: sums, shares and ratios of the sorted times, then the batches of each method.
pub fn charts(analysis: &Analysis) -> Vec<Chart> {
    let mut charts = vec![sums(analysis), shares(analysis), ratios(analysis)];
    let stems = stems(analysis.methods.iter().map(|method| method.method.as_str()));
    for (method, stem) in analysis.methods.iter().zip(&stems) {
        charts.push(batches(analysis, method, stem, false));
        if method.epochs.iter().any(|epoch| !epoch.dots.detail.is_empty()) {
            charts.push(batches(analysis, method, stem, true));
        }
    }
    charts
}

fn sums(analysis: &Analysis) -> Chart {
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

fn shares(analysis: &Analysis) -> Chart {
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

fn ratios(analysis: &Analysis) -> Chart {
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
) -> Chart {
    let mut layers = Vec::new();
    for (colour, method) in analysis.methods.iter().enumerate() {
        for epoch in method.epochs.iter().take(SHOWN) {
            let all = &epoch.times.curve;
            // The points lie closer at both ends, where every one is kept.
            let step = all.len().div_ceil(CURVE).max(1);
            let ends = 12;
            let kept = all.iter().enumerate().filter(|(i, _)| i % step == 0 || *i < ends || i + ends >= all.len());
            layers.push(Layer::Line {
                name: method.method.clone(),
                colour,
                points: kept.filter_map(|(_, p)| point(p)).collect(),
            });
        }
    }
    let epochs = analysis.methods.iter().map(|m| m.epochs.len()).max().unwrap_or_default();
    let lines =
        if epochs > SHOWN { format!("one line per epoch, the first {SHOWN}") } else { "one line per epoch".into() };
    Chart {
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
    }
}

/// Single batches of a method, a panel per epoch, coloured by batch number modulo the period.
fn batches(analysis: &Analysis, timings: &MethodTimings, stem: &str, detail: bool) -> Chart {
    let period = timings.period;
    // What was asked for, as far as there are batches and not too many to be drawn.
    let last = timings.epochs.iter().filter_map(|epoch| epoch.dots.detail.last()).map(|(batch, _)| batch + 1).max();
    let drawn = analysis.range.start..last.unwrap_or(analysis.range.end);
    let dots = |epoch: &SeriesTimings| if detail { epoch.dots.detail.clone() } else { epoch.dots.whole.clone() };
    let panels = timings.epochs.iter().take(SHOWN).map(|epoch| {
        let all = dots(epoch);
        let layers = match period {
            Some(period) => (0..period.min(MOST_COLOURS))
                .map(|residue| Layer::Dots {
                    name: if period > MOST_COLOURS {
                        format!("{residue}, {}… mod {period}", residue + MOST_COLOURS)
                    } else {
                        format!("{residue} mod {period}")
                    },
                    colour: residue,
                    points: all
                        .iter()
                        .filter(|(batch, _)| (*batch % period as u64) as usize % MOST_COLOURS == residue)
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
        let title = if epoch.epoch == ALL { String::new() } else { format!("Epoch {}", epoch.epoch) };
        Panel { title, x, y: Axis::new("time (s)").log(), layers }
    });
    let range = format!("[{}, {})", drawn.start, drawn.end);
    let folded = period.map_or("no period".to_owned(), |p| format!("coloured by batch number mod {p}"));
    let epochs = match timings.epochs.len() {
        n if n > SHOWN => format!("the first {SHOWN} of {n} epochs"),
        _ => "all epochs".to_owned(),
    };
    let what = match detail {
        true if timings.epochs.len() > SHOWN => format!("batches {range}, {epochs}"),
        true => format!("batches {range}"),
        false => epochs,
    };
    let shown = if detail {
        format!("Every batch of {range}.")
    } else {
        let slowest = timings.epochs.iter().map(|e| e.dots.slowest).max().unwrap_or_default();
        let batches = timings.epochs.iter().take(SHOWN).map(|e| e.times.batches).max().unwrap_or_default();
        let others = timings.epochs.iter().map(|e| e.dots.whole.len()).max().unwrap_or_default();
        format!(
            "Of up to {} batches an epoch, {} are drawn: the {} slowest and, of the others, one from each stretch of equal length.",
            thousands(batches),
            thousands(others as u64),
            thousands(slowest as u64)
        )
    };
    let period_name = period.map_or(String::new(), |p| format!("_mod{p}"));
    let place = if detail { format!("_{}_{}", analysis.range.start, analysis.range.end) } else { String::new() };
    Chart {
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
    }
}

/// Colours that can be told apart.
const MOST_COLOURS: usize = 10;

fn class(analysis: &Analysis) -> &'static str {
    match analysis.source.class {
        Class::Generated => "generated (nobody measured them)",
        other => other.name(),
    }
}
