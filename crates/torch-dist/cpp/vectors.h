#pragma once
// Arithmetic on blocks of rows whose channels are apart: channel c of a block is `lanes` numbers, one per row. Only for files
// that are compiled once for each instruction set and kind of number: everything here is static, and nothing of the standard
// library is included, so that no function of one set can end up in another's code.
#include <cstdint>

namespace {

#if defined(EXPCTL_DOUBLE)
using real = double;
using whole = int64_t; // as wide as `real`
#else
using real = float;
using whole = int32_t;
#endif

// A vector is as wide as a register of the set. GCC keeps wider ones in memory: every operation then reads and writes its operands
// there, and a layer takes eleven times as long (examples/row_floor.rs of the worker, AVX2).
#if defined(__AVX512F__)
constexpr int register_bytes = 64;
constexpr int tile_vectors = 4; // of a tile of a product: vectors of each channel; with 4 outputs, accumulators in half of the registers
#elif defined(__AVX2__)
constexpr int register_bytes = 32;
constexpr int tile_vectors = 2;
#else
constexpr int register_bytes = 16;
constexpr int tile_vectors = 2;
#endif
constexpr int width = register_bytes / sizeof(real); // numbers of a vector
constexpr int lanes = 128;                           // rows of a block
constexpr int vectors = lanes / width;               // of a channel of a block

using vec = real __attribute__((vector_size(register_bytes)));
using ints = whole __attribute__((vector_size(register_bytes)));
using doubles = double __attribute__((vector_size(width * 8)));

#define EXPCTL_INLINE static inline __attribute__((always_inline))

EXPCTL_INLINE vec* vecs(real* x) {
  return reinterpret_cast<vec*>(x);
}

EXPCTL_INLINE const vec* vecs(const real* x) {
  return reinterpret_cast<const vec*>(x);
}

EXPCTL_INLINE vec splat(real x) {
  return x - vec{};
}

// 0, 1, 2, …
EXPCTL_INLINE ints lane_numbers() {
  ints numbers;
#pragma GCC unroll 16
  for (int i = 0; i < width; i++) numbers[i] = i;
  return numbers;
}

EXPCTL_INLINE real total(vec x) {
  const ints places = lane_numbers();
#pragma GCC unroll 4
  for (int n = width / 2; n >= 1; n /= 2) x += __builtin_shuffle(x, places ^ n);
  return x[0];
}

EXPCTL_INLINE double total_of_doubles(doubles x) {
  double sum = 0;
  for (int i = 0; i < width; i++) sum += x[i];
  return sum;
}

EXPCTL_INLINE vec larger(vec a, vec b) {
  return a > b ? a : b;
}

// a[o, v] = Σ_k w[o·by_out + k·by_in] x[k, v] for `outs` outputs and one group of vectors, plus bias or what y holds.
template <int outs>
EXPCTL_INLINE void tile(
    const real* w, long by_out, long by_in, const real* bias, const vec* x, vec* y, int ins, bool add) {
  vec a[outs][tile_vectors];
#pragma GCC unroll 8
  for (int o = 0; o < outs; o++)
#pragma GCC unroll 8
    for (int v = 0; v < tile_vectors; v++) a[o][v] = add ? y[o * vectors + v] : splat(bias ? bias[o] : 0);
  for (int k = 0; k < ins; k++)
#pragma GCC unroll 8
    for (int o = 0; o < outs; o++)
#pragma GCC unroll 8
      for (int v = 0; v < tile_vectors; v++) a[o][v] += w[o * by_out + k * by_in] * x[k * vectors + v];
#pragma GCC unroll 8
  for (int o = 0; o < outs; o++)
#pragma GCC unroll 8
    for (int v = 0; v < tile_vectors; v++) y[o * vectors + v] = a[o][v];
}

static void product(
    const real* w, long by_out, long by_in, const real* bias, const real* x, real* y, int ins, int outs, bool add) {
  constexpr int step = 4;
  for (int v = 0; v < vectors; v += tile_vectors) {
    int o = 0;
    for (; o + step <= outs; o += step)
      tile<step>(w + o * by_out, by_out, by_in, bias ? bias + o : nullptr, vecs(x) + v, vecs(y) + o * vectors + v, ins, add);
    for (; o < outs; o++)
      tile<1>(w + o * by_out, by_out, by_in, bias ? bias + o : nullptr, vecs(x) + v, vecs(y) + o * vectors + v, ins, add);
  }
}

// y = W x + b: W [outs, ·] with rows `ld` numbers apart, x [ins, lanes], y [outs, lanes]; `add` adds to y instead of b.
static void linear(
    const real* w, long ld, const real* bias, const real* x, real* y, int ins, int outs, bool add = false) {
  product(w, ld, 1, bias, x, y, ins, outs, add);
}

// dx (+)= Wᵀ dy.
static void linear_input(const real* w, long ld, const real* dy, real* dx, int ins, int outs, bool add) {
  product(w, 1, ld, nullptr, dy, dx, outs, ins, add);
}

// Lane j of the result is the sum of a[j], of as many vectors as one has lanes.
EXPCTL_INLINE vec totals(vec* a) {
  const ints even = lane_numbers() * 2, odd = even + 1;
#pragma GCC unroll 4
  for (int n = width / 2; n >= 1; n /= 2)
#pragma GCC unroll 8
    for (int i = 0; i < n; i++)
      a[i] = __builtin_shuffle(a[2 * i], a[2 * i + 1], even) + __builtin_shuffle(a[2 * i], a[2 * i + 1], odd);
  return a[0];
}

// dW [outs, ·] += Σ over lanes of dy xᵀ, rows `ld` numbers apart; db [outs] += Σ dy unless it is null.
static void linear_weights(const real* dy, const real* x, double* dw, long ld, double* db, int ins, int outs) {
  // Entries of dW that are added up together: as many as a vector has lanes, so that `totals` ends with one vector.
  constexpr int down = width >= 16 ? 4 : width >= 4 ? 2 : 1, across = width / down;
  const vec *d = vecs(dy), *s = vecs(x);
  for (int o = 0; o < outs; o += down) {
    for (int k = 0; k < ins; k += across) {
      if (o + down <= outs && k + across <= ins) {
        vec a[width] = {};
        for (int v = 0; v < vectors; v++)
#pragma GCC unroll 4
          for (int i = 0; i < down; i++)
#pragma GCC unroll 4
            for (int j = 0; j < across; j++) a[i * across + j] += d[(o + i) * vectors + v] * s[(k + j) * vectors + v];
        const vec sums = totals(a);
#pragma GCC unroll 4
        for (int i = 0; i < down; i++)
#pragma GCC unroll 4
          for (int j = 0; j < across; j++) dw[(o + i) * ld + k + j] += sums[i * across + j];
      } else {
        for (int i = 0; i < down && o + i < outs; i++)
          for (int j = 0; j < across && k + j < ins; j++) {
            vec sum = {};
            for (int v = 0; v < vectors; v++) sum += d[(o + i) * vectors + v] * s[(k + j) * vectors + v];
            dw[(o + i) * ld + k + j] += total(sum);
          }
      }
    }
    if (db) {
      for (int i = 0; i < down && o + i < outs; i++) {
        vec sum = {};
        for (int v = 0; v < vectors; v++) sum += d[(o + i) * vectors + v];
        db[o + i] += total(sum);
      }
    }
  }
}

using loose = real __attribute__((vector_size(width * sizeof(real)), aligned(sizeof(real)), may_alias));

// Rows and columns of as many vectors as one has lanes change places.
EXPCTL_INLINE void transpose(vec* a) {
  const ints places = lane_numbers();
#pragma GCC unroll 4
  for (int n = 1; n < width; n *= 2) {
    // Of two vectors n apart: where bit n of a place is set, the first takes from the second, which takes the rest.
    const ints high = (places & n) != 0;
    const ints first = high ? places - n + width : places, second = high ? places + width : places + n;
#pragma GCC unroll 16
    for (int i = 0; i < width; i++) {
      if (i & n) continue;
      const vec one = a[i], two = a[i + n];
      a[i] = __builtin_shuffle(one, two, first);
      a[i + n] = __builtin_shuffle(one, two, second);
    }
  }
}

// `count` rows of `channels` numbers to a block, and back. Lanes without a row are 0.
static void load_rows(const real* rows, int count, int channels, real* block) {
  if (count < lanes || channels % width != 0) {
    for (int i = 0; i < channels * vectors; i++) vecs(block)[i] = vec{};
    for (int r = 0; r < count; r++)
      for (int c = 0; c < channels; c++) block[c * lanes + r] = rows[(long)r * channels + c];
    return;
  }
  for (int v = 0; v < vectors; v++) {
    for (int c = 0; c < channels; c += width) {
      vec a[width];
#pragma GCC unroll 16
      for (int i = 0; i < width; i++)
        a[i] = *reinterpret_cast<const loose*>(rows + (long)(v * width + i) * channels + c);
      transpose(a);
#pragma GCC unroll 16
      for (int i = 0; i < width; i++) vecs(block)[(c + i) * vectors + v] = a[i];
    }
  }
}

static void store_rows(const real* block, int count, int channels, real* rows) {
  if (count < lanes || channels % width != 0) {
    for (int r = 0; r < count; r++)
      for (int c = 0; c < channels; c++) rows[(long)r * channels + c] = block[c * lanes + r];
    return;
  }
  for (int v = 0; v < vectors; v++) {
    for (int c = 0; c < channels; c += width) {
      vec a[width];
#pragma GCC unroll 16
      for (int i = 0; i < width; i++) a[i] = vecs(block)[(c + i) * vectors + v];
      transpose(a);
#pragma GCC unroll 16
      for (int i = 0; i < width; i++)
        *reinterpret_cast<loose*>(rows + (long)(v * width + i) * channels + c) = a[i];
    }
  }
}

} // namespace
