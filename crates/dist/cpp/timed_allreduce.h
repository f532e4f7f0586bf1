#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
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
  // A copy of all intervals; the end of one that has not completed is 0.
  std::vector<Interval> intervals() const;
  // Whether a bucket that was handed over has not completed.
  bool under_way() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Interval> intervals_;
};

// An all-reduce whose end is written down before anybody who waits for its future learns of it.
class TimedWork final : public c10d::Work {
 public:
  TimedWork(c10::intrusive_ptr<c10d::Work> inner, std::shared_ptr<Timeline> timeline, size_t slot);

  bool isCompleted() override;
  bool isSuccess() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  c10::intrusive_ptr<c10d::Work> inner_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// The backend of a group with the times of its all-reduces written down, as far as the reducer uses one. It stands in the place
// of a communication hook: with a hook the reducer copies gradients into buckets as they are, and dividing them by the world
// size is one more pass over all of them; without one it divides while it copies.
class TimedBackend final : public c10d::Backend {
 public:
  TimedBackend(c10::intrusive_ptr<c10d::Backend> inner, std::shared_ptr<Timeline> timeline)
      : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)), timeline_(std::move(timeline)) {}

  const std::string getBackendName() const override {
    return inner_->getBackendName();
  }
  c10::intrusive_ptr<c10d::Work> allreduce(
      std::vector<at::Tensor>& tensors,
      const c10d::AllreduceOptions& options = c10d::AllreduceOptions()) override;
  c10::intrusive_ptr<c10d::Work> broadcast(
      std::vector<at::Tensor>& tensors,
      const c10d::BroadcastOptions& options = c10d::BroadcastOptions()) override;

 private:
  c10::intrusive_ptr<c10d::Backend> inner_;
  std::shared_ptr<Timeline> timeline_;
};

// The same group for the reducer, with its all-reduces timed.
c10::intrusive_ptr<c10d::ProcessGroup> timed_group(
    const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    const std::shared_ptr<Timeline>& timeline);

} // namespace expctl::dist
