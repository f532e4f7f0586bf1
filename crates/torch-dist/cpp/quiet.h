#pragma once

namespace torch_dist {

// Stop libtorch from printing warnings and stack frames of errors: each error reaches the caller as a value, and its
// message is shown there. TORCH_CPP_LOG_LEVEL, where set, is left to decide.
void quiet();

} // namespace torch_dist
