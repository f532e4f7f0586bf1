#include "borrowed.h"
#include "kernel_choice.h"
#include "numbers.h"
#include "shared_layer.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstring>
#include <vector>

namespace torch_dist {

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

constexpr int64_t slice = 64; // numbers of each row that are worked on at a time: N of them fit a core's cache

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

template <typename Real>
void pack(const Real* x, int64_t rows, int64_t stride, const Piece& piece, Real* packed) {
  for (int64_t i = 0; i < rows; i++) {
    std::memcpy(packed + i * slice, x + i * stride + piece.column, piece.channels * sizeof(Real));
    if (piece.channels < slice)
      std::memset(packed + i * slice + piece.channels, 0, (slice - piece.channels) * sizeof(Real));
  }
}

template <typename Real, typename Work>
void each_piece(int64_t rows, int64_t channels, Work work) {
  const auto pieces = pieces_of(rows, channels);
  const int64_t count = (int64_t)pieces.size();
  at::parallel_for(0, count, (count + at::get_num_threads() - 1) / at::get_num_threads(), [&](int64_t begin, int64_t end) {
    const at::Tensor packed = at::empty({rows * slice}, at::TensorOptions().dtype(kind_of<Real>));
    for (int64_t i = begin; i < end; i++) work(pieces[i], packed.data_ptr<Real>());
  });
}

// Adds `factor` times rows `from` of x to rows `into` of y.
template <typename Real>
void add_rows(
    const at::Tensor& y, const at::Tensor& into, const at::Tensor& x, const at::Tensor& from, Real factor, int64_t h) {
  const int64_t *a = into.data_ptr<int64_t>(), *b = from.data_ptr<int64_t>();
  Real* to = y.data_ptr<Real>();
  const Real* source = x.data_ptr<Real>();
  for (int64_t e = 0; e < into.numel(); e++)
    for (int64_t c = 0; c < h; c++) to[a[e] * h + c] += factor * source[b[e] * h + c];
}

void check_places(const at::Tensor& places, int64_t rows, const char* what) {
  TORCH_CHECK(places.scalar_type() == at::kLong && places.is_contiguous() && places.is_cpu(), what, " have to be int64");
  const int64_t* p = places.data_ptr<int64_t>();
  for (int64_t i = 0; i < places.numel(); i++)
    TORCH_CHECK(p[i] >= 0 && p[i] < rows, what, ": row ", p[i], " is not among ", rows);
}

template <typename Real>
void check_dense(const at::Tensor& x, const char* what) {
  TORCH_CHECK(x.scalar_type() == kind_of<Real> && x.is_contiguous() && x.is_cpu(), what, " has to be ", kind_of<Real>,
      ", contiguous, on the host");
}

template <typename Real>
struct SumNeighbours : public torch::autograd::Function<SumNeighbours<Real>> {
  static at::Tensor forward(
      AutogradContext* ctx, const at::Tensor& x, const at::Tensor& eps, const at::Tensor& into, const at::Tensor& from,
      c10::intrusive_ptr<NeighboursHandle::Lists> lists) {
    RECORD_FUNCTION("expctl::sum_neighbours", std::vector<c10::IValue>{});
    check_dense<Real>(x, "x");
    check_dense<Real>(eps, "eps");
    const int64_t types = (int64_t)lists->sources.size(), rows = lists->rows, h = x.size(-1);
    TORCH_CHECK(h > 0, "x has rows without channels");
    TORCH_CHECK(x.dim() >= 2 && x.size(0) == rows && eps.numel() == types,
        "x has ", x.size(0), " rows and eps ", eps.numel(), " entries, of ", rows, " and ", types);
    const int64_t channels = x.numel() / rows;
    TORCH_CHECK(into.numel() == from.numel(), "as many rows that lose as rows that are lost");
    check_places(into, types * x.numel() / h, "removed edges");
    check_places(from, x.numel() / h, "removed edges");
    auto sizes = x.sizes().vec();
    sizes.insert(sizes.begin(), types);
    const at::Tensor sums = at::empty(sizes, x.options());
    const Real *from_x = x.data_ptr<Real>(), *e = eps.data_ptr<Real>();
    Real* to = sums.data_ptr<Real>();
    each_piece<Real>(rows, channels, [&](const Piece& piece, Real* packed) {
      pack(from_x, rows, channels, piece, packed);
      for (int64_t t = 0; t < types; t++) {
        const List& list = lists->sources[t];
        row_kernels<Real>().gather({list.starts.data(), list.columns.data(), piece.first, piece.last, packed,
            to + t * rows * channels + piece.column, channels, piece.channels, false, from_x + piece.column, 1 + e[t]});
      }
    });
    add_rows<Real>(sums, into, x, from, -1, h);
    ctx->save_for_backward({x, eps, into, from});
    ctx->saved_data["lists"] = c10::IValue::make_capsule(lists);
    return sums;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    RECORD_FUNCTION("expctl::sum_neighbours_backward", std::vector<c10::IValue>{});
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &eps = saved[1], &into = saved[2], &from = saved[3];
    const auto lists = c10::static_intrusive_pointer_cast<NeighboursHandle::Lists>(ctx->saved_data["lists"].toCapsule());
    const int64_t types = (int64_t)lists->sources.size(), rows = lists->rows, h = x.size(-1), channels = x.numel() / rows;
    const at::Tensor d_sums = gradients[0].to(kind_of<Real>).contiguous();
    const at::Tensor dx = at::empty(x.sizes(), x.options());
    const Real *d = d_sums.data_ptr<Real>(), *e = eps.data_ptr<Real>();
    Real* to = dx.data_ptr<Real>();
    each_piece<Real>(rows, channels, [&](const Piece& piece, Real* packed) {
      for (int64_t t = 0; t < types; t++) {
        const List& list = lists->targets[t];
        const Real* d_type = d + t * rows * channels;
        pack(d_type, rows, channels, piece, packed);
        row_kernels<Real>().gather({list.starts.data(), list.columns.data(), piece.first, piece.last, packed, to + piece.column,
            channels, piece.channels, t > 0, d_type + piece.column, 1 + e[t]});
      }
    });
    add_rows<Real>(dx, from, d_sums, into, -1, h);
    const at::Tensor d_eps = at::empty(eps.sizes(), eps.options());
    const Real* source = x.data_ptr<Real>();
    Real* by_eps = d_eps.data_ptr<Real>();
    at::parallel_for(0, types, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; t++) by_eps[t] = (Real)row_kernels<Real>().dot(d + t * x.numel(), source, x.numel());
    });
    return {dx, d_eps, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

template <typename Real>
struct SumsOfDiffering : public torch::autograd::Function<SumsOfDiffering<Real>> {
  static at::Tensor forward(
      AutogradContext* ctx, const at::Tensor& sums, const at::Tensor& x, const at::Tensor& copied, const at::Tensor& into,
      const at::Tensor& from) {
    RECORD_FUNCTION("expctl::sums_of_differing", std::vector<c10::IValue>{});
    check_dense<Real>(sums, "sums");
    check_dense<Real>(x, "x");
    TORCH_CHECK(sums.dim() == 3 && x.dim() == 2 && x.size(1) == sums.size(2), "sums [T, N, H] and x [N, H]");
    const int64_t types = sums.size(0), rows = sums.size(1), h = sums.size(2), more = copied.numel();
    check_places(copied, rows, "differing rows");
    check_places(into, types * (rows + more), "removed edges");
    check_places(from, x.size(0), "removed edges");
    TORCH_CHECK(into.numel() == from.numel(), "as many rows that lose as rows that are lost");
    const at::Tensor all = at::empty({types, rows + more, h}, sums.options());
    const int64_t* places = copied.data_ptr<int64_t>();
    for (int64_t t = 0; t < types; t++) {
      const Real* source = sums.data_ptr<Real>() + t * rows * h;
      Real* to = all.data_ptr<Real>() + t * (rows + more) * h;
      std::memcpy(to, source, rows * h * sizeof(Real));
      for (int64_t i = 0; i < more; i++) std::memcpy(to + (rows + i) * h, source + places[i] * h, h * sizeof(Real));
    }
    add_rows<Real>(all, into, x, from, -1, h);
    ctx->save_for_backward({copied, into, from});
    ctx->saved_data["rows"] = x.size(0);
    return all;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    RECORD_FUNCTION("expctl::sums_of_differing_backward", std::vector<c10::IValue>{});
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &copied = saved[0], &into = saved[1], &from = saved[2];
    const at::Tensor d = gradients[0].to(kind_of<Real>).contiguous();
    const int64_t types = d.size(0), h = d.size(2), more = copied.numel(), rows = d.size(1) - more;
    const at::Tensor d_sums = d.slice(1, 0, rows).contiguous();
    const int64_t* places = copied.data_ptr<int64_t>();
    for (int64_t t = 0; t < types; t++) {
      const Real* source = d.data_ptr<Real>() + (t * (rows + more) + rows) * h;
      Real* to = d_sums.data_ptr<Real>() + t * rows * h;
      for (int64_t i = 0; i < more; i++)
        for (int64_t c = 0; c < h; c++) to[places[i] * h + c] += source[i * h + c];
    }
    const at::Tensor dx = at::zeros({ctx->saved_data["rows"].toInt(), h}, d.options());
    add_rows<Real>(dx, from, d, into, -1, h);
    return {d_sums, dx, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// No tensor is 0.
const at::Tensor& borrowed_or_none(size_t address) {
  static const at::Tensor none = at::empty({0}, at::TensorOptions().dtype(at::kLong));
  return address == 0 ? none : *reinterpret_cast<const at::Tensor*>(address);
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
  const at::Tensor &from_x = borrowed_or_none(x), &e = borrowed_or_none(eps), &a = borrowed_or_none(into), &b = borrowed_or_none(from);
  return given(in_double(from_x) ? SumNeighbours<double>::apply(from_x, e, a, b, neighbours.lists_)
                                 : SumNeighbours<float>::apply(from_x, e, a, b, neighbours.lists_));
}

size_t sums_of_differing(size_t sums, size_t x, size_t copied, size_t into, size_t from) {
  const at::Tensor &y = borrowed_or_none(sums), &from_x = borrowed_or_none(x), &c = borrowed_or_none(copied), &a = borrowed_or_none(into), &b = borrowed_or_none(from);
  return given(in_double(y) ? SumsOfDiffering<double>::apply(y, from_x, c, a, b)
                            : SumsOfDiffering<float>::apply(y, from_x, c, a, b));
}

} // namespace torch_dist
