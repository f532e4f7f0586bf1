//! What every rank does, whatever runs in it: `expctl-worker`, or a program of the user's.

mod cgroup;
mod hardware;
mod last_words;
mod place;
mod rank_env;
mod table;
mod variables;

pub use cgroup::group_memory;
pub use hardware::{free_memory, hardware, peak_resident};
pub use last_words::LastWords;
pub use place::{Place, meeting_place};
pub use rank_env::{RankEnv, RankEnvError};
pub use table::write_table;
pub use variables::{share_gpus, variables};
