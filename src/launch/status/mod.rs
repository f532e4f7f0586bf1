//! The life of a job: where its trials stand now, whichever backend runs them.
//!
//! Invariant: looking never writes, and a trial is called running only if something that runs it was seen.

mod arrays;
mod follow;
mod had;
mod left;
mod lineage;
mod look;
mod pace;
mod state;
mod window;

pub use arrays::arrays;
pub use follow::Follow;
pub use had::Had;
pub use left::estimated_s_left;
pub use lineage::{Attempt, lineage};
pub use look::{Look, look};
pub use pace::{Pace, RankPace};
pub use state::{JobStatus, State, TrialStatus};
pub use window::WINDOW_S;
