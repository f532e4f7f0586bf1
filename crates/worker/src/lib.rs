//! One rank of a trial: connects to its peers, loads batches, steps the model, times every stage.

mod connect;
mod environment;
mod last_words;
pub mod models;
mod monitor;
mod rank_env;
mod run;
mod stop;
mod trainer;

pub use rank_env::{RankEnv, RankEnvError};
pub use run::run;
