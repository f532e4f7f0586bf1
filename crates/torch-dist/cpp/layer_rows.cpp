#include "borrowed.h"
#include "kernel_choice.h"
#include "numbers.h"
#include "shared_layer.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <functional>
#include <vector>

namespace torch_dist {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A range of whole blocks for each thread, and memory of its own; results of ranges are added up in their order, so that a
// given number of threads gives the same bits each time.
struct Ranges {
  int64_t rows, count, step;
  Ranges(int64_t rows, int64_t block) : rows(rows) {
    const int64_t blocks = (rows + block - 1) / block;
    count = std::max<int64_t>(1, std::min<int64_t>(at::get_num_threads(), blocks));
    step = (blocks + count - 1) / count * block;
  }
  void each(const std::function<void(int64_t range, int64_t first, int64_t last)>& work) const {
    at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        const int64_t first = std::min(i * step, rows);
        work(i, first, std::min(first + step, rows));
      }
    });
  }
};

// Of `ranges` pieces of `count` numbers, piece i, which starts at a multiple of 64 bytes.
template <typename Real>
struct Pieces {
  at::Tensor memory;
  int64_t each;
  Pieces(int64_t ranges, int64_t count) : each((count + 15) / 16 * 16) {
    memory = at::empty({ranges * each}, at::TensorOptions().dtype(kind_of<Real>));
  }
  Real* of(int64_t range) const {
    return memory.data_ptr<Real>() + range * each;
  }
};

template <typename Real>
struct Problem {
  RowsOf<Real> rows{};
  std::vector<const Real*> parameters;
  std::vector<int64_t> offsets;
  int64_t gradient_numbers = 0;
  double elements = 0;
  std::vector<double> mean, scale, deviation, shift, slope;

  Problem(
      const at::Tensor& sums, const variable_list& tensors, const at::Tensor& weights, at::IntArrayRef shape, double eps) {
    rows.types = (int)sums.size(0), rows.rows = sums.size(1), rows.hidden = (int)sums.size(2);
    rows.linears = (int)shape[0], rows.pair_hidden = (int)shape[1], rows.scorer_hidden = (int)shape[2];
    rows.join = (Join)shape[3], rows.node_norm = shape[4] != 0, rows.eps = (Real)eps;
    rows.inputs = sums.data_ptr<Real>();
    if (weights.numel() > 0) rows.weights = weights.data_ptr<Real>();
    for (const auto& tensor : tensors) {
      parameters.push_back(tensor.data_ptr<Real>());
      offsets.push_back(gradient_numbers);
      gradient_numbers += tensor.numel();
    }
    rows.parameters = parameters.data(), rows.offsets = offsets.data();
    if (weights.numel() > 0) {
      for (int64_t i = 0; i < rows.rows; i++) elements += rows.weights[i];
    } else {
      elements = (double)rows.rows;
    }
    elements *= rows.hidden;
    mean.resize(rows.types), scale.resize(rows.types), deviation.resize(rows.types);
    shift.resize(rows.types), slope.resize(rows.types);
    rows.mean = mean.data(), rows.scale = scale.data(), rows.shift = shift.data(), rows.slope = slope.data();
  }
};

void check(const at::Tensor& sums, const variable_list& parameters, const at::Tensor& weights, at::IntArrayRef shape, at::ScalarType kind) {
  TORCH_CHECK(sums.dim() == 3 && sums.size(2) > 0 && sums.scalar_type() == kind && sums.is_contiguous() && sums.is_cpu(),
      "sums have to be float32 or float64 [types, rows, channels], contiguous, on the host, and to have channels");
  TORCH_CHECK(shape.size() == 5 && shape[0] >= 1, "five numbers describe a layer");
  const int64_t types = sums.size(0), h = sums.size(2), pair = shape[1], scorer = shape[2];
  const bool joins = shape[3] == (int64_t)Join::pairwise;
  std::vector<int64_t> counts;
  for (int64_t t = 0; t < types; t++) {
    for (int64_t l = 0; l < shape[0]; l++) counts.insert(counts.end(), {h * h, h});
    counts.insert(counts.end(), {h, h});
  }
  if (joins) {
    for (int64_t p = 0; p < types * (types + 1) / 2; p++)
      counts.insert(counts.end(), {pair * 2 * h, pair, h * pair, h});
    counts.insert(counts.end(), {scorer * h, scorer, scorer, 1});
  }
  TORCH_CHECK(counts.size() == parameters.size(), "the layer has ", parameters.size(), " parameters, not ", counts.size());
  for (size_t i = 0; i < counts.size(); i++) {
    const auto& p = parameters[i];
    TORCH_CHECK(p.numel() == counts[i] && p.scalar_type() == sums.scalar_type() && p.is_contiguous() && p.is_cpu(),
        "parameter ", i, " of the layer has to have ", counts[i], " elements, of the same kind as the sums");
  }
  if (weights.numel() > 0)
    TORCH_CHECK(weights.scalar_type() == sums.scalar_type() && weights.is_contiguous() && weights.is_cpu() &&
            weights.numel() == sums.size(1),
        "a weight for each row, of the same kind as the sums, on the host");
}

