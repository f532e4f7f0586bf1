// The functions of one set, in a list.
#include "row_set.h"

namespace torch_dist::EXPCTL_SET {

namespace {

size_t scratch(const Rows& r) {
  const size_t joins = join_scratch(r), convolutions = convolution_scratch(r);
  return joins > convolutions ? joins : convolutions;
}

} // namespace

extern const RowKernelsOf<real> kernels;
const RowKernelsOf<real> kernels = {scratch, convolve, combine, combine_backward, convolve_backward, gather, dot, lanes};

} // namespace torch_dist::EXPCTL_SET
