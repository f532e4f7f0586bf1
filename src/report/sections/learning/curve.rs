use std::ops::Range;

use expctl_record::LearningRecord;
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::exit::Failure;
use crate::ledger::Run;

/// Size of the picture in points: three panels above each other.
const SIZE: (u32, u32) = (900, 960);
/// One for each variant, in turn; to be told apart by colour-blind readers, too (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// A figure of an epoch, and what its panel is called.
type Panel = (&'static str, fn(&LearningRecord) -> Option<f64>);

const PANELS: [Panel; 3] = [
    ("training loss", |record| Some(record.train_loss)),
    ("validation loss", |record| Some(record.validation.as_ref()?.loss)),
    ("validation, Pearson", |record| record.validation.as_ref()?.pearson),
];

/// Training loss, validation loss and Pearson's correlation over the epochs as SVG: a line for each run, a colour for each
/// variant.
///
/// # Errors
/// They cannot be drawn.
pub fn curves(groups: &[(String, Vec<&Run>)]) -> Result<String, Failure> {
    let mut svg = String::new();
    draw(groups, &mut svg).map_err(|e| Failure::internal(format!("the learning curves cannot be drawn: {e}")))?;
    Ok(svg)
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(groups: &[(String, Vec<&Run>)], svg: &mut String) -> Drawn {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, panel) in root.split_evenly((PANELS.len(), 1)).iter().zip(PANELS) {
        draw_panel(area, groups, panel)?;
    }
    root.present()?;
    Ok(())
}

fn draw_panel(area: &DrawingArea<SVGBackend<'_>, Shift>, groups: &[(String, Vec<&Run>)], (name, of): Panel) -> Drawn {
    let line = |run: &Run| -> Vec<(f64, f64)> {
        let points = run.learning.iter().filter_map(|record| Some(((record.epoch + 1) as f64, of(record)?)));
        points.filter(|(_, value)| value.is_finite()).collect()
    };
    let all: Vec<(f64, f64)> = groups.iter().flat_map(|(_, runs)| runs).flat_map(|run| line(run)).collect();
    if all.is_empty() {
        return Ok(());
    }
    let epochs = range(all.iter().map(|(epoch, _)| *epoch));
    let values = range(all.iter().map(|(_, value)| *value));
    let mut chart = ChartBuilder::on(area)
        .caption(name, ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(32)
        .y_label_area_size(64)
        .build_cartesian_2d(epochs, values)?;
    chart.configure_mesh().x_desc("epoch").light_line_style(WHITE).draw()?;
    for (i, (label, runs)) in groups.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        // Where the colours come round again, gaps in the lines tell the variants apart: longer ones each time.
        let gap = 3 * i32::try_from(i / COLOURS.len()).unwrap_or(i32::MAX / 3);
        for (j, run) in runs.iter().enumerate() {
            let points = line(run);
            // One epoch is no line.
            let dots: Vec<_> = points.iter().map(|point| Circle::new(*point, 2, colour.filled())).collect();
            let series = if gap == 0 {
                chart.draw_series(LineSeries::new(points, &colour))?
            } else {
                chart.draw_series(DashedLineSeries::new(points, 5, gap, colour.stroke_width(1)))?
            };
            if j == 0 {
                series.label(label.as_str()).legend(move |(x, y)| {
                    let end = if gap == 0 { 8 } else { 8 - (gap / 2).min(6) };
                    let half = |from: i32, to: i32| PathElement::new([(from, 0), (to, 0)], colour);
                    EmptyElement::at((x, y)) + half(0, end) + half(16 - end, 16)
                });
            }
            chart.draw_series(dots)?;
        }
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
    Ok(())
}

/// From the smallest to the largest value, with a little room; never empty.
fn range(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    let room = if high > low { (high - low) * 0.05 } else { high.abs().max(1.0) * 0.05 };
    low - room..high + room
}
