#include "foreach.h"

#include "group.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/stack.h>

#include <utility>

namespace torch_dist {

size_t norms(rust::Slice<const size_t> tensors) {
  const at::NoGradGuard no_grad;
  auto each = at::stack(at::_foreach_norm(borrowed(tensors), 2));
  return given(std::move(each));
}

void scale(rust::Slice<const size_t> tensors, size_t factor) {
  const at::NoGradGuard no_grad;
  at::_foreach_mul_(borrowed(tensors), borrowed(factor));
}

} // namespace torch_dist
