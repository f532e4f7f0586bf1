#pragma once
#include "errors.h"
#include "rust/cxx.h"

#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace torch_dist {

// Which rows lead into which, for each edge type, with the transposed lists for the way back.
class NeighboursHandle {
 public:
  struct Lists;
  explicit NeighboursHandle(c10::intrusive_ptr<Lists> lists);
  ~NeighboursHandle();
  void add_type(rust::Slice<const int64_t> sources, rust::Slice<const int64_t> targets) const;

 private:
  friend size_t sum_neighbours(const NeighboursHandle&, size_t, size_t, size_t, size_t);
  c10::intrusive_ptr<Lists> lists_;
};

std::unique_ptr<NeighboursHandle> neighbours(int64_t rows);

// Tensors are addresses of `at::Tensor`; 0 stands for none, and those returned belong to the caller.

// `x` [N, ..., H] and `eps` [T]: [T, N, ..., H], the sums over sources plus (1 + eps) times the row itself, less what the
// removed edges brought: row `into[i]` of [T · N · ..., H] loses row `from[i]` of `x`.
size_t sum_neighbours(const NeighboursHandle& neighbours, size_t x, size_t eps, size_t into, size_t from);

// `sums` [T, N, H] with D more rows behind, copies of the rows `copied` [D], less what removed edges brought.
size_t sums_of_differing(size_t sums, size_t x, size_t copied, size_t into, size_t from);

// What a layer does to each row by itself: [T, R, H] to [R, H]. `shape`: linears, pair hidden, scorer hidden, join, node
// norm. `weights`: how many rows each stands for.
size_t layer_rows(size_t sums, rust::Slice<const size_t> parameters, size_t weights, rust::Slice<const int64_t> shape, double eps);

// Which instruction set the rows are worked on with.
rust::String row_instructions();

} // namespace torch_dist
