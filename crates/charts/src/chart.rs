//! The data and words of a chart. Colours and positions are chosen where it is drawn.

use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::Serialize;

use crate::theme::NEUTRAL;

/// A picture with one or more panels.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chart {
    /// Stem of its file name, lowercase with `_`: `step_times`.
    pub name: String,
    /// Heading.
    pub title: String,
    /// Alternative text, one sentence.
    pub alt: String,
    /// Caption below the picture: class of the figures, n, and what else a reader must know.
    pub caption: String,
    /// Panels, in reading order.
    pub panels: Vec<Panel>,
    /// Panels in a row.
    pub columns: usize,
}

/// One pair of axes with what is drawn between them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Panel {
    /// Heading of the panel; may be empty.
    pub title: String,
    /// Axis from left to right.
    pub x: Axis,
    /// Axis from bottom to top.
    pub y: Axis,
    /// Marks, bottom layer first.
    pub layers: Vec<Layer>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Axis {
    /// Quantity and unit: `batch time (s)`.
    pub label: String,
    /// Linear or logarithmic.
    pub scale: Scale,
    /// Lowest and highest value; `None`: the range of the data.
    pub range: Option<[f64; 2]>,
    /// Names of the positions 0, 1, 2…; empty for an axis of numbers.
    pub names: Vec<String>,
}

/// Linear or logarithmic axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Evenly.
    Linear,
    /// Logarithmic; values that are not above 0 are not drawn.
    Log,
}

/// A point: x, y.
pub type Point = [f64; 2];

/// One set of marks with one colour.
///
/// `colour` is an index into the palette, modulo its length. Layers of one chart with the same `name` share an entry of the legend.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Layer {
    /// Points joined in order.
    Line {
        /// Name in the legend.
        name: String,
        /// Index into the palette.
        colour: usize,
        /// The points.
        points: Vec<Point>,
    },
    /// Single points.
    Dots {
        /// Name in the legend.
        name: String,
        /// Index into the palette.
        colour: usize,
        /// The points.
        points: Vec<Point>,
    },
    /// Upright bars; stacked ones start where the one below ends.
    Bars {
        /// Name in the legend.
        name: String,
        /// Index into the palette.
        colour: usize,
        /// The bars.
        bars: Vec<Bar>,
    },
    /// Boxplots: a box from quartile to quartile with a line at the median, and whiskers beyond.
    Boxes {
        /// Name in the legend.
        name: String,
        /// Index into the palette.
        colour: usize,
        /// Range of the whiskers, in words: `1 % to 99 %`.
        whiskers: String,
        /// The boxes.
        boxes: Vec<BoxMark>,
    },
    /// Rectangles whose colour is a value.
    Cells {
        /// Quantity and unit of the value.
        name: String,
        /// The rectangles.
        cells: Vec<ShadedCell>,
    },
    /// A line across the panel.
    Rule {
        /// Name in the legend.
        name: String,
        /// Height of the line, on the y axis.
        y: f64,
    },
}

impl Layer {
    /// The same in a neutral colour, for a panel beside another one whose colours have a meaning.
    #[must_use]
    pub fn neutral(mut self) -> Self {
        match &mut self {
            Self::Line { colour, .. }
            | Self::Dots { colour, .. }
            | Self::Bars { colour, .. }
            | Self::Boxes { colour, .. } => *colour = NEUTRAL,
            Self::Cells { .. } | Self::Rule { .. } => {}
        }
        self
    }
}

/// One bar.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bar {
    /// Its middle.
    pub x: f64,
    /// Its width, in units of x.
    pub width: f64,
    /// Lower end.
    pub from: f64,
    /// Upper end.
    pub to: f64,
    /// Confidence interval of its upper end.
    pub interval: Option<[f64; 2]>,
}

/// One box of a boxplot.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BoxMark {
    /// Its middle.
    pub x: f64,
    /// Its width, in units of x.
    pub width: f64,
    /// Lower and upper end of the whiskers.
    pub whiskers: [f64; 2],
    /// Lower and upper quartile.
    pub quartiles: [f64; 2],
    /// Median.
    pub median: f64,
}

