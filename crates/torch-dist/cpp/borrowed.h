#pragma once
#include "rust/cxx.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace torch_dist {

// Tensors cross the bridge as the address of the `at::Tensor` that tch owns; each call borrows them.
inline at::Tensor& borrowed(size_t address) {
  return *reinterpret_cast<at::Tensor*>(address);
}

inline std::vector<at::Tensor> borrowed(rust::Slice<const size_t> addresses) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(addresses.size());
  for (const auto address : addresses) {
    tensors.push_back(borrowed(address));
  }
  return tensors;
}

// A tensor for Rust, which owns it from then on.
inline size_t given(at::Tensor tensor) {
  return reinterpret_cast<size_t>(new at::Tensor(std::move(tensor)));
}

} // namespace torch_dist
