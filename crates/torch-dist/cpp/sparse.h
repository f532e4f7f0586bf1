#pragma once
#include "errors.h"
#include "rust/cxx.h"

#include <cstddef>

namespace torch_dist {

// `matrix` times `dense`, whose gradient is `transposed` times the gradient of the product. Takes and returns addresses
// of `at::Tensor`; the returned one belongs to the caller.
size_t sparse_matmul(size_t matrix, size_t transposed, size_t dense);

} // namespace torch_dist