/// A rectangle of a heat map, shaded by its value; positions in units of the axes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ShadedCell {
    /// Left and right edge.
    pub x: [f64; 2],
    /// Lower and upper edge.
    pub y: [f64; 2],
    /// Its value.
    pub value: f64,
}

impl Axis {
    /// A linear axis of numbers over the range of the data.
    pub fn new(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Linear, range: None, names: Vec::new() }
    }

    /// Make it logarithmic.
    #[must_use]
    pub fn log(mut self) -> Self {
        self.scale = Scale::Log;
        self
    }

    /// Set its range.
    #[must_use]
    pub fn between(mut self, low: f64, high: f64) -> Self {
        self.range = Some([low, high]);
        self
    }

    /// Name the positions 0, 1, 2….
    #[must_use]
    pub fn named(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.names = names.into_iter().collect();
        self
    }
}

/// Allowed widths, in points.
const WIDTHS: RangeInclusive<u16> = 480..=4000;
/// Allowed heights, in points.
const HEIGHTS: RangeInclusive<u16> = 200..=4000;

/// Width and height of a picture, in points. A point is one pixel of the SVG and two by two pixels of the PNG.
///
/// Invariant: 480 to 4000 points wide and 200 to 4000 high.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    width: u16,
    height: u16,
}

/// A text that is not the size of a picture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Not two whole numbers with an `x` between them.
    #[error("two numbers with an x between them are expected: 900x600")]
    Form,
    /// A width or height outside of the allowed range.
    #[error("a {side} of {points} points is not possible: {} to {} are", allowed.start(), allowed.end())]
    Range {
        /// `width` or `height`.
        side: &'static str,
        /// The number given.
        points: u16,
        /// The allowed range.
        allowed: RangeInclusive<u16>,
    },
}

impl Size {
    /// Points from left to right.
    pub fn width(self) -> f64 {
        f64::from(self.width)
    }

    /// Points from top to bottom.
    pub fn height(self) -> f64 {
        f64::from(self.height)
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let (width, height) = text.split_once('x').ok_or(SizeError::Form)?;
        let points = |text: &str, side, allowed: RangeInclusive<u16>| -> Result<u16, SizeError> {
            let points: u16 = text.trim().parse().map_err(|_| SizeError::Form)?;
            if allowed.contains(&points) { Ok(points) } else { Err(SizeError::Range { side, points, allowed }) }
        };
        Ok(Self { width: points(width, "width", WIDTHS)?, height: points(height, "height", HEIGHTS)? })
    }
}

/// A chart that cannot be drawn.
#[derive(Debug, thiserror::Error)]
pub enum ChartError {
    /// It has no panel.
    #[error("the picture `{chart}` has no panel")]
    NoPanel {
        /// Name of the chart.
        chart: String,
    },
    /// The SVG cannot be parsed again.
    #[error("the picture `{chart}` cannot be turned into a PNG: {source}")]
    Svg {
        /// Name of the chart.
        chart: String,
        /// The parser's error.
        source: resvg::usvg::Error,
    },
    /// The SVG has no size in pixels.
    #[error("the picture `{chart}` cannot be turned into a PNG: it has no size")]
    NoSize {
        /// Name of the chart.
        chart: String,
    },
    /// There is no memory for the pixels.
    #[error("the picture `{chart}` cannot be turned into a PNG: there is no memory for it")]
    NoMemory {
        /// Name of the chart.
        chart: String,
    },
    /// The pixels cannot be encoded.
    #[error("the picture `{chart}` cannot be turned into a PNG: {source}")]
    Encode {
        /// Name of the chart.
        chart: String,
        /// The encoder's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_two_numbers_within_their_ranges() {
        let size: Size = "900x600".parse().unwrap();
        assert_eq!((size.width(), size.height()), (900.0, 600.0));
        for text in ["900", "900*600", "900x", "x600", "-900x600", "900x600x3", "70000x600"] {
            assert_eq!(text.parse::<Size>(), Err(SizeError::Form), "{text}");
        }
        let said = |text: &str| text.parse::<Size>().unwrap_err().to_string();
        assert_eq!(said("479x600"), "a width of 479 points is not possible: 480 to 4000 are");
        assert_eq!(said("900x5000"), "a height of 5000 points is not possible: 200 to 4000 are");
    }
}
