#pragma once
// What a layer of the lazy model does to each row (gene of a sample) by itself, on a range of rows. No libtorch here: the
// functions are compiled once for each instruction set in float32, and once in double precision.
#include <cstddef>
#include <cstdint>

namespace torch_dist {

enum class Join : int64_t { pairwise = 0, sum = 1, mean = 2 };

template <typename Real>
struct RowsOf {
  int64_t rows;          // R
  int types;             // T
  int hidden;            // H
  int linears;           // linear layers of a convolution
  int pair_hidden;       // inner channels of a pair's MLP
  int scorer_hidden;     // inner channels of the scorer
  Join join;
  bool node_norm;        // each row normalised by itself
  Real eps;
  const Real* weights;   // [R]: how many rows of the batch each stands for; null for 1
  // Per type: W and b of each linear, γ, β. Then, with pairs, per pair: W, b, W, b. Then the scorer's W, b, W, b.
  const Real* const* parameters;
  const int64_t* offsets; // where the gradient of each parameter starts in the sums of a thread
  const Real* inputs;     // [T, R, H]: what the convolutions' MLPs read
  Real* yields;           // [T, R, H]: what they make
  const double* mean;     // [T]: of the yields, with norms over the graph
  const double* scale;    // [T]: 1 / (standard deviation + eps)
  // [T]: gradient by a yield = d − weight · (shift + slope · (yield − mean)), where d is what `combine_backward` wrote.
  const double* shift;
  const double* slope;
};

// Gather of rows: y[i] (+)= Σ x[columns[j]] for j from starts[i] to starts[i + 1], of `channels` numbers that lie
// `stride` apart in x and in y; rows `first` to `last`.
template <typename Real>
struct GatherOf {
  const int32_t* starts;
  const int32_t* columns;
  int64_t first, last;
  const Real* x; // packed: rows of exactly 64 numbers
  Real* y;
  int64_t stride; // numbers between rows of y
  int channels;   // numbers of a row that count, at most 64
  bool add;
  const Real* own; // null, or rows `stride` apart of which y also gets `own_factor`
  Real own_factor;
};

// Gradients of parameters are added up in double precision: they are sums over all rows, and terms of both signs.
template <typename Real>
struct RowKernelsOf {
  size_t (*scratch)(const RowsOf<Real>&); // numbers that the functions below need, 64-byte aligned
  // Each works on rows `first` to `last`. `sums` [T, 2].
  void (*convolve)(const RowsOf<Real>&, int64_t first, int64_t last, Real* scratch, double* sums);
  void (*combine)(const RowsOf<Real>&, int64_t first, int64_t last, Real* scratch, Real* joined);
  void (*combine_backward)(
      const RowsOf<Real>&, int64_t first, int64_t last, Real* scratch, const Real* d_joined, Real* d, double* gradients, double* sums);
  void (*convolve_backward)(const RowsOf<Real>&, int64_t first, int64_t last, Real* scratch, Real* d, double* gradients);
  void (*gather)(const GatherOf<Real>&);
  double (*dot)(const Real* a, const Real* b, int64_t count);
  int64_t block; // rows that are worked on at a time
};

namespace v4 {
extern const RowKernelsOf<float> kernels;
}
namespace v3 {
extern const RowKernelsOf<float> kernels;
}
namespace base {
extern const RowKernelsOf<float> kernels;
}
namespace base_double {
extern const RowKernelsOf<double> kernels;
}

} // namespace torch_dist
