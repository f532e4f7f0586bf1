//! Where records are read from.
