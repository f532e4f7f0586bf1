#pragma once
#include "errors.h"
#include "rust/cxx.h"

#include <cstddef>
#include <cstdint>

namespace torch_dist {

// The join of a graph layer's edge types by pairs; src/pairwise_join.rs says what it computes. Takes and returns addresses of
// `at::Tensor`; the returned one belongs to the caller. `parameters`: first, first bias, second, second bias, scored, scored
// bias, scorer, scorer bias.
size_t pairwise_join(
    size_t types, size_t mean, size_t mean_score, rust::Slice<const size_t> parameters, int64_t rows_at_once);

} // namespace torch_dist
