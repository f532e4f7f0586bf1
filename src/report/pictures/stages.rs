use expctl_record::{MeasuredJob, Stage};

use super::words::{basis, counted, ends};
use crate::plot::{Axis, Bar, Chart, Layer, Panel};
use crate::report::figures::{Breakdown, completed_steps};

/// Place in the palette of what no stage claims: grey.
const GREY: usize = 9;

/// Where one step is so many times as long as another, the stages of the shorter one need a panel in which they are seen.
const LONGER: f64 = 4.0;

/// What the mean step of each variant waits for, stage upon stage; none where no variant has a completed run.
pub(super) fn stages(job: &MeasuredJob) -> Option<Chart> {
    let mut counts = Vec::new();
    let mut variants: Vec<(String, Breakdown)> = Vec::new();
    for (label, runs) in job.by_label() {
        if let Some(breakdown) = Breakdown::of(completed_steps(&runs)).filter(|breakdown| breakdown.wall > 0.0) {
            counts.push(counted(&runs));
            variants.push((label, breakdown));
        }
    }
    if variants.is_empty() {
        return None;
    }
    let mut panels = vec![panel(&variants, "time", Axis::new("exposed time (ms/step)"), |_| 1e-6)];
    // Where a step of one variant is much longer, nothing is seen of the others' stages.
    if ends(variants.iter().map(|(_, breakdown)| breakdown.wall)).is_some_and(|[low, high]| high > LONGER * low) {
        panels.push(panel(&variants, "share", Axis::new("share of the step (%)"), |breakdown| 100.0 / breakdown.wall));
    } else {
        panels[0].title = String::new();
    }
    Some(Chart {
        name: "stages".into(),
        title: "Where a step's time goes".into(),
        alt: "Exposed time of each stage in the mean step of each variant, stacked.".into(),
        caption: format!(
            "Measured, means over {}: what a step waited for each stage. Unattributed (derived): wall time that no stage claims.",
            basis(&counts)
        ),
        panels,
        columns: 1,
    })
}

/// Exposed times, each times what `unit` says for its variant.
fn panel(variants: &[(String, Breakdown)], title: &str, y: Axis, unit: impl Fn(&Breakdown) -> f64) -> Panel {
    let exposed = |breakdown: &Breakdown, stage: Stage| {
        breakdown.exposed.iter().find(|(s, _)| *s == stage).and_then(|(_, ns)| *ns).unwrap_or(0.0)
    };
    let happens = |stage: &Stage| variants.iter().any(|(_, breakdown)| exposed(breakdown, *stage) > 0.0);
    let mut tops = vec![0.0; variants.len()];
    let mut layers = Vec::new();
    let mut stack = |name: String, colour: usize, of: &dyn Fn(&Breakdown) -> f64| {
        let bars = variants.iter().zip(&mut tops).enumerate().map(|(i, ((_, breakdown), top))| {
            let (from, to) = (*top, *top + of(breakdown) * unit(breakdown));
            *top = to;
            Bar { x: i as f64, width: 0.7, from, to, interval: None }
        });
        layers.push(Layer::Bars { name, colour, bars: bars.collect() });
    };
    // The grey one is for what no stage claims.
    let colours = (0..).filter(|colour| colour % 10 != GREY);
    for (stage, colour) in Stage::ALL.into_iter().filter(happens).zip(colours) {
        stack(stage.name().to_owned(), colour, &|breakdown| exposed(breakdown, stage));
    }
    stack("unattributed".to_owned(), GREY, &|breakdown| breakdown.unattributed);
    let names = variants.iter().map(|(label, _)| label.clone());
    Panel { title: title.to_owned(), x: Axis::new("").named(names), y, layers }
}
