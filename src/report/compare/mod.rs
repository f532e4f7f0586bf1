//! Jobs side by side: rows, tables of rows that may be compared, and what may be said of them.

mod baseline;
mod breakdowns;
mod class;
mod comparison;
mod confounds;
mod csv;
mod decomposition;
mod differences;
mod gate;
mod gate_check;
mod learning;
mod line;
mod pool;
mod published;
mod ratio_words;
mod remarks;
mod render;
mod repeated;
mod row;

pub use baseline::baselines;
pub use breakdowns::{BreakdownBeside, MeasuredComponent, MeasuredComponents};
pub use comparison::{Comparison, Group};
pub use confounds::{Confound, class_name, words};
pub use decomposition::{Decomposed, Overlap, Part};
pub use differences::{Difference, besides_the_method, differences, setting_name};
pub use gate::{Gate, GateError};
pub use gate_check::Checked;
pub use learning::Learning;
pub use line::{Line, by_repeat, lines_of_job, samples_ratio};
pub use published::Published;
pub use ratio_words::RatioWords;
pub use render::Format;
pub use repeated::Repeated;
pub use row::{Class, Row, measured_rows, rows_of};
