#pragma once
// GELU and the exponential function of vectors: approximations where they are right to float32, the C library's in double.
#include "vectors.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace {

#if defined(EXPCTL_DOUBLE)

EXPCTL_INLINE real root(real x) {
  return __builtin_sqrt(x);
}

EXPCTL_INLINE vec exponential(vec exponent) {
  vec y;
  for (int i = 0; i < width; i++) y[i] = __builtin_exp(exponent[i]);
  return y;
}

// GELU(x) = x Φ(x), Φ(x) = (1 + erf(x / √2)) / 2; `slope` is its derivative, Φ(x) + x φ(x).
EXPCTL_INLINE vec gelu(vec x, vec& slope) {
  vec below;
  for (int i = 0; i < width; i++) below[i] = 0.5 * __builtin_erfc(x[i] * -0.70710678118654752);
  slope = below + x * exponential(x * x * -0.5) * 0.39894228040143268;
  return x * below;
}

#else

EXPCTL_INLINE real root(real x) {
  return __builtin_sqrtf(x);
}

EXPCTL_INLINE vec reciprocal(vec x) {
#if defined(__AVX512F__)
  const vec guess = (vec)_mm512_rcp14_ps((__m512)x);
  return guess * (2.0f - x * guess);
#else
  return 1.0f / x;
#endif
}

// e^x to 2 units in the last place, for x up to 88; 0 below −60, because products with smaller numbers would be
// denormal, which the processor is a hundred times slower with.
EXPCTL_INLINE vec exponential(vec exponent) {
  const vec x = larger(exponent, splat(-60.0f));
  const float rounding = 12582912.0f; // 1.5 · 2^23: adding it leaves the nearest integer in the low bits
  const vec shifted = x * 1.44269504f + rounding;
  const vec n = shifted - rounding;
  const vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
  vec p = 1.9875691500e-4f * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const ints power = ((ints)shifted << 23) + (127 << 23);
  return exponent < -60.0f ? vec{} : p * (vec)power;
}

// GELU(x) = x Φ(x), Φ(x) = (1 + erf(x / √2)) / 2 with a rational function for erf, right to 1e-7; `slope` is its
// derivative, Φ(x) + x φ(x). An error function that is only right to 1.5e-7 absolute would show: it errs to one side for
// all rows, and gradients are sums over all of them.
EXPCTL_INLINE vec gelu(vec x, vec& slope) {
  const vec z = larger(-larger(x * -0.70710678f, splat(-4.0f)), splat(-4.0f));
  const vec y = z * z;
  vec p = -2.72614225801306e-10f * y + 2.77068142495902e-08f;
  p = p * y - 2.10102402082508e-06f;
  p = p * y - 5.69250639462346e-05f;
  p = p * y - 7.34990630326855e-04f;
  p = p * y - 2.95459980854025e-03f;
  p = p * y - 1.60960333262415e-02f;
  vec q = -1.45660718464996e-05f * y - 2.13374055278905e-04f;
  q = q * y - 1.68282697438203e-03f;
  q = q * y - 7.37332916720468e-03f;
  q = q * y - 1.42647390514189e-02f;
  const vec below = 0.5f + 0.5f * (z * p * reciprocal(q));
  slope = below + x * exponential(x * x * -0.5f) * 0.39894228f;
  return x * below;
}

#endif

EXPCTL_INLINE void gelu_block(real* x, int channels) {
  vec* v = vecs(x);
  for (int i = 0; i < channels * vectors; i++) {
    vec slope;
    v[i] = gelu(v[i], slope);
  }
}

EXPCTL_INLINE void gelu_block(real* x, real* slopes, int channels) {
  vec *v = vecs(x), *s = vecs(slopes);
  for (int i = 0; i < channels * vectors; i++) v[i] = gelu(v[i], s[i]);
}

} // namespace
