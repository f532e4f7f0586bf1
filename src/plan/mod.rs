//! Plans: a config expanded into trials with stable ids.
