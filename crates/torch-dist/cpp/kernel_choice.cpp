#include "kernel_choice.h"

#include <cstdlib>
#include <cstring>

namespace torch_dist {

namespace {

struct Choice {
  const RowKernelsOf<float>* kernels;
  const char* name;
};

Choice choose() {
#if defined(__x86_64__)
  // For tests of the slower sets on a machine that has a faster one.
  const char* most = std::getenv("EXPCTL_ROW_INSTRUCTIONS");
  const bool only_base = most != nullptr && std::strcmp(most, "base") == 0;
  const bool only_v3 = most != nullptr && std::strcmp(most, "avx2") == 0;
  if (!only_base && !only_v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512cd"))
    return {&v4::kernels, "avx512"};
  if (!only_base && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
      __builtin_cpu_supports("bmi2"))
    return {&v3::kernels, "avx2"};
#endif
  return {&base::kernels, "base"};
}

const Choice& chosen() {
  static const Choice choice = choose();
  return choice;
}

} // namespace

template <>
const RowKernelsOf<float>& row_kernels<float>() {
  return *chosen().kernels;
}

template <>
const RowKernelsOf<double>& row_kernels<double>() {
  return base_double::kernels;
}

const char* row_kernels_name() {
  return chosen().name;
}

} // namespace torch_dist
