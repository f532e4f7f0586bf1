//! Every kind of chart, drawn through the public interface.

#![expect(clippy::unwrap_used, reason = "a test")]

mod charts;
