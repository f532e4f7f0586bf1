#pragma once
#include <ATen/core/Tensor.h>

namespace torch_dist {

// The kind of tensor that holds these numbers, float or double.
template <typename Real>
constexpr at::ScalarType kind_of = c10::CppTypeToScalarType<Real>::value;

inline bool in_double(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble;
}

} // namespace torch_dist
