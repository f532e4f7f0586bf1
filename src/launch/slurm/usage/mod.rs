//! What Slurm measured of each attempt (`slurm.json`): nodes, times, memory, exit codes.
//!
//! Invariant: it only ever adds to the ledger. A Slurm that does not answer, or knows nothing, costs the figures and nothing else.

mod collect;
mod match_tries;
mod sacct;
mod scontrol;
mod values;
