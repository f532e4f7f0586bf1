// Sums over rows of a table, and products summed up.
#include "row_set.h"

namespace torch_dist::EXPCTL_SET {

void gather(const Gather& g) {
  constexpr int parts = 64 / width; // vectors of a row
  alignas(64) real row[64];
  for (int64_t i = g.first; i < g.last; i++) {
    vec a[parts] = {};
    int32_t j = g.starts[i];
    const int32_t end = g.starts[i + 1];
    if constexpr (parts <= 4) {
      // Two sums beside each other: registers are left, and additions of one wait for each other.
      vec b[parts] = {};
      for (; j + 2 <= end; j += 2) {
        const vec *one = vecs(g.x + (int64_t)g.columns[j] * 64), *two = vecs(g.x + (int64_t)g.columns[j + 1] * 64);
#pragma GCC unroll 4
        for (int v = 0; v < parts; v++) a[v] += one[v], b[v] += two[v];
      }
#pragma GCC unroll 4
      for (int v = 0; v < parts; v++) a[v] += b[v];
    }
    for (; j < end; j++) {
      const vec* one = vecs(g.x + (int64_t)g.columns[j] * 64);
#pragma GCC unroll 16
      for (int v = 0; v < parts; v++) a[v] += one[v];
    }
#pragma GCC unroll 16
    for (int v = 0; v < parts; v++) vecs(row)[v] = a[v];
    real* y = g.y + i * g.stride;
    if (g.own)
      for (int c = 0; c < g.channels; c++) row[c] += g.own_factor * g.own[i * g.stride + c];
    if (g.add)
      for (int c = 0; c < g.channels; c++) y[c] += row[c];
    else
      for (int c = 0; c < g.channels; c++) y[c] = row[c];
  }
}

// In pieces that are added up in double precision.
double dot(const real* a, const real* b, int64_t count) {
  constexpr int64_t piece = 64 * width;
  double sum = 0;
  for (int64_t at = 0; at < count; at += piece) {
    const int64_t last = count - at < piece ? count : at + piece;
    vec part[4] = {};
    int64_t i = at;
    for (; i + 4 * width <= last; i += 4 * width)
#pragma GCC unroll 4
      for (int v = 0; v < 4; v++)
        part[v] += *reinterpret_cast<const loose*>(a + i + v * width) * *reinterpret_cast<const loose*>(b + i + v * width);
    sum += total((part[0] + part[1]) + (part[2] + part[3]));
    for (; i < last; i++) sum += (double)a[i] * b[i];
  }
  return sum;
}

} // namespace torch_dist::EXPCTL_SET
