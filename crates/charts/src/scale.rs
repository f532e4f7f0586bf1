//! Axes: the range of values, their positions on the picture, and ticks.

use crate::chart::{Axis, Layer, Panel, Scale};

/// Maps the values of an axis to positions on the picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AxisMap {
    /// Lowest and highest value.
    pub values: [f64; 2],
    /// Positions of these two, in points.
    pub points: [f64; 2],
    /// Linear or logarithmic.
    pub scale: Scale,
}

impl AxisMap {
    /// Position of a value; `None` for values that the scale cannot show.
    pub fn position(&self, value: f64) -> Option<f64> {
        let [low, high] = self.values.map(|v| self.scaled(v));
        let [from, to] = self.points;
        let position = from + (self.scaled(value) - low) / (high - low) * (to - from);
        position.is_finite().then_some(position)
    }

    /// Position of a value, clamped to the ends of the axis.
    pub fn clamped(&self, value: f64) -> Option<f64> {
        // A bar that starts at 0 starts at the lower end of a logarithmic axis.
        let value = if self.scale == Scale::Log && value <= 0.0 { self.values[0] } else { value };
        let [a, b] = self.points;
        self.position(value).map(|position| position.clamp(a.min(b), a.max(b)))
    }

    /// Length of the axis, in points.
    pub fn length(&self) -> f64 {
        (self.points[1] - self.points[0]).abs()
    }

    fn scaled(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Log => value.log10(),
        }
    }
}

/// One of the two axes of a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// From left to right.
    X,
    /// From bottom to top.
    Y,
}

/// Lowest and highest value of an axis: its fixed range, or that of the data with a small margin.
pub fn value_range(panel: &Panel, side: Side) -> [f64; 2] {
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
    let margin = if panel.layers.iter().any(exact) { 0.0 } else { [0.02, 0.06][usize::from(side == Side::Y)] };
    with_margin(axis.scale, [low, high], margin)
}

fn fits(axis: &Axis, value: f64) -> bool {
    value.is_finite() && (axis.scale == Scale::Linear || value > 0.0)
}

fn with_margin(scale: Scale, [low, high]: [f64; 2], share: f64) -> [f64; 2] {
    if scale == Scale::Log {
        let (low, high) = (low.log10(), high.log10());
        let margin = if high > low { (high - low) * share } else { 0.5 };
        return [10f64.powf(low - margin), 10f64.powf(high + margin)];
    }
    if low == high {
        let margin = if low == 0.0 { 1.0 } else { low.abs() * 0.5 };
        return [low - margin, high + margin];
    }
    let margin = (high - low) * share;
    // Data that start at 0 start on the axis, not above it.
    let foot = if low >= 0.0 && low - margin * 1.5 <= 0.0 { 0.0 } else { low - margin };
    [if low == 0.0 { 0.0 } else { foot }, if high == 0.0 { 0.0 } else { high + margin }]
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

/// Decades up to which a logarithmic axis gets lines between its powers of ten.
const MAX_DECADES: i32 = 8;

/// A grid line of an axis, with its number.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// The value.
    pub value: f64,
    /// The number as text; empty for a line without one.
    pub label: String,
}

/// Ticks between two values, about `count` of them.
pub fn ticks(scale: Scale, [low, high]: [f64; 2], count: usize) -> Vec<Tick> {
    match scale {
        Scale::Linear => linear(low, high, count),
        Scale::Log => logarithmic(low, high, count),
    }
}

/// Ticks at multiples of 1, 2 or 5 times a power of ten.
fn linear(low: f64, high: f64, count: usize) -> Vec<Tick> {
    let rough = (high - low) / count.max(1) as f64;
    if !(rough.is_finite() && rough > 0.0) {
        return Vec::new();
    }
    let power = rough.log10().floor();
    let lead = [1.0, 2.0, 5.0, 10.0].into_iter().find(|lead| lead * 10f64.powf(power) >= rough * 0.999).unwrap_or(10.0);
    let step = lead * 10f64.powf(power);
    let decimals = decimals(step);
    let max = low.abs().max(high.abs());
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last.min(first + 100))
        .map(|i| {
            let value = i as f64 * step;
            Tick { value, label: tick_label(value, max, decimals) }
        })
        .collect()
}

/// Decimals needed to tell ticks apart that are `step` apart.
fn decimals(step: f64) -> usize {
    usize::try_from(-(step * 1.0001).log10().floor() as i32).unwrap_or(0)
}

/// `12,500`, `0.25`; very small and very large ones as `3×10⁷`. All numbers of an axis share the power of the largest.
fn tick_label(value: f64, max: f64, decimals: usize) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let power = max.log10().floor() as i32;
    if (-4..7).contains(&power) {
        let text = format!("{:.decimals$}", value.abs());
        let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
        let sign = if value < 0.0 { "−" } else { "" };
        let whole = grouped(whole);
        return if rest.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{rest}") };
    }
    let lead = value / 10f64.powi(power);
    let text = format!("{lead:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{}×{}", text.replace('-', "−"), power_of_ten(power))
}

/// Whole digits with a comma between thousands.
fn grouped(digits: &str) -> String {
    let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    groups.iter().map(|group| String::from_utf8_lossy(group)).collect::<Vec<_>>().join(",")
}

/// `10⁻³`.
fn power_of_ten(power: i32) -> String {
    let raised = |c| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '0' | '4'..='9' => char::from_u32(0x2070 + (c as u32 - '0' as u32)).unwrap_or(c),
        other => other,
    };
    format!("10{}", power.to_string().chars().map(raised).collect::<String>())
}

