#include "kernel_choice.h"
#include "shared_layer.h"

#include <ATen/Parallel.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstring>
#include <vector>

namespace expctl::dist {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Neighbours of each row, int32: 4 (N + 1 + E) bytes.
struct List {
  std::vector<int32_t> starts, columns;
};

List list_of(int64_t rows, rust::Slice<const int64_t> to, rust::Slice<const int64_t> from) {
  List list;
  list.starts.assign(rows + 1, 0);
  for (const int64_t row : to) list.starts[row + 1]++;
  for (int64_t i = 0; i < rows; i++) list.starts[i + 1] += list.starts[i];
  list.columns.resize(to.size());
  auto next = list.starts;
  for (size_t e = 0; e < to.size(); e++) list.columns[next[to[e]]++] = (int32_t)from[e];
  return list;
}

} // namespace

struct NeighboursHandle::Lists : public torch::CustomClassHolder {
  int64_t rows = 0;
  std::vector<List> sources, targets; // per edge type
};

namespace {

constexpr int64_t slice = 64; // floats of each row that are worked on at a time: N of them fit a core's cache

struct Piece {
  int64_t column, first, last;
  int channels;
};

// [N, C] in pieces for the threads: slices of columns and, where those are few, ranges of rows.
std::vector<Piece> pieces_of(int64_t rows, int64_t channels) {
  const int64_t slices = (channels + slice - 1) / slice, threads = at::get_num_threads();
  const int64_t parts = slices % threads == 0 || slices >= 8 * threads ? 1 : threads;
  std::vector<Piece> pieces;
  for (int64_t s = 0; s < slices; s++)
    for (int64_t p = 0; p < parts; p++)
      pieces.push_back({s * slice, rows * p / parts, rows * (p + 1) / parts,
          (int)std::min(slice, channels - s * slice)});
  return pieces;
}

void pack(const float* x, int64_t rows, int64_t stride, const Piece& piece, float* packed) {
  for (int64_t i = 0; i < rows; i++) {
    std::memcpy(packed + i * slice, x + i * stride + piece.column, piece.channels * sizeof(float));
    if (piece.channels < slice)
      std::memset(packed + i * slice + piece.channels, 0, (slice - piece.channels) * sizeof(float));
  }
}

template <typename Work>
void each_piece(int64_t rows, int64_t channels, Work work) {
  const auto pieces = pieces_of(rows, channels);
  const int64_t count = (int64_t)pieces.size();
  at::parallel_for(0, count, (count + at::get_num_threads() - 1) / at::get_num_threads(), [&](int64_t begin, int64_t end) {
    const auto packed = at::empty({rows * slice}, at::TensorOptions().dtype(at::kFloat));
    for (int64_t i = begin; i < end; i++) work(pieces[i], packed.data_ptr<float>());
  });
}

// Adds `factor` times rows `from` of x to rows `into` of y.
void add_rows(
    const at::Tensor& y, const at::Tensor& into, const at::Tensor& x, const at::Tensor& from, float factor, int64_t h) {
  const int64_t *a = into.data_ptr<int64_t>(), *b = from.data_ptr<int64_t>();
  float* to = y.data_ptr<float>();
  const float* source = x.data_ptr<float>();
  for (int64_t e = 0; e < into.numel(); e++)
    for (int64_t c = 0; c < h; c++) to[a[e] * h + c] += factor * source[b[e] * h + c];
}

void check_places(const at::Tensor& places, int64_t rows, const char* what) {
  TORCH_CHECK(places.scalar_type() == at::kLong && places.is_contiguous() && places.is_cpu(), what, " have to be int64");
  const int64_t* p = places.data_ptr<int64_t>();
  for (int64_t i = 0; i < places.numel(); i++)
    TORCH_CHECK(p[i] >= 0 && p[i] < rows, what, ": row ", p[i], " is not among ", rows);
}

void check_dense(const at::Tensor& x, const char* what) {
  TORCH_CHECK(x.scalar_type() == at::kFloat && x.is_contiguous() && x.is_cpu(), what, " has to be float32, contiguous, on the host");
}

struct SumNeighbours : public torch::autograd::Function<SumNeighbours> {
  static at::Tensor forward(
      AutogradContext* ctx, const at::Tensor& x, const at::Tensor& eps, const at::Tensor& into, const at::Tensor& from,
      c10::intrusive_ptr<NeighboursHandle::Lists> lists) {
    check_dense(x, "x");
    check_dense(eps, "eps");
    const int64_t types = (int64_t)lists->sources.size(), rows = lists->rows, h = x.size(-1);
    TORCH_CHECK(x.dim() >= 2 && x.size(0) == rows && eps.numel() == types,
        "x has ", x.size(0), " rows and eps ", eps.numel(), " entries, of ", rows, " and ", types);
    const int64_t channels = x.numel() / rows;
    TORCH_CHECK(into.numel() == from.numel(), "as many rows that lose as rows that are lost");
    check_places(into, types * x.numel() / h, "removed edges");
    check_places(from, x.numel() / h, "removed edges");
    auto sizes = x.sizes().vec();
    sizes.insert(sizes.begin(), types);
    const auto sums = at::empty(sizes, x.options());
    const float *from_x = x.data_ptr<float>(), *e = eps.data_ptr<float>();
    float* to = sums.data_ptr<float>();
    each_piece(rows, channels, [&](const Piece& piece, float* packed) {
      pack(from_x, rows, channels, piece, packed);
      for (int64_t t = 0; t < types; t++) {
        const List& list = lists->sources[t];
        row_kernels().gather({list.starts.data(), list.columns.data(), piece.first, piece.last, packed,
            to + t * rows * channels + piece.column, channels, piece.channels, false, from_x + piece.column, 1 + e[t]});
      }
    });
    add_rows(sums, into, x, from, -1, h);
    ctx->save_for_backward({x, eps, into, from});
    ctx->saved_data["lists"] = c10::IValue::make_capsule(lists);
    return sums;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &eps = saved[1], &into = saved[2], &from = saved[3];
    const auto lists = c10::static_intrusive_pointer_cast<NeighboursHandle::Lists>(ctx->saved_data["lists"].toCapsule());
    const int64_t types = (int64_t)lists->sources.size(), rows = lists->rows, h = x.size(-1), channels = x.numel() / rows;
    const auto d_sums = gradients[0].to(at::kFloat).contiguous();
    const auto dx = at::empty(x.sizes(), x.options());
    const float *d = d_sums.data_ptr<float>(), *e = eps.data_ptr<float>();
    float* to = dx.data_ptr<float>();
    each_piece(rows, channels, [&](const Piece& piece, float* packed) {
      for (int64_t t = 0; t < types; t++) {
        const List& list = lists->targets[t];
        const float* d_type = d + t * rows * channels;
        pack(d_type, rows, channels, piece, packed);
        row_kernels().gather({list.starts.data(), list.columns.data(), piece.first, piece.last, packed, to + piece.column,
            channels, piece.channels, t > 0, d_type + piece.column, 1 + e[t]});
      }
    });
    add_rows(dx, from, d_sums, into, -1, h);
    const auto d_eps = at::empty(eps.sizes(), eps.options());
    const auto flat = x.reshape({-1});
    for (int64_t t = 0; t < types; t++)
      d_eps.data_ptr<float>()[t] = at::dot(d_sums.select(0, t).reshape({-1}), flat).item<float>();
    return {dx, d_eps, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct SumsOfDiffering : public torch::autograd::Function<SumsOfDiffering> {
  static at::Tensor forward(
      AutogradContext* ctx, const at::Tensor& sums, const at::Tensor& x, const at::Tensor& copied, const at::Tensor& into,
      const at::Tensor& from) {
    check_dense(sums, "sums");
    check_dense(x, "x");
    TORCH_CHECK(sums.dim() == 3 && x.dim() == 2 && x.size(1) == sums.size(2), "sums [T, N, H] and x [N, H]");
    const int64_t types = sums.size(0), rows = sums.size(1), h = sums.size(2), more = copied.numel();
    check_places(copied, rows, "differing rows");
    check_places(into, types * (rows + more), "removed edges");
    check_places(from, x.size(0), "removed edges");
    TORCH_CHECK(into.numel() == from.numel(), "as many rows that lose as rows that are lost");
    const auto all = at::empty({types, rows + more, h}, sums.options());
    const int64_t* places = copied.data_ptr<int64_t>();
    for (int64_t t = 0; t < types; t++) {
      const float* source = sums.data_ptr<float>() + t * rows * h;
      float* to = all.data_ptr<float>() + t * (rows + more) * h;
      std::memcpy(to, source, rows * h * sizeof(float));
      for (int64_t i = 0; i < more; i++) std::memcpy(to + (rows + i) * h, source + places[i] * h, h * sizeof(float));
    }
    add_rows(all, into, x, from, -1, h);
    ctx->save_for_backward({copied, into, from});
    ctx->saved_data["rows"] = x.size(0);
    return all;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &copied = saved[0], &into = saved[1], &from = saved[2];
    const auto d = gradients[0].to(at::kFloat).contiguous();
    const int64_t types = d.size(0), h = d.size(2), more = copied.numel(), rows = d.size(1) - more;
    const auto d_sums = d.slice(1, 0, rows).contiguous();
    const int64_t* places = copied.data_ptr<int64_t>();
    for (int64_t t = 0; t < types; t++) {
      const float* source = d.data_ptr<float>() + (t * (rows + more) + rows) * h;
      float* to = d_sums.data_ptr<float>() + t * rows * h;
      for (int64_t i = 0; i < more; i++)
        for (int64_t c = 0; c < h; c++) to[places[i] * h + c] += source[i * h + c];
    }
    const auto dx = at::zeros({ctx->saved_data["rows"].toInt(), h}, d.options());
    add_rows(dx, from, d, into, -1, h);
    return {d_sums, dx, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

const at::Tensor& borrowed(size_t address) {
  static const at::Tensor none = at::empty({0}, at::TensorOptions().dtype(at::kLong));
  return address == 0 ? none : *reinterpret_cast<const at::Tensor*>(address);
}

size_t given(at::Tensor tensor) {
  return reinterpret_cast<size_t>(new at::Tensor(std::move(tensor)));
}

} // namespace

NeighboursHandle::NeighboursHandle(c10::intrusive_ptr<Lists> lists) : lists_(std::move(lists)) {}
NeighboursHandle::~NeighboursHandle() = default;

void NeighboursHandle::add_type(rust::Slice<const int64_t> sources, rust::Slice<const int64_t> targets) const {
  TORCH_CHECK(sources.size() == targets.size(), sources.size(), " sources and ", targets.size(), " targets");
  TORCH_CHECK(sources.size() <= INT32_MAX, sources.size(), " edges of one type");
  for (const auto& side : {sources, targets})
    for (const int64_t gene : side)
      TORCH_CHECK(gene >= 0 && gene < lists_->rows, "gene ", gene, " is not among ", lists_->rows, " genes");
  lists_->sources.push_back(list_of(lists_->rows, targets, sources));
  lists_->targets.push_back(list_of(lists_->rows, sources, targets));
}

std::unique_ptr<NeighboursHandle> neighbours(int64_t rows) {
  TORCH_CHECK(rows > 0 && rows < INT32_MAX, rows, " genes");
  auto lists = c10::make_intrusive<NeighboursHandle::Lists>();
  lists->rows = rows;
  return std::make_unique<NeighboursHandle>(std::move(lists));
}

size_t sum_neighbours(const NeighboursHandle& neighbours, size_t x, size_t eps, size_t into, size_t from) {
  return given(SumNeighbours::apply(borrowed(x), borrowed(eps), borrowed(into), borrowed(from), neighbours.lists_));
}

size_t sums_of_differing(size_t sums, size_t x, size_t copied, size_t into, size_t from) {
  return given(SumsOfDiffering::apply(borrowed(sums), borrowed(x), borrowed(copied), borrowed(into), borrowed(from)));
}

} // namespace expctl::dist
