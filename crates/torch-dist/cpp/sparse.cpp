#include "sparse.h"
#include "borrowed.h"

#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

namespace torch_dist {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// libtorch's own gradient of a CSR product converts the transposed matrix to CSR in every backward pass, which costs
// ten times the product itself. Here both are kept.
struct SparseMatmul : public torch::autograd::Function<SparseMatmul> {
  static at::Tensor forward(
      AutogradContext* ctx, const at::Tensor& dense, const at::Tensor& matrix, const at::Tensor& transposed) {
    ctx->saved_data["transposed"] = transposed;
    return at::mm(matrix, dense);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto transposed = ctx->saved_data["transposed"].toTensor();
    return {at::mm(transposed, gradients[0].contiguous()), at::Tensor(), at::Tensor()};
  }
};

} // namespace

size_t sparse_matmul(size_t matrix, size_t transposed, size_t dense) {
  auto product = SparseMatmul::apply(borrowed(dense), borrowed(matrix), borrowed(transposed));
  return given(std::move(product));
}

} // namespace torch_dist
