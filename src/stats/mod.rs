//! Estimates with their uncertainty.
