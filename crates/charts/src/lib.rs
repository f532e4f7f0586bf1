//! Pictures: what is drawn, and how it becomes a file.
//!
//! Invariant: a chart holds data and words only; colours and sizes are chosen where it is drawn.

mod axes;
mod chart;
mod error;
mod layout;
mod legend;
mod marks;
mod pen;
mod raster;
mod save;
mod size;
mod span;
mod svg;
mod text;
mod theme;
mod ticks;

pub use chart::{Axis, Bar, BoxMark, Cell, Chart, Layer, Panel, Point, Scale};
pub use error::PlotError;
pub use raster::{png, png_sized};
pub use save::{Saved, save, save_sized};
pub use size::{Size, SizeError};
pub use svg::{svg, svg_in_page, svg_sized};
pub use theme::page_style;
