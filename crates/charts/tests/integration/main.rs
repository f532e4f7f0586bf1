//! Every kind of chart, drawn through the public interface.

mod charts;
