//! Finding the period with which batches are slow, and following it where its phase slips.
//!
//! Invariant: nothing here looks at times other than through their ranks in a window, so no tail is too heavy, and under
//! exchangeable batches the statistic does not depend on their distribution.

mod lags;
mod scores;
mod search;
mod track;

pub use lags::{Correlator, Lags, WINDOW};
pub use search::{ALPHA, Found, LONGEST, longest_tried, search};
pub use track::Track;
