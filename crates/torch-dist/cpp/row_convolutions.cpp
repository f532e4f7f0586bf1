// The MLPs of a layer's convolutions, one per edge type.
#include "row_set.h"

namespace torch_dist::EXPCTL_SET {

// The convolutions' MLPs keep the input of each linear, and the slope of the GELU that made it.
size_t convolution_scratch(const Rows& r) {
  return (size_t)(2 * r.linears + 2) * r.hidden * lanes;
}

namespace {

const real* weights_of(const Rows& r, int64_t at, int count, real* room) {
  for (int l = 0; l < lanes; l++) room[l] = l < count ? (r.weights ? r.weights[at + l] : 1) : 0.0f;
  return room;
}

} // namespace

void convolve(const Rows& r, int64_t first, int64_t last, real* scratch, double* sums) {
  const int h = r.hidden;
  alignas(64) real weights[lanes];
  for (int t = 0; t < r.types; t++) {
    const real* const* p = r.parameters + of_type(r, t);
    doubles sum = {}, squares = {};
    for (int64_t at = first; at < last; at += lanes) {
      const int count = rows_of_block(at, last);
      real *x = scratch, *y = scratch + h * lanes;
      load_rows(r.inputs + (t * r.rows + at) * h, count, h, x);
      for (int l = 0; l < r.linears; l++) {
        if (l > 0) gelu_block(x, h);
        linear(p[2 * l], h, p[2 * l + 1], x, y, h, h);
        real* other = x;
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
    sums[2 * t] = total_of_doubles(sum), sums[2 * t + 1] = total_of_doubles(squares);
  }
}

void convolve_backward(const Rows& r, int64_t first, int64_t last, real* scratch, real* d, double* gradients) {
  const int h = r.hidden;
  const size_t one = (size_t)h * lanes;
  alignas(64) real weights[lanes];
  for (int t = 0; t < r.types; t++) {
    const int p = of_type(r, t);
    for (int64_t at = first; at < last; at += lanes) {
      const int count = rows_of_block(at, last);
      const int64_t row = (t * r.rows + at) * h;
      // Inputs of linear l at 2l, slopes behind it; then the gradient and a place for the next.
      auto input = [&](int l) { return scratch + (size_t)2 * l * one; };
      real *now = scratch + (size_t)2 * r.linears * one, *next = now + one;
      load_rows(r.inputs + row, count, h, input(0));
      for (int l = 1; l < r.linears; l++) {
        linear(r.parameters[p + 2 * l - 2], h, r.parameters[p + 2 * l - 1], input(l - 1), input(l), h, h);
        gelu_block(input(l), input(l) + one, h);
      }
      load_rows(d + row, count, h, now);
      if (!r.node_norm) {
        load_rows(r.yields + row, count, h, next);
        const vec* w = vecs(weights_of(r, at, count, weights));
        const real scale = (real)r.scale[t], shift = (real)r.shift[t], slope = (real)r.slope[t], mean = (real)r.mean[t];
        for (int i = 0; i < h * vectors; i++)
          vecs(now)[i] = vecs(now)[i] * scale - w[i % vectors] * (shift + slope * (vecs(next)[i] - mean));
      }
      for (int l = r.linears - 1; l >= 0; l--) {
        double *dw = gradients + r.offsets[p + 2 * l], *db = gradients + r.offsets[p + 2 * l + 1];
        linear_weights(now, input(l), dw, h, db, h, h);
        linear_input(r.parameters[p + 2 * l], h, now, next, h, h, false);
        if (l > 0)
          for (int i = 0; i < h * vectors; i++) vecs(next)[i] *= vecs(input(l) + one)[i];
        real* other = now;
        now = next, next = other;
      }
      store_rows(now, count, h, d + row);
    }
  }
}

} // namespace torch_dist::EXPCTL_SET
