//! The fastest settings of a variant, without running the whole grid: rounds of an ordinary job each, in which the points of `[search]` race.
//!
//! | Module | Content |
//! |---|---|
//! | `race` | which points run next, which are out, when it is over: from measurements alone, without any file |
//! | `history` | the rounds that a ledger has, as the race takes them |
//! | `result` | what came of a race: its choice, gains, all points, cost |
//! | `render` | tables, markdown, CSV, JSON |
//! | `lock` | one process at a time runs a search |
//!
//! Invariant: the state of a search is in the jobs of its rounds and nowhere else. A search that was interrupted goes on from what the ledger
//! has, and measures nothing twice.

mod history;
mod lock;
mod race;
mod render;
mod result;

pub use history::{SearchHistory, entrant, has_ended, race_round};
pub use lock::SearchLock;
pub use race::{BASELINE, NextMove, Race, RaceError, RaceOptions, RoundPlan};
pub use render::quoted;
pub use result::{RefusedRow, SearchFacts, SearchResult, SearchedPoint};
