//! Models over the rows of an array. Invariants: a batch is read where it lies, dense or CSR, and both forms of the same
//! rows give the same outputs but for rounding; outputs are a value for each class, float32 `[B, classes]`.

#[cfg(test)]
mod cases;
mod inputs;
mod mlp;
mod row_batch;
mod tokens;
mod transformer;

pub use inputs::{ArrayInputs, ValueInputs};
pub use mlp::{Mlp, MlpConfig};
pub use row_batch::RowBatch;
pub use tokens::Tokens;
pub use transformer::{Transformer, TransformerConfig};
