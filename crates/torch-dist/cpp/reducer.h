#pragma once
#include "group.h"
#include "timed_allreduce.h"

#include <torch/csrc/distributed/c10d/reducer.hpp>

namespace torch_dist {

struct BucketTimes;
struct BucketInterval;

// A look at a reducer's communication from another thread.
class TimelineHandle {
 public:
  explicit TimelineHandle(std::shared_ptr<Timeline> timeline) : timeline_(std::move(timeline)) {}

  bool under_way() const noexcept {
    return timeline_->under_way();
  }

 private:
  std::shared_ptr<Timeline> timeline_;
};

class ReducerHandle {
 public:
  ReducerHandle(std::unique_ptr<c10d::Reducer> reducer, std::shared_ptr<Timeline> timeline)
      : timeline_(std::move(timeline)), reducer_(std::move(reducer)) {}
  ~ReducerHandle();

  bool prepare_forward() const;
  void prepare_backward(rust::Slice<const size_t> outputs) const;
  BucketTimes times() const;
  rust::Vec<BucketInterval> buckets() const;
  std::unique_ptr<TimelineHandle> timeline() const;

 private:
  std::shared_ptr<Timeline> timeline_;
  std::unique_ptr<c10d::Reducer> reducer_;
};

// Gradients are sent as `sent`, "fp16" or "bf16"; empty sends them as they are.
std::unique_ptr<ReducerHandle> open_reducer(
    const GroupHandle& group,
    rust::Slice<const size_t> parameters,
    rust::Slice<const rust::String> names,
    uint64_t bucket_cap,
    uint64_t first_bucket,
    bool find_unused,
    rust::Str sent);

} // namespace torch_dist
