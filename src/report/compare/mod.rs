//! Jobs side by side: rows, groups of rows that may be compared, and what may be said of them.

mod baseline;
mod comparison;
mod differences;
mod learning;
mod remarks;
mod render;
mod row;

pub use baseline::baselines;
pub use comparison::{Comparison, Group, Line};
pub use differences::{Difference, differences};
pub use learning::Learning;
pub use render::Format;
pub use row::{Class, Row, measured_rows, rows_of};
