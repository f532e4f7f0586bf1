#pragma once
#include "errors.h"
#include "rust/cxx.h"

#include <cstddef>

namespace torch_dist {

// Euclidean norm of each tensor, as one vector; at least one tensor, all of one type and device.
size_t norms(rust::Slice<const size_t> tensors);

// Multiplies each tensor, in place, by `factor`, a number on their device.
void scale(rust::Slice<const size_t> tensors, size_t factor);

} // namespace torch_dist
