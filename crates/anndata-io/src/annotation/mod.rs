//! What is known of rows and columns (obs, var), whatever file it is in.

mod column;
mod frame_columns;
mod values;

pub use column::Column;
pub use frame_columns::FrameColumns;
pub use values::Values;
