//! Columns of obs and var, whatever the container.

pub(crate) mod coded_column;
pub(crate) mod column;
pub(crate) mod frame;
