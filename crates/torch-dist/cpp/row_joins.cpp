// Norm and GELU of what the convolutions made, and how edge types are joined.
#include "row_block.h"

namespace torch_dist::EXPCTL_SET {

size_t join_scratch(const Rows& r) {
  return buffers(r, nullptr).numbers;
}

namespace {

// Norm and GELU of what the convolutions made of a block. With `backward` also slopes and normed values.
void activate(const Rows& r, int64_t at, int count, const Buffers& b, bool backward) {
  const int h = r.hidden;
  for (int t = 0; t < r.types; t++) {
    const real* const* p = r.parameters + of_type(r, t) + 2 * r.linears;
    vec* x = vecs(b.x + (size_t)t * h * lanes);
    vec* normed = vecs(b.normed + (size_t)t * h * lanes);
    vec* slopes = vecs(b.slope_x + (size_t)t * h * lanes);
    load_rows(r.yields + (t * r.rows + at) * h, count, h, (real*)x);
    vec mean[vectors], scale[vectors];
    for (int v = 0; v < vectors; v++) {
      if (r.node_norm) {
        vec sum = {}, squares = {};
        for (int c = 0; c < h; c++) sum += x[c * vectors + v];
        mean[v] = sum / (real)h;
        for (int c = 0; c < h; c++) {
          const vec apart = x[c * vectors + v] - mean[v];
          squares += apart * apart;
        }
        const vec variance = squares / (real)h + r.eps;
        for (int i = 0; i < width; i++) scale[v][i] = 1 / root(variance[i]);
        vecs(b.deviation)[t * vectors + v] = scale[v];
      } else {
        mean[v] = splat((real)r.mean[t]), scale[v] = splat((real)r.scale[t]);
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

} // namespace

void combine(const Rows& r, int64_t first, int64_t last, real* scratch, real* joined) {
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
        for (int i = 0; i < h * vectors; i++) z[i] /= (real)r.types;
    }
    store_rows(b.d_joined, count, h, joined + at * h);
  }
}

void combine_backward(
    const Rows& r, int64_t first, int64_t last, real* scratch, const real* d_joined, real* d, double* gradients, double* sums) {
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
      const real share = r.join == Join::mean ? 1 / (real)r.types : 1;
      for (int t = 0; t < r.types; t++)
        for (int i = 0; i < h * vectors; i++) vecs(b.dx)[(size_t)t * h * vectors + i] = vecs(b.d_joined)[i] * share;
    }
    for (int t = 0; t < r.types; t++) {
      const int p = of_type(r, t) + 2 * r.linears;
      const real* gamma = r.parameters[p];
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
            dx[i] = vecs(b.deviation)[t * vectors + v] * (dx[i] - sum[v] / (real)h - normed[i] * with_normed[v] / (real)h);
          }
      } else {
        for (int v = 0; v < vectors; v++) sums[2 * t] += total(sum[v]), sums[2 * t + 1] += total(with_normed[v]);
      }
      store_rows((const real*)dx, count, h, d + (t * r.rows + at) * h);
    }
  }
}

} // namespace torch_dist::EXPCTL_SET
