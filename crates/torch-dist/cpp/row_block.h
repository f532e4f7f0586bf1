#pragma once
// A block of rows on its way from what the convolutions made to the joined rows.
#include "row_set.h"

namespace torch_dist::EXPCTL_SET {

// Buffers of a block, one after the other, each [channels, lanes].
struct Buffers {
  real *x, *slope_x, *normed, *dx;        // [T · H]
  real *inner, *slope_inner;              // [pairs · pair_hidden]
  real* options;                          // [(pairs + 1) · H]
  real *scorer, *slope_scorer, *scores;   // [(pairs + 1) · scorer_hidden], [pairs + 1]
  real *d_joined, *d_option, *d_inner;    // [H], [H], [pair_hidden or scorer_hidden]
  real *deviation;                        // [T]: 1 / standard deviation of each row, with norms of nodes
  size_t numbers;                         // of all of them
};

// In the memory `at`; where that is null, only their size is of use.
inline Buffers buffers(const Rows& r, real* at) {
  size_t numbers = 0;
  auto take = [&](int channels) {
    real* here = at ? at + numbers : nullptr;
    numbers += (size_t)channels * lanes;
    return here;
  };
  const int pairs = pairs_of(r), all = r.types * r.hidden, options = pairs ? pairs + 1 : 0;
  const int widest = r.pair_hidden > r.scorer_hidden ? r.pair_hidden : r.scorer_hidden;
  Buffers b;
  b.x = take(all), b.slope_x = take(all), b.normed = take(all), b.dx = take(all);
  b.inner = take(pairs * r.pair_hidden), b.slope_inner = take(pairs * r.pair_hidden);
  b.options = take(options * r.hidden);
  b.scorer = take(options * r.scorer_hidden), b.slope_scorer = take(options * r.scorer_hidden), b.scores = take(options);
  b.d_joined = take(r.hidden), b.d_option = take(r.hidden), b.d_inner = take(widest);
  b.deviation = take(r.types);
  b.numbers = numbers;
  return b;
}

// Options of a block with their weights in `scores`. With `backward` also slopes.
void weigh(const Rows& r, const Buffers& b, bool backward);
// From the gradient by the joined rows (in `d_joined`) to that by what was joined (in `dx`).
void weigh_backward(const Rows& r, const Buffers& b, double* gradients);

} // namespace torch_dist::EXPCTL_SET