template <typename Real>
struct LayerRows : public torch::autograd::Function<LayerRows<Real>> {
  static at::Tensor forward(
      AutogradContext* ctx, at::TensorList tensors, const at::Tensor& weights, std::vector<int64_t> shape, double eps) {
    RECORD_FUNCTION("expctl::layer_rows", std::vector<c10::IValue>{});
    const at::Tensor& sums = tensors[0];
    const variable_list parameters(tensors.begin() + 1, tensors.end());
    check(sums, parameters, weights, shape, kind_of<Real>);
    Problem<Real> p(sums, parameters, weights, shape, eps);
    RowsOf<Real>& r = p.rows;
    const at::Tensor yields = at::empty_like(sums);
    r.yields = yields.data_ptr<Real>();
    const at::Tensor joined = at::empty({r.rows, r.hidden}, sums.options());
    const RowKernelsOf<Real>& kernels = row_kernels<Real>();
    const Ranges ranges(r.rows, kernels.block);
    const Pieces<Real> scratch(ranges.count, (int64_t)kernels.scratch(r));
    std::vector<double> parts(ranges.count * r.types * 2);
    ranges.each([&](int64_t i, int64_t first, int64_t last) {
      kernels.convolve(r, first, last, scratch.of(i), parts.data() + i * r.types * 2);
    });
    for (int t = 0; t < r.types; t++) {
      double sum = 0, squares = 0;
      for (int64_t i = 0; i < ranges.count; i++)
        sum += parts[(i * r.types + t) * 2], squares += parts[(i * r.types + t) * 2 + 1];
      p.mean[t] = sum / p.elements;
      p.deviation[t] = std::sqrt(std::max(0.0, squares / p.elements - p.mean[t] * p.mean[t]));
      p.scale[t] = 1 / (p.deviation[t] + eps);
    }
    ranges.each([&](int64_t i, int64_t first, int64_t last) {
      kernels.combine(r, first, last, scratch.of(i), joined.data_ptr<Real>());
    });
    variable_list saved{sums, yields, weights};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    ctx->save_for_backward(saved);
    ctx->saved_data["shape"] = shape;
    ctx->saved_data["eps"] = eps;
    ctx->saved_data["mean"] = p.mean;
    ctx->saved_data["deviation"] = p.deviation;
    return joined;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    RECORD_FUNCTION("expctl::layer_rows_backward", std::vector<c10::IValue>{});
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &sums = saved[0], &yields = saved[1], &weights = saved[2];
    const variable_list parameters(saved.begin() + 3, saved.end());
    const double eps = ctx->saved_data["eps"].toDouble();
    Problem<Real> p(sums, parameters, weights, ctx->saved_data["shape"].toIntVector(), eps);
    RowsOf<Real>& r = p.rows;
    r.yields = yields.data_ptr<Real>();
    const auto mean = ctx->saved_data["mean"].toDoubleVector(), deviation = ctx->saved_data["deviation"].toDoubleVector();
    for (int t = 0; t < r.types; t++) {
      p.mean[t] = mean[t], p.deviation[t] = deviation[t];
      p.scale[t] = 1 / (deviation[t] + eps);
    }
    const at::Tensor d_joined = gradients[0].to(kind_of<Real>).contiguous();
    const at::Tensor d_sums = at::empty_like(sums);
    Real* d = d_sums.data_ptr<Real>();
    const RowKernelsOf<Real>& kernels = row_kernels<Real>();
    const Ranges ranges(r.rows, kernels.block);
    const Pieces<Real> scratch(ranges.count, (int64_t)kernels.scratch(r));
    const Pieces<double> by_parameters(ranges.count, p.gradient_numbers);
    by_parameters.memory.zero_();
    std::vector<double> parts(ranges.count * r.types * 2);
    ranges.each([&](int64_t i, int64_t first, int64_t last) {
      kernels.combine_backward(r, first, last, scratch.of(i), d_joined.data_ptr<Real>(), d, by_parameters.of(i),
          parts.data() + i * r.types * 2);
    });
    // y = (x − mean) s with s = 1 / (deviation + eps): dx = s (dy − mean of dy) − s (Σ dy y) (x − mean) / (n deviation).
    for (int t = 0; t < r.types; t++) {
      double sum = 0, with_normed = 0;
      for (int64_t i = 0; i < ranges.count; i++)
        sum += parts[(i * r.types + t) * 2], with_normed += parts[(i * r.types + t) * 2 + 1];
      p.shift[t] = p.scale[t] * sum / p.elements;
      p.slope[t] = p.deviation[t] > 0 ? p.scale[t] * with_normed / (p.elements * p.deviation[t]) : 0;
    }
    ranges.each([&](int64_t i, int64_t first, int64_t last) {
      kernels.convolve_backward(r, first, last, scratch.of(i), d, by_parameters.of(i));
    });
    variable_list out{d_sums};
    for (size_t i = 0; i < parameters.size(); i++) {
      const at::Tensor gradient = at::empty_like(parameters[i]);
      Real* to = gradient.data_ptr<Real>();
      for (int64_t k = 0; k < gradient.numel(); k++) {
        double sum = 0;
        for (int64_t range = 0; range < ranges.count; range++) sum += by_parameters.of(range)[p.offsets[i] + k];
        to[k] = (Real)sum;
      }
      out.push_back(gradient);
    }
    out.resize(out.size() + 3);
    return out;
  }
};

} // namespace

size_t layer_rows(
    size_t sums, rust::Slice<const size_t> parameters, size_t weights, rust::Slice<const int64_t> shape, double eps) {
  variable_list tensors{borrowed(sums)};
  for (const size_t parameter : parameters) tensors.push_back(borrowed(parameter));
  const at::Tensor by_row = weights == 0 ? at::empty({0}) : borrowed(weights);
  const std::vector<int64_t> numbers(shape.begin(), shape.end());
  auto joined = in_double(tensors[0])
      ? LayerRows<double>::apply(at::TensorList(tensors), by_row, numbers, eps)
      : LayerRows<float>::apply(at::TensorList(tensors), by_row, numbers, eps);
  return given(std::move(joined));
}

rust::String row_instructions() {
  return row_kernels_name();
}

} // namespace torch_dist
