#pragma once
#include "errors.h"
#include "rust/cxx.h"

#include <cstddef>

namespace torch_dist {

struct AdamwSettings;

// One step of AdamW in one pass over memory, on the host or on a device. All but `overflow` are addresses of `at::Tensor`, as many of
// each; `overflow`, a number on the device or 0 for none, leaves everything as it is where it is not 0.
void fused_adamw(
    rust::Slice<const size_t> parameters,
    rust::Slice<const size_t> gradients,
    rust::Slice<const size_t> means,
    rust::Slice<const size_t> squares,
    rust::Slice<const size_t> steps,
    const AdamwSettings& settings,
    size_t overflow);

} // namespace torch_dist
