#pragma once
#include "errors.h"
#include "rust/cxx.h"

namespace torch_dist {

// Turn autocast to bfloat16 on or off for the operations that this thread runs from here on; returns what it was.
// `cuda` is the GPU's, else the CPU's.
bool set_autocast(bool cuda, bool enabled);

// Into and out of a region: at the end of the outermost one libtorch forgets the copies of parameters that it made.
void enter_autocast();
void leave_autocast();

} // namespace torch_dist
