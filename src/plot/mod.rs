//! Pictures: what is drawn, and how it becomes a file.
//!
//! Invariant: a chart holds data and words only; colours and sizes are chosen where it is drawn.

mod chart;

pub use chart::{Axis, Bar, Cell, Chart, Layer, Panel, Point, Scale};
