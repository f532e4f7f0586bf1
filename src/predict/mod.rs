//! What a change would bring: recorded steps, replayed with the change in a model of the pipeline.
//!
//! | Module | Content |
//! |---|---|
//! | `replay` | a measured run as a `pipeline_model::Pipeline`, and the work behind times that were measured on shared processors |
//! | `processors` | the processors that ranks share |
//! | `batch_cost` | how times grow with the samples of a batch |
//! | `edge_index` | what the edge index of each sample costs |
//! | `change` | the changes, and what each does to a replay |
//! | `prediction` | rates with intervals, after the model has reproduced the job itself |
//! | `verified` | predictions beside what was measured of them |
//! | `render` | tables, markdown, CSV, JSON |
//! | `suggestion` | the change that a note proposes |
//!
//! Invariant: a predicted figure is *estimated*, and comes with the error of the model on the job itself. Where that error is too large,
//! or the record lacks what a replay needs, nothing is predicted.

mod batch_cost;
mod change;
mod edge_index;
mod error;
mod prediction;
mod processors;
mod render;
mod replay;
mod suggestion;
mod verified;

pub use error::PredictError;
pub use prediction::{DEFAULT_BOUND, Prediction, Predictions};
pub use render::verified_text;
pub use suggestion::next_change;
pub use verified::{TrackRecord, Verified};
