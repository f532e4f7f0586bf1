//! Charts: `expctl-charts` against `plotters`, on a line chart of three series.

use expctl_charts::{Axis, Chart, Layer, Panel, svg};
use plotters::prelude::*;

use crate::harness::{Case, Check, Clock, Outcome, Pass, RunPass};

/// Points of a series.
const POINTS: usize = 200;
/// Charts of a pass.
const CHARTS: u64 = 20;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("charts", "three lines of 200 points as SVG", "charts/s")
            .side("ours", |_| charts(ours))
            .side("plotters", |_| charts(theirs)),
    ]
}

/// The series, by index of their colour.
fn points(series: usize) -> Vec<[f64; 2]> {
    (0..POINTS).map(|i| [i as f64, 1.0 + series as f64 + (i as f64 * 0.1 * (1.0 + series as f64)).sin()]).collect()
}

/// Ours: SVG text.
pub fn ours() -> Outcome<String> {
    let line = |colour| Layer::Line { name: format!("variant {colour}"), colour, points: points(colour) };
    let panel = Panel {
        title: String::new(),
        x: Axis::new("step"),
        y: Axis::new("step time (ms)"),
        layers: (0..3).map(line).collect(),
    };
    let chart = Chart {
        name: "steps".into(),
        title: "Step times".into(),
        alt: "Step times of three variants.".into(),
        caption: "Measured.".into(),
        panels: vec![panel],
        columns: 1,
    };
    Ok(svg(&chart, None)?)
}

/// The same with plotters, as its documentation does it: title, axes with labels, legend.
pub fn theirs() -> Outcome<String> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (720, 360)).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption("Step times", ("sans-serif", 16))
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(48)
            .build_cartesian_2d(0.0..POINTS as f64, 0.0..4.5)?;
        chart.configure_mesh().x_desc("step").y_desc("step time (ms)").draw()?;
        for (series, colour) in [BLUE, RED, GREEN].into_iter().enumerate() {
            let line = LineSeries::new(points(series).into_iter().map(|[x, y]| (x, y)), colour);
            chart
                .draw_series(line)?
                .label(format!("variant {series}"))
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
        }
        chart.configure_series_labels().border_style(BLACK).draw()?;
        root.present()?;
    }
    Ok(text)
}

fn charts(draw: fn() -> Outcome<String>) -> Outcome<RunPass> {
    Ok(Box::new(move |_| {
        let mut clock = Clock::default();
        for _ in 0..CHARTS {
            let text = clock.time(draw)?;
            // The pictures differ; both have all three names.
            if !(0..3).all(|series| text.contains(&format!("variant {series}"))) {
                return Err("a name is missing in a chart".into());
            }
        }
        Ok(Pass { units: CHARTS, time: clock.0, check: Check::Same(CHARTS) })
    }))
}
