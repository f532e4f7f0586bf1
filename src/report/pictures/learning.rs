use expctl_record::{LearningRecord, MeasuredJob, Run};

use crate::plot::{Axis, Chart, Layer, Panel, Point};
use crate::report::format;

/// Name of the picture, which has a section of its own in the note.
pub const LEARNING: &str = "learning";

/// A figure of an epoch, and what its panel is called.
type Figure = (&'static str, fn(&LearningRecord) -> Option<f64>);

const FIGURES: [Figure; 3] = [
    ("training loss", |record| Some(record.train_loss)),
    ("validation loss", |record| Some(record.validation.as_ref()?.loss)),
    ("validation, Pearson", |record| record.validation.as_ref()?.pearson),
];

/// What training came to over the epochs: a line for each run, a colour for each variant; none where no run has epochs.
pub(super) fn learning(job: &MeasuredJob) -> Option<Chart> {
    let groups = job.by_label();
    let panels: Vec<Panel> = FIGURES.into_iter().filter_map(|figure| panel(&groups, figure)).collect();
    if panels.is_empty() {
        return None;
    }
    let runs = job.runs.iter().filter(|run| !run.learning.is_empty()).count() as u64;
    Some(Chart {
        name: LEARNING.into(),
        title: "What training came to".into(),
        alt: "Training loss, validation loss and Pearson's correlation over the epochs, a line for each run.".into(),
        caption: format!("Measured, {}: a line each, a colour for each variant.", format::count(runs, "run")),
        panels,
        columns: 1,
    })
}

/// One figure over the epochs; none where no run has it.
fn panel(groups: &[(String, Vec<&Run>)], (name, of): Figure) -> Option<Panel> {
    let mut layers = Vec::new();
    for (colour, (label, runs)) in groups.iter().enumerate() {
        for run in runs {
            let points: Vec<Point> =
                run.learning.iter().filter_map(|record| Some([(record.epoch + 1) as f64, of(record)?])).collect();
            if points.iter().any(|[_, value]| value.is_finite()) {
                // One epoch is no line.
                layers.push(Layer::Line { name: label.clone(), colour, points: points.clone() });
                layers.push(Layer::Dots { name: label.clone(), colour, points });
            }
        }
    }
    (!layers.is_empty()).then(|| Panel { title: name.into(), x: Axis::new("epoch"), y: Axis::new(name), layers })
}
