#pragma once
#include "row_kernels.h"

namespace torch_dist {

// The row functions for the best instruction set that this processor has; in double precision there is one set. `Real` is
// float or double.
template <typename Real>
const RowKernelsOf<Real>& row_kernels();

// Name of the instruction set for float32.
const char* row_kernels_name();

} // namespace torch_dist
