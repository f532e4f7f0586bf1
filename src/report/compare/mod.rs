//! Jobs side by side: tables of comparable rows, differences of modes, published figures, gates.

mod comparison;
mod decomposition;
mod gate;
mod published;
mod published_breakdown;
mod remarks;
mod render;

pub use comparison::{CompareError, Comparison, Group, rows_of};
pub use decomposition::{Decomposed, Overlap, StepPart};
pub use gate::{Gate, GateError, GateResult};
pub use published::{Published, RepeatedRow};
pub use published_breakdown::{BreakdownBeside, MeasuredComponent, MeasuredComponents};
pub use render::Format;
