//! The Slurm backend.
