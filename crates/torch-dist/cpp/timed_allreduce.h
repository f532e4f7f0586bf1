#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace torch_dist {

// When the buckets of one backward pass were handed over and completed. Of buckets on the host: nanoseconds of the steady clock. On a
// GPU the host only queues them, so the device passes an event at either end, and times are nanoseconds from the first of these
// events; to be read when the device is done. Shared by the autograd thread and the threads of the process group.
class Timeline {
 public:
  struct Interval {
    int64_t start;
    int64_t end;
  };

  struct Totals {
    // Length of the union of the bucket intervals.
    int64_t busy;
    // From the last hand-over until all buckets have completed. That is part of `busy`: no bucket completes later.
    int64_t exposed;
    size_t buckets;
  };

  void begin();
  // A bucket of gradients on `device` is full.
  size_t handed_over(const c10::Device& device);
  // The bucket is reduced. On a GPU, to be called where the current stream waits for the reduced gradients and for nothing else;
  // where the host reduced them, with its `work`, whatever the current stream waits for.
  void completed(size_t bucket, c10d::Work* work = nullptr);

  Totals totals() const;
  // A copy of the intervals of buckets on the host; the end of one that has not completed is 0.
  std::vector<Interval> host_intervals() const;
  // Whether the host has not seen a bucket completed that was handed over. With NCCL it sees that at once: what waits for the other
  // ranks there is the device. The thread that shows signs of life asks, so nothing here may block or fail: no lock is
  // taken, and the device is not asked.
  bool under_way() const noexcept {
    return under_way_ > 0;
  }

 private:
  struct Bucket {
    Interval host;
    // None on the host.
    std::optional<c10::Device> device;
    std::unique_ptr<c10::Event> full;
    std::unique_ptr<c10::Event> reduced;
  };

  std::unique_ptr<c10::Event> copied_back(const c10::Device& device, c10d::Work& work);
  static std::vector<Interval> intervals(const std::vector<Bucket>& buckets);

  mutable std::mutex mutex_;
  std::vector<Bucket> buckets_;
  // For events that wait for a reduction alone; none before the first.
  std::optional<c10::Stream> aside_;
  std::atomic<size_t> under_way_{0};
};

// An all-reduce whose end is written down before anybody who waits for its future learns of it. What was sent in another type than
// that of `gradients` is converted back into them first.
class TimedWork final : public c10d::Work {
 public:
  // `by_host`: the gradients are on a GPU, and the host reduces them.
  TimedWork(
      c10::intrusive_ptr<c10d::Work> inner,
      at::Tensor gradients,
      std::shared_ptr<Timeline> timeline,
      size_t slot,
      bool by_host);

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
  TimedBackend(
      c10::intrusive_ptr<c10d::Backend> inner,
      std::optional<at::ScalarType> sent,
      std::shared_ptr<Timeline> timeline)
      : Backend(inner->getRank(), inner->getSize()),
        inner_(std::move(inner)),
        sent_(sent),
        timeline_(std::move(timeline)) {}

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
  // What gradients are sent as; none sends them as they are.
  std::optional<at::ScalarType> sent_;
  std::shared_ptr<Timeline> timeline_;
};

// The same group for a reducer of gradients on `device`, with its all-reduces timed.
c10::intrusive_ptr<c10d::ProcessGroup> timed_group(
    const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    c10::DeviceType device,
    std::optional<at::ScalarType> sent,
    const std::shared_ptr<Timeline>& timeline);

} // namespace torch_dist
