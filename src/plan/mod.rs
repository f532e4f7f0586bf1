//! Plans: a config expanded into trials with stable ids.
//!
//! Invariant: a trial's id depends on what it runs and on nothing else.

mod cost;
mod expand;
mod id;
mod isolation;
mod models;
mod plan_type;
mod remarks;
mod table;

pub use cost::{Cost, cost};
pub use expand::expand;
pub use id::trial_id;
pub use isolation::{ISOLATED, Isolation, Modes, Point, is_isolation, isolation_path};
pub use models::{VariantModel, models};
pub use plan_type::{Plan, UnknownName};
pub use remarks::remarks;
pub use table::table;
