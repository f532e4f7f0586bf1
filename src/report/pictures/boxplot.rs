use super::words::{basis, counted, far_apart};
use crate::plot::{Axis, BoxMark, Chart, Layer, Panel};
use crate::report::figures::completed_steps;
use crate::stats::{mean, quantile};
use expctl_record::MeasuredJob;

/// What the whiskers of a box of [`TimeBox`] reach from and to.
pub const WHISKERS: &str = "1 % to 99 %";

/// Room for the boxes of one name, in units of the axis.
const ROOM: f64 = 0.7;

/// Times of some batches or steps, as their box is drawn, s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeBox {
    /// 1st and 99th percentile.
    pub whiskers: [f64; 2],
    /// Lower and upper quartile.
    pub quartiles: [f64; 2],
    /// Median.
    pub median: f64,
    /// Mean.
    pub mean: f64,
}

impl TimeBox {
    /// Of times in s, in any order; none of no times.
    pub fn of(times: &[f64]) -> Option<Self> {
        let at = |share| quantile(times, share);
        Some(Self {
            whiskers: [at(0.01)?, at(0.99)?],
            quartiles: [at(0.25)?, at(0.75)?],
            median: at(0.5)?,
            mean: mean(times)?,
        })
    }
}

/// A boxplot with a name below each group of boxes, and a dot at each mean. Box `n` of a group is of `series[n]`; none where it has none
/// of that. The axis is logarithmic where the times are far apart.
pub fn box_panel(groups: &[(String, Vec<Option<TimeBox>>)], series: &[&str], y: &str) -> Panel {
    let slot = ROOM / series.len().max(1) as f64;
    let x = |group: usize, n: usize| group as f64 + (n as f64 + 0.5) * slot - ROOM / 2.0;
    let placed = |n: usize| {
        let boxes = groups.iter().enumerate().filter_map(move |(group, (_, boxes))| Some((group, (*boxes.get(n)?)?)));
        boxes.map(move |(group, of)| (x(group, n), of))
    };
    let mut layers: Vec<Layer> = Vec::new();
    for (colour, name) in series.iter().enumerate() {
        let mark = |(x, of): (f64, TimeBox)| {
            let TimeBox { whiskers, quartiles, median, .. } = of;
            BoxMark { x, width: slot * 0.85, whiskers, quartiles, median }
        };
        let boxes = placed(colour).map(mark).collect();
        layers.push(Layer::Boxes { name: (*name).to_owned(), colour, whiskers: WHISKERS.to_owned(), boxes });
    }
    let means = (0..series.len()).flat_map(placed).map(|(x, of)| [x, of.mean]).collect();
    layers.push(Layer::Dots { name: "mean".to_owned(), colour: series.len(), points: means });
    let all = || groups.iter().flat_map(|(_, boxes)| boxes.iter().flatten());
    let log = far_apart(all().flat_map(|of| of.whiskers.into_iter().chain([of.mean])));
    let y = Axis::new(y);
    let names = groups.iter().map(|(name, _)| name.clone());
    Panel { title: String::new(), x: Axis::new("").named(names), y: if log { y.log() } else { y }, layers }
}

/// Step times of each variant as a box; none where no variant has two measured steps.
pub(super) fn boxplot(job: &MeasuredJob) -> Option<Chart> {
    let (mut groups, mut counts) = (Vec::new(), Vec::new());
    for (label, runs) in job.by_label() {
        let times: Vec<f64> = completed_steps(&runs).map(|step| step.wall_ns as f64 / 1e9).collect();
        if times.len() > 1 {
            counts.push(counted(&runs));
            groups.push((label, vec![TimeBox::of(&times)]));
        }
    }
    if groups.is_empty() {
        return None;
    }
    Some(Chart {
        name: "boxplot".into(),
        title: "How long a batch takes".into(),
        alt: "A boxplot of the step times of each variant.".into(),
        caption: format!(
            "Measured, {}: wall time of a step, which in mode data is the loading of a batch. Box: quartiles and median; whiskers: {WHISKERS} of \
             the steps; dot: mean.",
            basis(&counts)
        ),
        panels: vec![box_panel(&groups, &["steps"], "step time (s)")],
        columns: 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_of_a_group_stand_beside_each_other() {
        let times: Vec<f64> = (1..=101).map(f64::from).collect();
        let one = TimeBox::of(&times).unwrap();
        assert_eq!((one.whiskers, one.quartiles, one.median, one.mean), ([2.0, 100.0], [26.0, 76.0], 51.0, 51.0));
        assert_eq!(TimeBox::of(&[]), None);
        let groups = [("a".to_owned(), vec![Some(one), Some(one)]), ("b".to_owned(), vec![None, Some(one)])];
        let panel = box_panel(&groups, &["first", "later"], "time (s)");
        let boxes = |layer: &Layer| match layer {
            Layer::Boxes { boxes, .. } => boxes.iter().map(|mark| (mark.x * 1000.0).round()).collect(),
            _ => Vec::new(),
        };
        assert_eq!(boxes(&panel.layers[0]), [-175.0]);
        assert_eq!(boxes(&panel.layers[1]), [175.0, 1175.0]);
        assert_eq!(panel.y.scale, crate::plot::Scale::Log);
    }
}
