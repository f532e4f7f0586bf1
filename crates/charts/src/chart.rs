use serde::Serialize;

/// A picture of one or more panels.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chart {
    /// Stem of its file name, lowercase with `_`: `step_times`.
    pub name: String,
    /// What it shows, as a heading.
    pub title: String,
    /// One sentence for those who do not see it.
    pub alt: String,
    /// Class of the figures, n, and what else a reader must know; stands below the picture.
    pub caption: String,
    /// Panels, in reading order.
    pub panels: Vec<Panel>,
    /// Panels beside each other.
    pub columns: usize,
}

/// One pair of axes with what is drawn between them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Panel {
    /// Heading of the panel; empty where the chart's says it.
    pub title: String,
    /// Axis from left to right.
    pub x: Axis,
    /// Axis from bottom to top.
    pub y: Axis,
    /// What is drawn, the first at the bottom.
    pub layers: Vec<Layer>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Axis {
    /// What it counts, with its unit: `batch time (s)`.
    pub label: String,
    /// How values are spread.
    pub scale: Scale,
    /// Lowest and highest value; none for what the data need.
    pub range: Option<[f64; 2]>,
    /// Names at 0, 1, 2… where the axis has names and no numbers.
    pub names: Vec<String>,
}

/// How values are spread over an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By their logarithm; values must be above 0, others are not drawn.
    Log,
}

/// A point: x, y.
pub type Point = [f64; 2];

/// One set of marks with one colour.
///
/// `colour` counts through the palette. Layers of one chart with the same `name` are one entry of the legend.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Layer {
    /// Points joined in order.
    Line {
        /// Name in the legend.
        name: String,
        /// Place in the palette.
        colour: usize,
        /// The points.
        points: Vec<Point>,
    },
    /// Points by themselves.
    Dots {
        /// Name in the legend.
        name: String,
        /// Place in the palette.
        colour: usize,
        /// The points.
        points: Vec<Point>,
    },
    /// Upright bars; stacked ones start where the one below ends.
    Bars {
        /// Name in the legend.
        name: String,
        /// Place in the palette.
        colour: usize,
        /// The bars.
        bars: Vec<Bar>,
    },
    /// Boxplots: a box from quartile to quartile with a line at the median, and whiskers beyond.
    Boxes {
        /// Name in the legend.
        name: String,
        /// Place in the palette.
        colour: usize,
        /// What the whiskers reach from and to: `1 % to 99 %`.
        whiskers: String,
        /// The boxes.
        boxes: Vec<BoxMark>,
    },
    /// Rectangles whose colour is a value.
    Cells {
        /// What the value is, with its unit.
        name: String,
        /// The rectangles.
        cells: Vec<Cell>,
    },
    /// A line across the panel.
    Rule {
        /// What it marks.
        name: String,
        /// Its height.
        y: f64,
    },
}

/// One bar.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bar {
    /// Where its middle stands.
    pub x: f64,
    /// Its width, in units of x.
    pub width: f64,
    /// Where it starts.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// Interval about its end.
    pub interval: Option<[f64; 2]>,
}

/// One box of a boxplot.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BoxMark {
    /// Where its middle stands.
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

/// One cell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Left and right edge.
    pub x: [f64; 2],
    /// Lower and upper edge.
    pub y: [f64; 2],
    /// Its value.
    pub value: f64,
}

impl Axis {
    /// An axis of numbers, evenly spread, as long as the data need.
    pub fn new(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Linear, range: None, names: Vec::new() }
    }

    /// The same with a logarithmic scale.
    #[must_use]
    pub fn log(mut self) -> Self {
        self.scale = Scale::Log;
        self
    }

    /// The same between two values.
    #[must_use]
    pub fn between(mut self, low: f64, high: f64) -> Self {
        self.range = Some([low, high]);
        self
    }

    /// The same with names at 0, 1, 2….
    #[must_use]
    pub fn named(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.names = names.into_iter().collect();
        self
    }
}