/// A value to four significant digits.
pub fn four_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let places = 3 - value.abs().log10().floor() as i32;
    let text = tick_label(value, value.abs(), usize::try_from(places).unwrap_or(0));
    match text.contains('.') && !text.contains('×') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Powers of ten, with 2 and 5 between them where there is room; lines without numbers for the other digits.
fn logarithmic(low: f64, high: f64, count: usize) -> Vec<Tick> {
    let (from, to) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let decades = high.log10() - low.log10();
    if !decades.is_finite() || decades <= 0.0 {
        return Vec::new();
    }
    if decades < 0.7 {
        // Below about five times, even steps are easier to read.
        return linear(low, high, count);
    }
    let powers = high.log10().floor() - low.log10().ceil() + 1.0;
    let every = (powers / count.clamp(2, 10) as f64).ceil().max(1.0) as i32;
    let digits: &[u8] = match decades {
        d if d * 3.0 <= count as f64 => &[1, 2, 5],
        d if d * 2.0 <= count as f64 => &[1, 3],
        _ => &[1],
    };
    let mut all = Vec::new();
    for power in from..=to {
        for digit in 1..10u8 {
            let value = f64::from(digit) * 10f64.powi(power);
            if value < low * 0.999_999 || value > high * 1.000_001 {
                continue;
            }
            let named = digits.contains(&digit) && power.rem_euclid(every) == 0;
            // With many decades the lines between them are noise.
            if named || (decades <= f64::from(MAX_DECADES) && every == 1) {
                let label = if named { power_label(value, power) } else { String::new() };
                all.push(Tick { value, label });
            }
        }
    }
    all
}

fn power_label(value: f64, power: i32) -> String {
    if (-4..7).contains(&power) {
        return tick_label(value, value, usize::try_from(-power).unwrap_or(0));
    }
    let digit = (value / 10f64.powi(power)).round() as u8;
    if digit == 1 { power_of_ten(power) } else { format!("{digit}×{}", power_of_ten(power)) }
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
    fn an_axis_spans_its_data_with_a_margin() {
        let of = |y: Axis, all: &[f64]| value_range(&panel(y, all), Side::Y);
        assert_eq!(of(Axis::new("y"), &[0.0, 10.0, f64::NAN]), [0.0, 10.6]);
        assert_eq!(of(Axis::new("y"), &[100.0, 200.0]), [94.0, 206.0]);
        assert_eq!(of(Axis::new("y"), &[3.0]), [1.5, 4.5]);
        assert_eq!(of(Axis::new("y").between(1.0, 2.0), &[3.0]), [1.0, 2.0]);
        assert_eq!(of(Axis::new("y").log(), &[-1.0, 0.0]), [1.0, 10.0]);
        let [low, high] = of(Axis::new("y").log(), &[0.0, 1.0, 100.0]);
        assert!(low > 0.7 && low < 1.0 && high > 100.0 && high < 140.0, "{low} {high}");
    }

    #[test]
    fn a_value_that_the_scale_cannot_show_has_no_position() {
        let map = AxisMap { values: [1.0, 100.0], points: [0.0, 200.0], scale: Scale::Log };
        assert_eq!([10.0, 0.0, f64::NAN].map(|v| map.position(v)), [Some(100.0), None, None]);
        assert_eq!([0.0, 1e9].map(|v| map.clamped(v)), [Some(0.0), Some(200.0)]);
    }

    fn labels(scale: Scale, low: f64, high: f64, count: usize) -> String {
        let named = ticks(scale, [low, high], count).into_iter().map(|t| t.label).filter(|l| !l.is_empty());
        named.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn linear_ticks_are_round() {
        assert_eq!(labels(Scale::Linear, 0.0, 10.6, 5), "0 5 10");
        assert_eq!(labels(Scale::Linear, 0.0, 10.6, 6), "0 2 4 6 8 10");
        assert_eq!(labels(Scale::Linear, -0.02, 0.031, 5), "−0.02 0 0.02");
        assert_eq!(labels(Scale::Linear, 0.0, 25_000.0, 5), "0 5,000 10,000 15,000 20,000 25,000");
        assert_eq!(labels(Scale::Linear, 0.0, 4e7, 4), "0 1×10⁷ 2×10⁷ 3×10⁷ 4×10⁷");
        assert_eq!(labels(Scale::Linear, 0.0, 3e-6, 3), "0 1×10⁻⁶ 2×10⁻⁶ 3×10⁻⁶");
        assert_eq!(labels(Scale::Linear, 0.25, 0.75, 5), "0.3 0.4 0.5 0.6 0.7");
        assert_eq!(labels(Scale::Linear, 1.0, 1.0, 5), "");
    }

    #[test]
    fn logarithmic_ticks_are_decades() {
        assert_eq!(labels(Scale::Log, 0.8, 1200.0, 5), "1 10 100 1,000");
        assert_eq!(labels(Scale::Log, 0.8, 30.0, 6), "1 2 5 10 20");
        assert_eq!(labels(Scale::Log, 0.000_009, 2.0, 6), "10⁻⁵ 0.0001 0.001 0.01 0.1 1");
        assert_eq!(labels(Scale::Log, 1e-9, 1e9, 5), "10⁻⁸ 0.0001 1 10,000 10⁸");
        assert_eq!(labels(Scale::Log, 2.0, 6.0, 4), "2 3 4 5 6");
    }
}
