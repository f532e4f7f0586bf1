#pragma once
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace expctl::dist {

// When the buckets of one backward pass were handed over and completed; nanoseconds of the steady clock.
// Shared by the autograd thread and the threads of the process group.
class Timeline {
 public:
  struct Interval {
    int64_t start;
    int64_t end;
  };

  void begin();
  size_t handed_over();
  void completed(size_t bucket);

  // Length of the union of the bucket intervals.
  int64_t busy() const;
  // From the last hand-over until all buckets have completed. That is part of `busy`: no bucket completes later.
  int64_t exposed() const;
  size_t buckets() const;
  // Whether a bucket that was handed over has not completed.
  bool under_way() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Interval> intervals_;
};

// What the reducer does by default with a bucket (divide by the world size, start an all-reduce, let the backward pass
// go on), with the times written down.
class TimedAllreduce final : public c10d::CommHookInterface {
 public:
  TimedAllreduce(c10::intrusive_ptr<c10d::ProcessGroup> group, std::shared_ptr<Timeline> timeline)
      : group_(std::move(group)), timeline_(std::move(timeline)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override;
  at::Tensor parseHookResult(const c10::IValue& result) override;

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::shared_ptr<Timeline> timeline_;
};

} // namespace expctl::dist
