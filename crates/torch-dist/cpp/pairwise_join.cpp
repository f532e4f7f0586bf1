#include "pairwise_join.h"
#include "borrowed.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace torch_dist {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The dtype of sums and weights: float32 for values in 16 bits.
at::ScalarType wide_of(const at::Tensor& values) {
  const auto kind = values.scalar_type();
  return kind == at::kBFloat16 || kind == at::kHalf ? at::kFloat : kind;
}

// T types and P pairs of them, h channels, m hidden channels of a pair, s of the scorer.
struct Parameters {
  at::Tensor first, first_bias, second, second_bias, scored, scored_bias, scorer, scorer_bias;
  int64_t pairs, hidden;

  explicit Parameters(const variable_list& all)
      : first(all[0]), first_bias(all[1]), second(all[2]), second_bias(all[3]), scored(all[4]), scored_bias(all[5]),
        scorer(all[6]), scorer_bias(all[7]), pairs(scored.size(0)), hidden(scored.size(1)) {}
};

// The values of n rows.
struct Rows {
  at::Tensor types;   // [n, T h]
  at::Tensor inner;   // [n, P m], before GELU
  at::Tensor hidden;  // [n, P, m]
  at::Tensor scored;  // [P, n, s], before GELU
  at::Tensor scores_in;  // [P, n, s]
  at::Tensor weights; // [P + 1, n], wide

  Rows(const at::Tensor& all, const at::Tensor& mean_score, const Parameters& p, int64_t begin, int64_t n) {
    types = all.narrow(1, begin, n).transpose(0, 1).reshape({n, all.size(0) * all.size(2)});
    inner = at::addmm(p.first_bias, types, p.first);
    hidden = at::gelu(inner).view({n, p.pairs, p.hidden});
    scored = at::baddbmm(p.scored_bias, hidden.transpose(0, 1), p.scored);
    scores_in = at::gelu(scored);
    const auto scores = at::linear(scores_in, p.scorer, p.scorer_bias).squeeze(-1).to(mean_score.scalar_type());
    weights = at::cat({scores, mean_score.narrow(0, begin, n).unsqueeze(0)}, 0).softmax(0);
  }

  // [n, P, 1], of the dtype of `hidden`.
  at::Tensor pair_weights(const Parameters& p) const {
    return weights.narrow(0, 0, p.pairs).t().to(hidden.scalar_type()).unsqueeze(-1);
  }
};

struct PairwiseJoin : public torch::autograd::Function<PairwiseJoin> {
  // `tensors`: types, mean, its score, and the parameters.
  static at::Tensor forward(AutogradContext* ctx, at::TensorList tensors, int64_t rows_at_once) {
    RECORD_FUNCTION("expctl::pairwise_join", std::vector<c10::IValue>{});
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const at::Tensor &types = tensors[0], &mean = tensors[1], &mean_score = tensors[2];
    const Parameters p({tensors.begin() + 3, tensors.end()});
    const int64_t rows = types.size(1);
    const auto wide = wide_of(types);
    const auto second_bias = p.second_bias.to(wide);
    auto joined = at::empty({rows, types.size(2)}, types.options().dtype(wide));
    for (int64_t begin = 0; begin < rows; begin += rows_at_once) {
      const int64_t n = std::min(rows_at_once, rows - begin);
      const Rows r(types, mean_score, p, begin, n);
      const auto weighted = (r.hidden * r.pair_weights(p)).view({n, p.pairs * p.hidden});
      auto to = joined.narrow(0, begin, n);
      at::addcmul_out(
          to, at::addmm(at::mm(weighted, p.second).to(wide), r.weights.narrow(0, 0, p.pairs).t(), second_bias),
          r.weights.select(0, p.pairs).unsqueeze(1), mean.narrow(0, begin, n));
    }
    ctx->save_for_backward(tensors.vec());
    ctx->saved_data["rows_at_once"] = rows_at_once;
    return joined;
  }

  // The values between are computed again, a part of the rows at a time, so that none of them is stored for all rows.
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    RECORD_FUNCTION("expctl::pairwise_join_backward", std::vector<c10::IValue>{});
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &types = saved[0], &mean = saved[1], &mean_score = saved[2];
    const Parameters p({saved.begin() + 3, saved.end()});
    const int64_t rows = types.size(1), rows_at_once = ctx->saved_data["rows_at_once"].toInt();
    const auto wide = wide_of(types);
    const auto kind = types.scalar_type();
    const auto d_joined = gradients[0].to(wide);
    const auto second_bias = p.second_bias.to(wide);
    const auto ones = at::ones({1, p.hidden}, types.options());
    auto d_types = at::empty_like(types, at::MemoryFormat::Contiguous);
    auto d_mean = at::empty_like(mean, at::MemoryFormat::Contiguous);
    auto d_mean_score = at::empty_like(mean_score, at::MemoryFormat::Contiguous);
    variable_list sums; // of the parameters
    for (size_t i = 3; i < saved.size(); i++)
      sums.push_back(at::zeros(saved[i].sizes(), saved[i].options().dtype(wide)));

