use super::chart::{Axis, Layer, Panel, Scale};

/// How the values of an axis become places on the picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    /// Lowest and highest value.
    pub values: [f64; 2],
    /// Where they stand, in points.
    pub places: [f64; 2],
    /// How values are spread.
    pub scale: Scale,
}

impl Span {
    /// Place of a value; none for one that the scale has no place for.
    pub fn place(&self, value: f64) -> Option<f64> {
        let [low, high] = self.values.map(|v| self.spread(v));
        let [from, to] = self.places;
        let place = from + (self.spread(value) - low) / (high - low) * (to - from);
        place.is_finite().then_some(place)
    }

    /// Place of a value, no farther than the ends.
    pub fn within(&self, value: f64) -> Option<f64> {
        // A bar from 0 on a logarithmic axis starts at its foot.
        let value = if self.scale == Scale::Log && value <= 0.0 { self.values[0] } else { value };
        let [a, b] = self.places;
        self.place(value).map(|place| place.clamp(a.min(b), a.max(b)))
    }

    /// Length between the places, in points.
    pub fn length(&self) -> f64 {
        (self.places[1] - self.places[0]).abs()
    }

    fn spread(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Log => value.log10(),
        }
    }
}

/// Which axis of a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// From left to right.
    X,
    /// From bottom to top.
    Y,
}

/// Lowest and highest value of an axis: those it names, or what the data need with a little room.
pub(super) fn values(panel: &Panel, side: Side) -> [f64; 2] {
    let axis = if side == Side::X { &panel.x } else { &panel.y };
    if let Some([low, high]) = axis.range.filter(|[low, high]| fits(axis, *low) && fits(axis, *high) && low < high) {
        return [low, high];
    }
    if !axis.names.is_empty() {
        return [-0.5, axis.names.len() as f64 - 0.5];
    }
    let mut all: Vec<f64> = Vec::new();
    panel.layers.iter().for_each(|layer| gather(layer, side, &mut all));
    let ends = |[low, high]: [f64; 2], v: f64| [low.min(v), high.max(v)];
    let [low, high] = all.into_iter().filter(|v| fits(axis, *v)).fold([f64::INFINITY, f64::NEG_INFINITY], ends);
    if low > high {
        return if axis.scale == Scale::Log { [1.0, 10.0] } else { [0.0, 1.0] };
    }
    let exact = |layer: &Layer| matches!(layer, Layer::Cells { .. });
    let room = if panel.layers.iter().any(exact) { 0.0 } else { [0.02, 0.06][usize::from(side == Side::Y)] };
    with_room(axis.scale, [low, high], room)
}

fn fits(axis: &Axis, value: f64) -> bool {
    value.is_finite() && (axis.scale == Scale::Linear || value > 0.0)
}

fn with_room(scale: Scale, [low, high]: [f64; 2], share: f64) -> [f64; 2] {
    if scale == Scale::Log {
        let (low, high) = (low.log10(), high.log10());
        let room = if high > low { (high - low) * share } else { 0.5 };
        return [10f64.powf(low - room), 10f64.powf(high + room)];
    }
    if low == high {
        let room = if low == 0.0 { 1.0 } else { low.abs() * 0.5 };
        return [low - room, high + room];
    }
    let room = (high - low) * share;
    // What starts at 0 stands on the axis, not above it.
    let foot = if low >= 0.0 && low - room * 1.5 <= 0.0 { 0.0 } else { low - room };
    [if low == 0.0 { 0.0 } else { foot }, if high == 0.0 { 0.0 } else { high + room }]
}

fn gather(layer: &Layer, side: Side, all: &mut Vec<f64>) {
    let i = usize::from(side == Side::Y);
    match layer {
        Layer::Line { points, .. } | Layer::Dots { points, .. } => all.extend(points.iter().map(|point| point[i])),
        Layer::Bars { bars, .. } => {
            for bar in bars {
                match side {
                    Side::X => all.extend([bar.x - bar.width / 2.0, bar.x + bar.width / 2.0]),
                    Side::Y => all.extend([bar.from, bar.to].into_iter().chain(bar.interval.into_iter().flatten())),
                }
            }
        }
        Layer::Boxes { boxes, .. } => {
            for one in boxes {
                match side {
                    Side::X => all.extend([one.x - one.width / 2.0, one.x + one.width / 2.0]),
                    Side::Y => all.extend(one.whiskers.into_iter().chain(one.quartiles)),
                }
            }
        }
        Layer::Cells { cells, .. } => all.extend(cells.iter().flat_map(|cell| if i == 0 { cell.x } else { cell.y })),
        Layer::Rule { y, .. } => all.extend((side == Side::Y).then_some(*y)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(y: Axis, values: &[f64]) -> Panel {
        let points = values.iter().enumerate().map(|(i, v)| [i as f64, *v]).collect();
        let layers = vec![Layer::Line { name: String::new(), colour: 0, points }];
        Panel { title: String::new(), x: Axis::new("x"), y, layers }
    }

    #[test]
    fn a_scale_is_as_long_as_its_data_with_a_little_room() {
        let of = |y: Axis, all: &[f64]| values(&panel(y, all), Side::Y);
        assert_eq!(of(Axis::new("y"), &[0.0, 10.0, f64::NAN]), [0.0, 10.6]);
        assert_eq!(of(Axis::new("y"), &[100.0, 200.0]), [94.0, 206.0]);
        assert_eq!(of(Axis::new("y"), &[3.0]), [1.5, 4.5]);
        assert_eq!(of(Axis::new("y").between(1.0, 2.0), &[3.0]), [1.0, 2.0]);
        assert_eq!(of(Axis::new("y").log(), &[-1.0, 0.0]), [1.0, 10.0]);
        let [low, high] = of(Axis::new("y").log(), &[0.0, 1.0, 100.0]);
        assert!(low > 0.7 && low < 1.0 && high > 100.0 && high < 140.0, "{low} {high}");
    }

    #[test]
    fn a_value_without_a_place_is_not_drawn() {
        let span = Span { values: [1.0, 100.0], places: [0.0, 200.0], scale: Scale::Log };
        assert_eq!([10.0, 0.0, f64::NAN].map(|v| span.place(v)), [Some(100.0), None, None]);
        assert_eq!([0.0, 1e9].map(|v| span.within(v)), [Some(0.0), Some(200.0)]);
    }
}
