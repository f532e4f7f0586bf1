#include "autocast.h"

#include <ATen/autocast_mode.h>

namespace torch_dist {

bool set_autocast(bool cuda, bool enabled) {
  const auto device = cuda ? at::kCUDA : at::kCPU;
  const bool before = at::autocast::is_autocast_enabled(device);
  if (enabled) {
    at::autocast::set_autocast_dtype(device, at::kBFloat16);
  }
  at::autocast::set_autocast_enabled(device, enabled);
  return before;
}

void enter_autocast() {
  at::autocast::increment_nesting();
}

void leave_autocast() {
  if (at::autocast::decrement_nesting() == 0) {
    at::autocast::clear_cache();
  }
}

} // namespace torch_dist
