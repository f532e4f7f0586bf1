#pragma once
#include "row_kernels.h"

namespace expctl::dist {

// The row functions for the best instruction set that this processor has, and its name.
const RowKernels& row_kernels();
const char* row_kernels_name();

} // namespace expctl::dist
