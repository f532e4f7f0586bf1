// Pairwise interaction: an MLP for each pair of edge types, weighed by scores.
#include "row_block.h"

namespace torch_dist::EXPCTL_SET {

void weigh(const Rows& r, const Buffers& b, bool backward) {
  const int h = r.hidden, inner = r.pair_hidden, q = r.scorer_hidden, pairs = pairs_of(r);
  const real* const* s = r.parameters + of_scorer(r);
  for (int i = 0, pair = 0; i < r.types; i++) {
    for (int j = i; j < r.types; j++, pair++) {
      const real* const* p = r.parameters + of_pair(r, pair);
      real* hidden = b.inner + (size_t)pair * inner * lanes;
      linear(p[0], 2 * h, p[1], b.x + (size_t)i * h * lanes, hidden, h, inner);
      linear(p[0] + h, 2 * h, nullptr, b.x + (size_t)j * h * lanes, hidden, h, inner, true);
      if (backward)
        gelu_block(hidden, b.slope_inner + (size_t)pair * inner * lanes, inner);
      else
        gelu_block(hidden, inner);
      linear(p[2], inner, p[3], hidden, b.options + (size_t)pair * h * lanes, inner, h);
    }
  }
  vec* mean = vecs(b.options + (size_t)pairs * h * lanes);
  for (int i = 0; i < h * vectors; i++) {
    vec sum = {};
    for (int t = 0; t < r.types; t++) sum += vecs(b.x)[(size_t)t * h * vectors + i];
    mean[i] = sum / (real)r.types;
  }
  for (int o = 0; o <= pairs; o++) {
    real* hidden = b.scorer + (size_t)o * q * lanes;
    linear(s[0], h, s[1], b.options + (size_t)o * h * lanes, hidden, h, q);
    if (backward)
      gelu_block(hidden, b.slope_scorer + (size_t)o * q * lanes, q);
    else
      gelu_block(hidden, q);
    linear(s[2], q, s[3], hidden, b.scores + (size_t)o * lanes, q, 1);
  }
  vec* scores = vecs(b.scores);
  for (int v = 0; v < vectors; v++) {
    vec largest = scores[v], sum = {};
    for (int o = 1; o <= pairs; o++) largest = larger(largest, scores[o * vectors + v]);
    for (int o = 0; o <= pairs; o++) {
      const vec e = exponential(scores[o * vectors + v] - largest);
      scores[o * vectors + v] = e, sum += e;
    }
    for (int o = 0; o <= pairs; o++) scores[o * vectors + v] /= sum;
  }
}

void weigh_backward(const Rows& r, const Buffers& b, double* gradients) {
  const int h = r.hidden, inner = r.pair_hidden, q = r.scorer_hidden, pairs = pairs_of(r), s = of_scorer(r);
  auto gradient = [&](int parameter) { return gradients + r.offsets[parameter]; };
  const vec* dz = vecs(b.d_joined);
  // The gradient by a score is w (dz · option − common), common = Σ w (dz · option).
  const vec* weights = vecs(b.scores);
  vec common[vectors] = {};
  for (int o = 0; o <= pairs; o++)
    for (int v = 0; v < vectors; v++) {
      vec dot = {};
      for (int c = 0; c < h; c++) dot += dz[c * vectors + v] * vecs(b.options)[((size_t)o * h + c) * vectors + v];
      common[v] += weights[o * vectors + v] * dot;
    }
  vec* dx = vecs(b.dx);
  for (int i = 0; i < r.types * h * vectors; i++) dx[i] = vec{};
  auto option_backward = [&](int o) {
    const real* option = b.options + (size_t)o * h * lanes;
    vec d_score[vectors];
    for (int v = 0; v < vectors; v++) {
      vec dot = {};
      for (int c = 0; c < h; c++) dot += dz[c * vectors + v] * vecs(option)[c * vectors + v];
      d_score[v] = weights[o * vectors + v] * (dot - common[v]);
    }
    const real* hidden = b.scorer + (size_t)o * q * lanes;
    linear_weights((const real*)d_score, hidden, gradient(s + 2), q, gradient(s + 3), q, 1);
    vec* da = vecs(b.d_inner);
    const vec* slopes = vecs(b.slope_scorer + (size_t)o * q * lanes);
    for (int c = 0; c < q; c++)
      for (int v = 0; v < vectors; v++)
        da[c * vectors + v] = r.parameters[s + 2][c] * d_score[v] * slopes[c * vectors + v];
    linear_weights(b.d_inner, option, gradient(s), h, gradient(s + 1), h, q);
    vec* d_option = vecs(b.d_option);
    for (int i = 0; i < h * vectors; i++) d_option[i] = weights[o * vectors + i % vectors] * dz[i];
    linear_input(r.parameters[s], h, b.d_inner, b.d_option, h, q, true);
  };
  for (int i = 0, pair = 0; i < r.types; i++) {
    for (int j = i; j < r.types; j++, pair++) {
      option_backward(pair);
      const int p = of_pair(r, pair);
      const real* hidden = b.inner + (size_t)pair * inner * lanes;
      linear_weights(b.d_option, hidden, gradient(p + 2), inner, gradient(p + 3), inner, h);
      linear_input(r.parameters[p + 2], inner, b.d_option, b.d_inner, inner, h, false);
      vec* d = vecs(b.d_inner);
      const vec* slopes = vecs(b.slope_inner + (size_t)pair * inner * lanes);
      for (int k = 0; k < inner * vectors; k++) d[k] *= slopes[k];
      const size_t one = (size_t)i * h * lanes, two = (size_t)j * h * lanes;
      linear_weights(b.d_inner, b.x + one, gradient(p), 2 * h, gradient(p + 1), h, inner);
      linear_weights(b.d_inner, b.x + two, gradient(p) + h, 2 * h, nullptr, h, inner);
      linear_input(r.parameters[p], 2 * h, b.d_inner, b.dx + one, h, inner, true);
      linear_input(r.parameters[p] + h, 2 * h, b.d_inner, b.dx + two, h, inner, true);
    }
  }
  option_backward(pairs);
  for (int t = 0; t < r.types; t++)
    for (int i = 0; i < h * vectors; i++) dx[(size_t)t * h * vectors + i] += vecs(b.d_option)[i] / (real)r.types;
}

} // namespace torch_dist::EXPCTL_SET
