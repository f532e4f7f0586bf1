// Compiled once for each instruction set, into a namespace of its own (EXPCTL_SET).
#include "row_kernels.h"
#include "vectors.h"

namespace expctl::dist::EXPCTL_SET {

namespace {

int pairs_of(const Rows& r) {
  return r.join == Join::pairwise ? r.types * (r.types + 1) / 2 : 0;
}

// Places of a layer's parameters in their list.
int of_type(const Rows& r, int type) {
  return type * (2 * r.linears + 2);
}
int of_pair(const Rows& r, int pair) {
  return of_type(r, r.types) + 4 * pair;
}
int of_scorer(const Rows& r) {
  return of_pair(r, pairs_of(r));
}

// Buffers of a block, one after the other, each [channels, lanes].
struct Buffers {
  float *x, *slope_x, *normed, *dx;        // [T · H]
  float *inner, *slope_inner;              // [pairs · pair_hidden]
  float* options;                          // [(pairs + 1) · H]
  float *scorer, *slope_scorer, *scores;   // [(pairs + 1) · scorer_hidden], [pairs + 1]
  float *d_joined, *d_option, *d_inner;    // [H], [H], [pair_hidden or scorer_hidden]
  float *deviation;                        // [T]: 1 / standard deviation of each row, with norms of nodes
  float* end;
};

Buffers buffers(const Rows& r, float* at) {
  auto take = [&](int channels) {
    float* here = at;
    at += (size_t)channels * lanes;
    return here;
  };
  const int pairs = pairs_of(r), all = r.types * r.hidden, options = pairs ? pairs + 1 : 0;
  const int widest = r.pair_hidden > r.scorer_hidden ? r.pair_hidden : r.scorer_hidden;
  Buffers b;
  b.x = take(all), b.slope_x = take(all), b.normed = take(all), b.dx = take(all);
  b.inner = take(pairs * r.pair_hidden), b.slope_inner = take(pairs * r.pair_hidden);
  b.options = take(options * r.hidden);
  b.scorer = take(options * r.scorer_hidden), b.slope_scorer = take(options * r.scorer_hidden), b.scores = take(options);
  b.d_joined = take(r.hidden), b.d_option = take(r.hidden), b.d_inner = take(widest);
  b.deviation = take(r.types);
  b.end = at;
  return b;
}

// The convolutions' MLPs keep the input of each linear, and the slope of the GELU that made it.
size_t convolution_floats(const Rows& r) {
  return (size_t)(2 * r.linears + 2) * r.hidden * lanes;
}

size_t scratch(const Rows& r) {
  const size_t joins = buffers(r, nullptr).end - (float*)nullptr, convolutions = convolution_floats(r);
  return joins > convolutions ? joins : convolutions;
}

int rows_of_block(int64_t at, int64_t last) {
  return last - at < lanes ? (int)(last - at) : lanes;
}

const float* weights_of(const Rows& r, int64_t at, int count, float* room) {
  for (int l = 0; l < lanes; l++) room[l] = l < count ? (r.weights ? r.weights[at + l] : 1.0f) : 0.0f;
  return room;
}

void convolve(const Rows& r, int64_t first, int64_t last, float* scratch, double* sums) {
  const int h = r.hidden;
  alignas(64) float weights[lanes];
  for (int t = 0; t < r.types; t++) {
    const float* const* p = r.parameters + of_type(r, t);
    doubles sum = {}, squares = {};
    for (int64_t at = first; at < last; at += lanes) {
      const int count = rows_of_block(at, last);
      float *x = scratch, *y = scratch + h * lanes;
      load_rows(r.inputs + (t * r.rows + at) * h, count, h, x);
      for (int l = 0; l < r.linears; l++) {
        if (l > 0) gelu_block(x, h);
        linear(p[2 * l], h, p[2 * l + 1], x, y, h, h);
        float* other = x;
        x = y, y = other;
      }
      store_rows(x, count, h, r.yields + (t * r.rows + at) * h);
      if (r.node_norm) continue;
      const vec* w = vecs(weights_of(r, at, count, weights));
      for (int i = 0; i < h * vectors; i++) {
        const doubles value = __builtin_convertvector(vecs(x)[i], doubles);
        const doubles weighed = value * __builtin_convertvector(w[i % vectors], doubles);
        sum += weighed, squares += weighed * value;
      }
    }
    sums[2 * t] = total(sum), sums[2 * t + 1] = total(squares);
  }
}

// Norm and GELU of what the convolutions made of a block. With `backward` also slopes and normed values.
void activate(const Rows& r, int64_t at, int count, const Buffers& b, bool backward) {
  const int h = r.hidden;
  for (int t = 0; t < r.types; t++) {
    const float* const* p = r.parameters + of_type(r, t) + 2 * r.linears;
    vec* x = vecs(b.x + (size_t)t * h * lanes);
    vec* normed = vecs(b.normed + (size_t)t * h * lanes);
    vec* slopes = vecs(b.slope_x + (size_t)t * h * lanes);
    load_rows(r.yields + (t * r.rows + at) * h, count, h, (float*)x);
    vec mean[vectors], scale[vectors];
    for (int v = 0; v < vectors; v++) {
      if (r.node_norm) {
        vec sum = {}, squares = {};
        for (int c = 0; c < h; c++) sum += x[c * vectors + v];
        mean[v] = sum / (float)h;
        for (int c = 0; c < h; c++) {
          const vec apart = x[c * vectors + v] - mean[v];
          squares += apart * apart;
        }
        const vec variance = squares / (float)h + r.eps;
        for (int i = 0; i < width; i++) scale[v][i] = 1.0f / __builtin_sqrtf(variance[i]);
        vecs(b.deviation)[t * vectors + v] = scale[v];
      } else {
        mean[v] = splat((float)r.mean[t]), scale[v] = splat((float)r.scale[t]);
      }
    }
    for (int c = 0; c < h; c++) {
      for (int v = 0; v < vectors; v++) {
        const int i = c * vectors + v;
        const vec value = (x[i] - mean[v]) * scale[v];
        vec slope;
        x[i] = gelu(value * p[0][c] + p[1][c], slope);
        if (backward) normed[i] = value, slopes[i] = slope;
      }
    }
  }
}

// Options of a block with their weights in `scores`.
void weigh(const Rows& r, const Buffers& b, bool backward) {
  const int h = r.hidden, inner = r.pair_hidden, q = r.scorer_hidden, pairs = pairs_of(r);
  const float* const* s = r.parameters + of_scorer(r);
  for (int i = 0, pair = 0; i < r.types; i++) {
    for (int j = i; j < r.types; j++, pair++) {
      const float* const* p = r.parameters + of_pair(r, pair);
      float* hidden = b.inner + (size_t)pair * inner * lanes;
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
    mean[i] = sum / (float)r.types;
  }
  for (int o = 0; o <= pairs; o++) {
    float* hidden = b.scorer + (size_t)o * q * lanes;
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

void combine(const Rows& r, int64_t first, int64_t last, float* scratch, float* joined) {
  const int h = r.hidden, pairs = pairs_of(r);
  const Buffers b = buffers(r, scratch);
  for (int64_t at = first; at < last; at += lanes) {
    const int count = rows_of_block(at, last);
    activate(r, at, count, b, false);
    vec* z = vecs(b.d_joined);
    for (int i = 0; i < h * vectors; i++) z[i] = vec{};
    if (r.join == Join::pairwise) {
      weigh(r, b, false);
      for (int o = 0; o <= pairs; o++)
        for (int i = 0; i < h * vectors; i++)
          z[i] += vecs(b.scores)[o * vectors + i % vectors] * vecs(b.options)[(size_t)o * h * vectors + i];
    } else {
      for (int t = 0; t < r.types; t++)
        for (int i = 0; i < h * vectors; i++) z[i] += vecs(b.x)[(size_t)t * h * vectors + i];
      if (r.join == Join::mean)
        for (int i = 0; i < h * vectors; i++) z[i] /= (float)r.types;
    }
    store_rows(b.d_joined, count, h, joined + at * h);
  }
}

// From the gradient by the joined rows (in `d_joined`) to that by what was joined (in `dx`).
void weigh_backward(const Rows& r, const Buffers& b, float* gradients) {
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
    const float* option = b.options + (size_t)o * h * lanes;
    vec d_score[vectors];
    for (int v = 0; v < vectors; v++) {
      vec dot = {};
      for (int c = 0; c < h; c++) dot += dz[c * vectors + v] * vecs(option)[c * vectors + v];
      d_score[v] = weights[o * vectors + v] * (dot - common[v]);
    }
    const float* hidden = b.scorer + (size_t)o * q * lanes;
    linear_weights((const float*)d_score, hidden, gradient(s + 2), q, gradient(s + 3), q, 1);
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
      const float* hidden = b.inner + (size_t)pair * inner * lanes;
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
    for (int i = 0; i < h * vectors; i++) dx[(size_t)t * h * vectors + i] += vecs(b.d_option)[i] / (float)r.types;
}

void combine_backward(
    const Rows& r, int64_t first, int64_t last, float* scratch, const float* d_joined, float* d, float* gradients, double* sums) {
  const int h = r.hidden;
  const Buffers b = buffers(r, scratch);
  for (int64_t at = first; at < last; at += lanes) {
    const int count = rows_of_block(at, last);
    activate(r, at, count, b, true);
    if (r.join == Join::pairwise) weigh(r, b, true);
    load_rows(d_joined + at * h, count, h, b.d_joined);
    if (r.join == Join::pairwise) {
      weigh_backward(r, b, gradients);
    } else {
      const float share = r.join == Join::mean ? 1.0f / (float)r.types : 1.0f;
      for (int t = 0; t < r.types; t++)
        for (int i = 0; i < h * vectors; i++) vecs(b.dx)[(size_t)t * h * vectors + i] = vecs(b.d_joined)[i] * share;
    }
    for (int t = 0; t < r.types; t++) {
      const int p = of_type(r, t) + 2 * r.linears;
      const float* gamma = r.parameters[p];
      vec* dx = vecs(b.dx + (size_t)t * h * lanes);
      const vec* normed = vecs(b.normed + (size_t)t * h * lanes);
      const vec* slopes = vecs(b.slope_x + (size_t)t * h * lanes);
      vec sum[vectors] = {}, with_normed[vectors] = {};
      for (int c = 0; c < h; c++) {
        vec d_gamma = {}, d_beta = {};
        for (int v = 0; v < vectors; v++) {
          const int i = c * vectors + v;
          const vec by_affine = dx[i] * slopes[i];
          d_gamma += by_affine * normed[i], d_beta += by_affine;
          dx[i] = by_affine * gamma[c];
          sum[v] += dx[i], with_normed[v] += dx[i] * normed[i];
        }
        gradients[r.offsets[p] + c] += total(d_gamma);
        gradients[r.offsets[p + 1] + c] += total(d_beta);
      }
      if (r.node_norm) {
        for (int c = 0; c < h; c++)
          for (int v = 0; v < vectors; v++) {
            const int i = c * vectors + v;
            dx[i] = vecs(b.deviation)[t * vectors + v] * (dx[i] - sum[v] / (float)h - normed[i] * with_normed[v] / (float)h);
          }
      } else {
        for (int v = 0; v < vectors; v++) sums[2 * t] += total(sum[v]), sums[2 * t + 1] += total(with_normed[v]);
      }
      store_rows((const float*)dx, count, h, d + (t * r.rows + at) * h);
    }
  }
}

void convolve_backward(const Rows& r, int64_t first, int64_t last, float* scratch, float* d, float* gradients) {
  const int h = r.hidden;
  const size_t one = (size_t)h * lanes;
  alignas(64) float weights[lanes];
  for (int t = 0; t < r.types; t++) {
    const int p = of_type(r, t);
    for (int64_t at = first; at < last; at += lanes) {
      const int count = rows_of_block(at, last);
      const int64_t row = (t * r.rows + at) * h;
      // Inputs of linear l at 2l, slopes behind it; then the gradient and a place for the next.
      auto input = [&](int l) { return scratch + (size_t)2 * l * one; };
      float *now = scratch + (size_t)2 * r.linears * one, *next = now + one;
      load_rows(r.inputs + row, count, h, input(0));
      for (int l = 1; l < r.linears; l++) {
        linear(r.parameters[p + 2 * l - 2], h, r.parameters[p + 2 * l - 1], input(l - 1), input(l), h, h);
        gelu_block(input(l), input(l) + one, h);
      }
      load_rows(d + row, count, h, now);
      if (!r.node_norm) {
        load_rows(r.yields + row, count, h, next);
        const vec* w = vecs(weights_of(r, at, count, weights));
        const float scale = (float)r.scale[t], shift = (float)r.shift[t], slope = (float)r.slope[t], mean = (float)r.mean[t];
        for (int i = 0; i < h * vectors; i++)
          vecs(now)[i] = vecs(now)[i] * scale - w[i % vectors] * (shift + slope * (vecs(next)[i] - mean));
      }
      for (int l = r.linears - 1; l >= 0; l--) {
        float *dw = gradients + r.offsets[p + 2 * l], *db = gradients + r.offsets[p + 2 * l + 1];
        linear_weights(now, input(l), dw, h, db, h, h);
        linear_input(r.parameters[p + 2 * l], h, now, next, h, h, false);
        if (l > 0)
          for (int i = 0; i < h * vectors; i++) vecs(next)[i] *= vecs(input(l) + one)[i];
        float* other = now;
        now = next, next = other;
      }
      store_rows(now, count, h, d + row);
    }
  }
}

void gather(const Gather& g) {
  alignas(64) float row[64];
  for (int64_t i = g.first; i < g.last; i++) {
    vec a[4] = {}, b[4] = {};
    int32_t j = g.starts[i];
    const int32_t end = g.starts[i + 1];
    for (; j + 2 <= end; j += 2) {
      const vec *one = vecs(g.x + (int64_t)g.columns[j] * 64), *two = vecs(g.x + (int64_t)g.columns[j + 1] * 64);
#pragma GCC unroll 4
      for (int v = 0; v < 4; v++) a[v] += one[v], b[v] += two[v];
    }
    if (j < end) {
      const vec* one = vecs(g.x + (int64_t)g.columns[j] * 64);
#pragma GCC unroll 4
      for (int v = 0; v < 4; v++) a[v] += one[v];
    }
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) vecs(row)[v] = a[v] + b[v];
    float* y = g.y + i * g.stride;
    if (g.own)
      for (int c = 0; c < g.channels; c++) row[c] += g.own_factor * g.own[i * g.stride + c];
    if (g.add)
      for (int c = 0; c < g.channels; c++) y[c] += row[c];
    else
      for (int c = 0; c < g.channels; c++) y[c] = row[c];
  }
}

} // namespace

extern const RowKernels kernels;
const RowKernels kernels = {scratch, convolve, combine, combine_backward, convolve_backward, gather, lanes};

} // namespace expctl::dist::EXPCTL_SET
