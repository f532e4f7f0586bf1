//! The kernels of a graph layer on the host, which libtorch does not have: `Neighbours::sums` adds up neighbours, `sums_of_differing` corrects
//! these sums for rows that lack edges, and `layer_rows` treats each row by itself. All have gradients.

use cxx::UniquePtr;
use tch::Tensor;

use crate::DistError;
use crate::ffi::bridge;
use crate::group::address;

/// Edges of several types over N genes, with the transposed lists for the backward pass: 16 B per edge.
pub struct Neighbours {
    handle: UniquePtr<bridge::NeighboursHandle>,
    types: usize,
}

/// Rows that removed edges contributed to sums: row `into[i]` loses row `from[i]`. int64, of the same length.
#[derive(Debug)]
pub struct RemovedRows {
    /// Rows of the sums.
    pub into: Tensor,
    /// Rows to subtract.
    pub from: Tensor,
}

/// Combination of the rows of a layer's edge types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeTypeJoin {
    /// An MLP for each pair of types, weighted by scores.
    Pairwise,
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
}

/// Options of [`layer_rows`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerShape {
    /// Linear layers of each type's MLP.
    pub linears: i64,
    /// Hidden channels of a pair's MLP.
    pub pair_hidden: i64,
    /// Hidden channels of the scorer.
    pub scorer_hidden: i64,
    /// Combination of the edge types.
    pub join: EdgeTypeJoin,
    /// Whether each row is normalised by itself, instead of all rows and channels together.
    pub node_norm: bool,
    /// Added to the variance of a row, or to the standard deviation of all rows.
    pub eps: f64,
}

impl std::fmt::Debug for Neighbours {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Neighbours").field("types", &self.types).finish_non_exhaustive()
    }
}

// SAFETY: only `new` changes the lists; afterwards they are only read.
unsafe impl Send for Neighbours {}

impl Neighbours {
    /// `types` are sources and targets of the edges of each type, genes counted from 0.
    ///
    /// # Errors
    /// A gene does not exist, or the numbers of sources and targets differ.
    pub fn new<'a>(genes: i64, types: impl Iterator<Item = (&'a [i64], &'a [i64])>) -> Result<Self, DistError> {
        bridge::quiet();
        let fail = || DistError::torch("lists of neighbours");
        let handle = bridge::neighbours(genes).map_err(fail())?;
        let mut count = 0;
        for (sources, targets) in types {
            handle.add_type(sources, targets).map_err(fail())?;
            count += 1;
        }
        Ok(Self { handle, types: count })
    }

    /// Number of edge types, T.
    pub const fn num_types(&self) -> usize {
        self.types
    }

    /// For each type, the sum over each row's sources plus (1 + ε) times the row itself, less `removed`: `x` `[N, …, h]` and `eps` `[T]`, both
    /// float32 or both float64, to `[T, N, …, h]`. Rows of h floats are counted over all dimensions before the last one, in the sums as well as
    /// in `x`. Gradients flow into `x` and `eps`.
    ///
    /// # Errors
    /// Shapes or dtypes do not fit, or a removed row does not exist.
    pub fn sums(&self, x: &Tensor, eps: &Tensor, removed: Option<&RemovedRows>) -> Result<Tensor, DistError> {
        let rows = |pick: fn(&RemovedRows) -> &Tensor| removed.map_or(0, |r| address(pick(r)));
        new_tensor(
            "sums of neighbours",
            bridge::sum_neighbours(&self.handle, address(x), address(eps), rows(|r| &r.into), rows(|r| &r.from)),
        )
    }
}

/// Append D rows to `sums` `[T, N, h]` (float32, or all float64), copies of the rows `copied`, int64 `[D]`; then subtract `removed`, rows of
/// `x`, `[N, h]`: to `[T, N + D, h]`. Gradients flow into `sums` and `x`.
///
/// # Errors
/// Shapes or dtypes do not fit, or a row does not exist.
pub fn sums_of_differing(
    sums: &Tensor,
    x: &Tensor,
    copied: &Tensor,
    removed: &RemovedRows,
) -> Result<Tensor, DistError> {
    let RemovedRows { into, from } = removed;
    new_tensor(
        "sums of differing rows",
        bridge::sums_of_differing(address(sums), address(x), address(copied), address(into), address(from)),
    )
}

/// The part of a graph layer that treats each row by itself: MLP, norm and GELU of each edge type, and their join. `sums` `[T, R, h]` to
/// `[R, h]`, all in float32 or all in float64 (which has the base instructions only). `parameters`: for each type W `[h, h]` and b `[h]` of each
/// linear, γ and β `[h]` of the norm; with [`EdgeTypeJoin::Pairwise`] for each pair i ≤ j W `[p, 2h]`, b `[p]`, W `[h, p]`, b `[h]`, and for the
/// scorer W `[q, h]`, b `[q]`, W `[1, q]`, b `[1]`. `weights`, `[R]`: the number of equal rows that each row stands for; norms over all rows
/// count them. The gradient of the result is that of all equal rows together.
///
/// The results of the MLPs, `[T, R, h]`, are the only intermediate values that are stored; the backward pass computes the others again, a block
/// of rows at a time. With a given number of threads the result is the same to the bit each time.
///
/// # Errors
/// Shapes or dtypes do not fit.
pub fn layer_rows(
    sums: &Tensor,
    parameters: &[&Tensor],
    weights: Option<&Tensor>,
    shape: &LayerShape,
) -> Result<Tensor, DistError> {
    let parameters: Vec<usize> = parameters.iter().map(|p| address(p)).collect();
    let join = match shape.join {
        EdgeTypeJoin::Pairwise => 0,
        EdgeTypeJoin::Sum => 1,
        EdgeTypeJoin::Mean => 2,
    };
    let numbers = [shape.linears, shape.pair_hidden, shape.scorer_hidden, join, i64::from(shape.node_norm)];
    new_tensor(
        "rows of a layer",
        bridge::layer_rows(address(sums), &parameters, weights.map_or(0, address), &numbers, shape.eps),
    )
}

/// Name of the instruction set that [`layer_rows`] and [`Neighbours::sums`] run with on this machine: `avx512`, `avx2` or
/// `base`.
pub fn row_instructions() -> String {
    bridge::row_instructions()
}

pub(crate) fn new_tensor(operation: &str, address: Result<usize, cxx::Exception>) -> Result<Tensor, DistError> {
    let address = address.map_err(DistError::torch(operation))?;
    // SAFETY: the bridge returns a new `at::Tensor` that nothing else refers to; tch deletes it.
    Ok(unsafe { Tensor::from_ptr(address as *mut _) })
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;

    #[test]
    fn rows_without_channels_are_an_error() {
        let empty = |sizes: &[i64]| Tensor::zeros(sizes, (Kind::Float, Device::Cpu));
        let shape = LayerShape {
            linears: 1,
            pair_hidden: 1,
            scorer_hidden: 1,
            join: EdgeTypeJoin::Sum,
            node_norm: false,
            eps: 1e-5,
        };
        let rows = layer_rows(&empty(&[1, 4, 0]), &[], None, &shape).unwrap_err().to_string();
        assert!(rows.contains("to have channels"), "{rows}");
        let neighbours = Neighbours::new(4, [([0i64].as_slice(), [1i64].as_slice())].into_iter()).unwrap();
        let sums = neighbours.sums(&empty(&[4, 0]), &empty(&[1]), None).unwrap_err().to_string();
        assert!(sums.contains("rows without channels"), "{sums}");
    }
}
