//! A module that somebody brought: TorchScript from a file. Invariants: its parameters and buffers are in the `VarStore`
//! under their own names, in the memory that the module computes with; what does not fit is an error that names the file.

mod arguments;
mod script;

pub use script::Script;
