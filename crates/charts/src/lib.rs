//! Charts as SVG and PNG.
//!
//! A [`Chart`] holds data and words; colours, sizes and positions are chosen where it is drawn. [`svg()`] gives a picture that follows
//! the light or dark scheme of its reader, [`png()`] the same for readers without SVG, [`svg_in_page`] one for an HTML page with
//! [`page_style`].
//!
//! ```
//! use expctl_charts::{Axis, Chart, Layer, Panel, svg};
//!
//! let line = Layer::Line { name: "loss".into(), colour: 0, points: vec![[1.0, 0.9], [2.0, 0.5], [3.0, 0.4]] };
//! let panel = Panel { title: String::new(), x: Axis::new("epoch"), y: Axis::new("training loss"), layers: vec![line] };
//! let chart = Chart {
//!     name: "loss".into(),
//!     title: "Training".into(),
//!     alt: "Training loss over the epochs.".into(),
//!     caption: "Measured, one run.".into(),
//!     panels: vec![panel],
//!     columns: 1,
//! };
//! assert!(svg(&chart, None)?.starts_with("<svg"));
//! # Ok::<(), expctl_charts::ChartError>(())
//! ```

mod chart;
mod layout;
mod marks;
mod scale;
mod svg;
mod theme;

pub use chart::{Axis, Bar, BoxMark, Chart, ChartError, Layer, Panel, Point, Scale, ShadedCell, Size, SizeError};
pub use svg::{chart_files, png, svg, svg_in_page};
pub use theme::page_style;
