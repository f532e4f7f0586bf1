//! The ledger, read back: measured jobs and published ones.
