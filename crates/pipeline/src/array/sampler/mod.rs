//! Which row of an array comes when, on which rank. Invariant: every batch is a function of the settings, the data, the seed,
//! epoch, rank and world size alone, and can be asked for without those before it.

mod alias;
mod chunks;
mod classes;
mod entropy;
mod permutation;
mod philox;
mod plan;
mod quality;
mod row_sampler;

pub use alias::AliasTable;
pub(crate) use chunks::{BlockKey, BlockOrder, ChunkSampler};
pub use classes::ClassTable;
pub use entropy::expected_entropy;
pub use permutation::Permutation;
pub(crate) use plan::Plan;
pub use quality::ShuffleMeter;
pub use row_sampler::{RowSampler, Sharding};
