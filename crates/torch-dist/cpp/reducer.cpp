#include "reducer.h"

#include "torch-dist/src/ffi.rs.h"

#include <algorithm>
#include <limits>

namespace torch_dist {

namespace {

std::optional<at::ScalarType> type_of(rust::Str sent) {
  if (sent == "fp16") {
    return at::kHalf;
  }
  if (sent == "bf16") {
    return at::kBFloat16;
  }
  return std::nullopt;
}

} // namespace

// The steps and defaults of torch.nn.parallel.DistributedDataParallel, in its order.
std::unique_ptr<ReducerHandle> open_reducer(
    const GroupHandle& group,
    rust::Slice<const size_t> parameters,
    rust::Slice<const rust::String> names,
    uint64_t bucket_cap,
    uint64_t first_bucket,
    bool find_unused,
    rust::Str sent) {
  const auto params = borrowed(parameters);
  const auto& process_group = group.inner();
  c10d::verify_params_across_processes(process_group, params, std::nullopt);

  std::vector<at::Tensor> states;
  states.reserve(params.size());
  for (const auto& param : params) {
    states.push_back(param.detach());
  }
  constexpr size_t broadcast_bucket = 250 * 1024 * 1024;
  c10d::broadcast_coalesced(process_group, states, broadcast_bucket, 0);

  // Buckets that will be rebuilt in the order of the first backward pass start as one.
  std::vector<size_t> limits;
  if (find_unused) {
    limits = {first_bucket, bucket_cap};
  } else {
    limits = {std::numeric_limits<size_t>::max()};
  }
  const std::vector<bool> expect_sparse(params.size(), false);
  auto [indices, caps] = c10d::compute_bucket_assignment_by_size(params, limits, expect_sparse);
  std::reverse(indices.begin(), indices.end());

  std::unordered_map<size_t, std::string> param_names;
  for (size_t i = 0; i < names.size(); ++i) {
    param_names.emplace(i, std::string(names[i].data(), names[i].size()));
  }
  const auto device = params.empty() ? c10::DeviceType::CPU : params[0].device().type();
  auto timeline = std::make_shared<Timeline>();
  auto reducer = std::make_unique<c10d::Reducer>(
      params,
      std::move(indices),
      timed_group(process_group, device, type_of(sent), timeline),
      expect_sparse,
      static_cast<int64_t>(bucket_cap),
      find_unused,
      /*gradient_as_bucket_view=*/false,
      std::move(param_names),
      static_cast<int64_t>(first_bucket),
      /*skip_all_reduce_unused_params=*/false,
      /*use_python_reducer=*/false,
      /*bucket_bytes_cap_list=*/std::vector<int64_t>{});
  return std::make_unique<ReducerHandle>(std::move(reducer), std::move(timeline));
}

ReducerHandle::~ReducerHandle() {
  try {
    delete reducer_.release();
  } catch (...) {
    // Its destructor may throw; this one may not.
  }
}

bool ReducerHandle::prepare_forward() const {
  reducer_->prepare_for_forward();
  return reducer_->rebuild_buckets();
}

void ReducerHandle::prepare_backward(rust::Slice<const size_t> outputs) const {
  timeline_->begin();
  reducer_->prepare_for_backward(borrowed(outputs));
}

std::unique_ptr<TimelineHandle> ReducerHandle::timeline() const {
  return std::make_unique<TimelineHandle>(timeline_);
}

rust::Vec<BucketInterval> ReducerHandle::buckets() const {
  rust::Vec<BucketInterval> out;
  for (const auto& interval : timeline_->host_intervals()) {
    out.push_back(BucketInterval{interval.start, interval.end});
  }
  return out;
}

BucketTimes ReducerHandle::times() const {
  const auto totals = timeline_->totals();
  return BucketTimes{
      static_cast<uint64_t>(totals.busy), static_cast<uint64_t>(totals.exposed), static_cast<uint64_t>(totals.buckets)};
}

} // namespace torch_dist
