//! Figures that say how good predictions are. Invariant: they are computed in float64 over whole sets, never averaged over
//! batches or ranks.

mod correlation;
mod figures;
mod gather;

pub use correlation::{pearson, spearman};
pub use figures::{Figures, mean_squared_error};
pub use gather::gather;