    for (int64_t begin = 0; begin < rows; begin += rows_at_once) {
      const int64_t n = std::min(rows_at_once, rows - begin);
      const Rows r(types, mean_score, p, begin, n);
      const auto d = d_joined.narrow(0, begin, n), d_kind = d.to(kind), mean_here = mean.narrow(0, begin, n);
      const auto pair_weights = r.pair_weights(p);
      const auto of_pairs = r.weights.narrow(0, 0, p.pairs);

      // joined = Σ over pairs of weight · (hidden · second + second bias) + weight · mean.
      const auto d_weighted = at::mm(d_kind, p.second.t()).view({n, p.pairs, p.hidden});
      const auto by_hidden = at::linear((d_weighted * r.hidden).view({n * p.pairs, p.hidden}), ones);
      const auto d_pair_weights = at::addmm(by_hidden.view({n, p.pairs}).to(wide), d, second_bias.t());
      const auto d_weights = at::cat({d_pair_weights.t(), (d * mean_here).sum(1).unsqueeze(0)}, 0);
      sums[2] += at::mm((r.hidden * pair_weights).view({n, p.pairs * p.hidden}).t(), d_kind);
      sums[3] += at::mm(of_pairs, d);
      d_mean.narrow(0, begin, n).copy_(d * r.weights.select(0, p.pairs).unsqueeze(1));

      // weights = softmax(scores); score = GELU(scored) · scorer + scorer bias.
      const auto d_scores = at::_softmax_backward_data(d_weights, r.weights, 0, wide);
      d_mean_score.narrow(0, begin, n).copy_(d_scores.select(0, p.pairs));
      const auto d_pair_scores = d_scores.narrow(0, 0, p.pairs);
      const auto d_scores_kind = d_pair_scores.to(kind);
      sums[6] += at::mm(d_scores_kind.reshape({1, p.pairs * n}), r.scores_in.view({p.pairs * n, -1}));
      sums[7] += d_pair_scores.sum();
      const auto d_scored = at::gelu_backward(d_scores_kind.unsqueeze(-1) * p.scorer.unsqueeze(0), r.scored);
      sums[4] += at::bmm(r.hidden.permute({1, 2, 0}), d_scored);
      sums[5] += d_scored.sum(at::IntArrayRef{1}, true, wide);

      // hidden = GELU(types · first + first bias).
      const auto d_hidden = d_weighted * pair_weights;
      d_hidden.transpose(0, 1).baddbmm_(d_scored, p.scored.transpose(1, 2));
      const auto d_inner = at::gelu_backward(d_hidden.view({n, p.pairs * p.hidden}), r.inner);
      sums[0] += at::mm(r.types.t(), d_inner);
      sums[1] += d_inner.sum(at::IntArrayRef{0}, false, wide);
      const auto d_rows = at::mm(d_inner, p.first.t()).view({n, types.size(0), types.size(2)});
      d_types.narrow(1, begin, n).copy_(d_rows.transpose(0, 1));
    }

    variable_list out{d_types, d_mean, d_mean_score};
    for (size_t i = 0; i < sums.size(); i++) out.push_back(sums[i].to(saved[i + 3].scalar_type()));
    out.emplace_back(); // rows_at_once has none
    return out;
  }
};

void check(const at::Tensor& types, const at::Tensor& mean, const at::Tensor& mean_score, const variable_list& all) {
  TORCH_CHECK(all.size() == 8, "eight parameters join pairs, not ", all.size());
  TORCH_CHECK(types.dim() == 3, "types have to be [types, rows, channels]");
  const int64_t t = types.size(0), rows = types.size(1), h = types.size(2), pairs = t * (t + 1) / 2;
  TORCH_CHECK(all[4].dim() == 3 && all[4].size(0) == pairs, "there are ", pairs, " pairs of ", t, " types");
  const int64_t m = all[4].size(1), s = all[4].size(2);
  const std::vector<std::vector<int64_t>> shapes{
      {t * h, pairs * m}, {pairs * m}, {pairs * m, h}, {pairs, h}, {pairs, m, s}, {pairs, 1, s}, {1, s}, {1}};
  for (size_t i = 0; i < shapes.size(); i++)
    TORCH_CHECK(all[i].sizes() == at::IntArrayRef(shapes[i]) && all[i].scalar_type() == types.scalar_type(),
        "parameter ", i, " of the pairs has to be ", at::IntArrayRef(shapes[i]), " and of the dtype of the types");
  TORCH_CHECK(mean.sizes() == at::IntArrayRef({rows, h}) && mean_score.sizes() == at::IntArrayRef({rows}) &&
          mean.scalar_type() == wide_of(types) && mean_score.scalar_type() == wide_of(types),
      "the mean has to be [rows, channels] and its score [rows], float32 or as the types");
}

} // namespace

size_t pairwise_join(
    size_t types, size_t mean, size_t mean_score, rust::Slice<const size_t> parameters, int64_t rows_at_once) {
  variable_list all{borrowed(types), borrowed(mean), borrowed(mean_score)};
  for (const size_t address : parameters) all.push_back(borrowed(address));
  check(all[0], all[1], all[2], {all.begin() + 3, all.end()});
  TORCH_CHECK(rows_at_once > 0, "rows_at_once has to be positive");
  auto joined = PairwiseJoin::apply(at::TensorList(all), rows_at_once);
  return given(std::move(joined));
}

} // namespace torch_dist
