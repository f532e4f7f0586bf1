#pragma once
// What the files of the row kernels share. Each is compiled once for each set (EXPCTL_SET), into a namespace of its own.
#include "activations.h"
#include "row_kernels.h"
#include "vectors.h"

namespace torch_dist::EXPCTL_SET {

using Rows = RowsOf<real>;
using Gather = GatherOf<real>;

size_t convolution_scratch(const Rows& r);
size_t join_scratch(const Rows& r);
void convolve(const Rows& r, int64_t first, int64_t last, real* scratch, double* sums);
void convolve_backward(const Rows& r, int64_t first, int64_t last, real* scratch, real* d, double* gradients);
void combine(const Rows& r, int64_t first, int64_t last, real* scratch, real* joined);
void combine_backward(
    const Rows& r, int64_t first, int64_t last, real* scratch, const real* d_joined, real* d, double* gradients, double* sums);
void gather(const Gather& g);
double dot(const real* a, const real* b, int64_t count);

inline int pairs_of(const Rows& r) {
  return r.join == Join::pairwise ? r.types * (r.types + 1) / 2 : 0;
}

// Places of a layer's parameters in their list.
inline int of_type(const Rows& r, int type) {
  return type * (2 * r.linears + 2);
}
inline int of_pair(const Rows& r, int pair) {
  return of_type(r, r.types) + 4 * pair;
}
inline int of_scorer(const Rows& r) {
  return of_pair(r, pairs_of(r));
}

inline int rows_of_block(int64_t at, int64_t last) {
  return last - at < lanes ? (int)(last - at) : lanes;
}

} // namespace torch_dist::EXPCTL_SET
