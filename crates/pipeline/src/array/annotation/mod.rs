//! What is known of rows and columns (obs, var), whatever file it is in.

mod column;
mod frame_columns;
mod values;

pub(in crate::array) use column::Column;
pub(in crate::array) use frame_columns::FrameColumns;
pub(in crate::array) use values::Values;
