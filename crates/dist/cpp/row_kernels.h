#pragma once
// What a layer of the lazy model does to each row (gene of a sample) by itself, on a range of rows. No libtorch here: the
// file is compiled once for each instruction set.
#include <cstddef>
#include <cstdint>

namespace expctl::dist {

enum class Join : int64_t { pairwise = 0, sum = 1, mean = 2 };

struct Rows {
  int64_t rows;          // R
  int types;             // T
  int hidden;            // H
  int linears;           // linear layers of a convolution
  int pair_hidden;       // inner channels of a pair's MLP
  int scorer_hidden;     // inner channels of the scorer
  Join join;
  bool node_norm;        // each row normalised by itself
  float eps;
  const float* weights;  // [R]: how many rows of the batch each stands for; null for 1
  // Per type: W and b of each linear, γ, β. Then, with pairs, per pair: W, b, W, b. Then the scorer's W, b, W, b.
  const float* const* parameters;
  const int64_t* offsets; // where the gradient of each parameter starts in the sums of a thread
  const float* inputs;    // [T, R, H]: what the convolutions' MLPs read
  float* yields;          // [T, R, H]: what they make
  const double* mean;     // [T]: of the yields, with norms over the graph
  const double* scale;    // [T]: 1 / (standard deviation + eps)
  // [T]: gradient by a yield = d − weight · (shift + slope · (yield − mean)), where d is what `combine_backward` wrote.
  const double* shift;
  const double* slope;
};

// Gather of rows: y[i] (+)= Σ x[columns[j]] for j from starts[i] to starts[i + 1], of `channels` floats that lie
// `stride` apart in x and in y; rows `first` to `last`.
struct Gather {
  const int32_t* starts;
  const int32_t* columns;
  int64_t first, last;
  const float* x; // packed: rows of exactly 64 floats
  float* y;
  int64_t stride; // floats between rows of y
  int channels;   // floats of a row that count, at most 64
  bool add;
  const float* own; // null, or rows `stride` apart of which y also gets `own_factor`
  float own_factor;
};

struct RowKernels {
  size_t (*scratch)(const Rows&); // floats that the functions below need, 64-byte aligned
  // Each works on rows `first` to `last`. `sums` [T, 2].
  void (*convolve)(const Rows&, int64_t first, int64_t last, float* scratch, double* sums);
  void (*combine)(const Rows&, int64_t first, int64_t last, float* scratch, float* joined);
  void (*combine_backward)(
      const Rows&, int64_t first, int64_t last, float* scratch, const float* d_joined, float* d, float* gradients, double* sums);
  void (*convolve_backward)(const Rows&, int64_t first, int64_t last, float* scratch, float* d, float* gradients);
  void (*gather)(const Gather&);
  int64_t block; // rows that are worked on at a time
};

namespace v4 {
extern const RowKernels kernels;
}
namespace v3 {
extern const RowKernels kernels;
}
namespace base {
extern const RowKernels kernels;
}

} // namespace expctl::dist
