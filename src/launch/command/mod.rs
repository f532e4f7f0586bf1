//! A program of the user's as the ranks of a trial (`worker.command`): started without a shell, watched over, and written down
//! as `expctl-worker` writes down its own steps.
//!
//! A supervisor is started where `expctl-worker` would be, once for each rank. It meets the others at rank 0's, starts the
//! program, reads what that writes to `EXPCTL_SOCKET`, and ends everything that is left of it.

mod hub;
mod judgement;
mod message;
mod peers;
mod port;
mod processes;
mod program_process;
mod protocol;
mod rank_log;
mod run;
mod socket;
mod supervisor;
mod surroundings;

pub use processes::{adopt, end_all};
pub use run::run_rank;
