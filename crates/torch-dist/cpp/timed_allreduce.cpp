#include "timed_allreduce.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/to.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>

namespace torch_dist {

namespace {

int64_t now() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

// Where the current stream of `device` is now.
std::unique_ptr<c10::Event> passed(const c10::Device& device) {
  auto event = std::make_unique<c10::Event>(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  event->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return event;
}

bool is_nccl(const c10d::Backend& backend) {
  return backend.getBackendName() == "nccl";
}

// Refuses to reduce gradients of a GPU by the host where the current stream is not the default one. Gloo's threads make the default
// stream of the device wait for what they copied back, and no other: on a stream of its own (as CUDA graphs want one), a backward
// pass would read gradients that are not reduced yet.
void check_default_stream(const c10::Device& device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  TORCH_CHECK(
      guard.getStream(device) == guard.getDefaultStream(device),
      "Gloo reduces gradients of the default stream only, and the backward pass runs on another one");
}

} // namespace

void Timeline::begin() {
  const std::lock_guard<std::mutex> lock(mutex_);
  buckets_.clear();
  under_way_ = 0;
}

size_t Timeline::handed_over(const c10::Device& device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Bucket bucket;
  bucket.host = {now(), 0};
  if (!device.is_cpu()) {
    bucket.device = device;
    bucket.full = passed(device);
  }
  buckets_.push_back(std::move(bucket));
  ++under_way_;
  return buckets_.size() - 1;
}

void Timeline::completed(size_t slot, c10d::Work* work) {
  const auto time = now();
  const std::lock_guard<std::mutex> lock(mutex_);
  // A late completion of an abandoned pass finds its entry gone.
  if (slot >= buckets_.size()) {
    return;
  }
  auto& bucket = buckets_[slot];
  if (bucket.host.end == 0) {
    bucket.host.end = time;
    --under_way_;
  }
  if (bucket.device) {
    bucket.reduced = work == nullptr ? passed(*bucket.device) : copied_back(*bucket.device, *work);
  }
}

// On a stream of its own: on the current one of the process group's thread, which is that of the backward pass, the event would
// come behind everything that the pass has queued meanwhile.
std::unique_ptr<c10::Event> Timeline::copied_back(const c10::Device& device, c10d::Work& work) {
  if (!aside_) {
    aside_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  }
  const c10::StreamGuard aside(*aside_);
  work.synchronize();
  return passed(device);
}

std::vector<Timeline::Interval> Timeline::intervals(const std::vector<Bucket>& buckets) {
  std::vector<Interval> intervals;
  intervals.reserve(buckets.size());
  for (const auto& bucket : buckets) {
    if (!bucket.device) {
      intervals.push_back(bucket.host);
      continue;
    }
    const auto at = [&](const std::unique_ptr<c10::Event>& event) -> int64_t {
      if (event == nullptr) {
        return 0;
      }
      // One on a stream of its own may come a moment after the step's stream, which waited for the same copy.
      event->synchronize();
      return static_cast<int64_t>(buckets.front().full->elapsedTime(*event) * 1e6);
    };
    intervals.push_back({at(bucket.full), at(bucket.reduced)});
  }
  return intervals;
}

Timeline::Totals Timeline::totals() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto buckets = intervals(buckets_);
  if (buckets.empty()) {
    return {0, 0, 0};
  }
  // Hand-overs are in order of time, so one pass over the intervals merges them; completions may be in another order.
  int64_t busy = 0;
  int64_t covered = 0;
  for (const auto& bucket : buckets) {
    busy += std::max<int64_t>(bucket.end - std::max(bucket.start, covered), 0);
    covered = std::max(covered, bucket.end);
  }
  return {busy, std::max<int64_t>(covered - buckets.back().start, 0), buckets.size()};
}

std::vector<Timeline::Interval> Timeline::host_intervals() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Interval> intervals;
  for (const auto& bucket : buckets_) {
    if (!bucket.device) {
      intervals.push_back(bucket.host);
    }
  }
  return intervals;
}

TimedWork::TimedWork(
    c10::intrusive_ptr<c10d::Work> inner,
    at::Tensor gradients,
    std::shared_ptr<Timeline> timeline,
    size_t slot,
    bool by_host)
    : Work(-1, c10d::OpType::ALLREDUCE), inner_(std::move(inner)) {
  auto reduced = inner_->getFuture();
  // Weak: the work owns the future, and the future its callbacks.
  const c10::weak_intrusive_ptr<c10d::Work> by(by_host ? inner_ : c10::intrusive_ptr<c10d::Work>());
  // A future derived from the group's own one: it completes only after the time is written down.
  future_ = reduced->then(
      [gradients = std::move(gradients), timeline = std::move(timeline), slot, by](c10::ivalue::Future& done) {
        const auto work = by.lock();
        if (!gradients.defined()) {
          timeline->completed(slot, work.get());
          return done.value();
        }
        const auto sent = done.value();
        const at::NoGradGuard no_grad;
        gradients.copy_(sent.isTensorList() ? sent.toTensorVector()[0] : sent.toTensor());
        timeline->completed(slot, work.get());
        return c10::IValue(std::vector<at::Tensor>{gradients});
      },
      reduced->elementType());
}

bool TimedWork::isCompleted() {
  return future_->completed();
}

bool TimedWork::isSuccess() const {
  return future_->completed() && !future_->hasError();
}

bool TimedWork::wait(std::chrono::milliseconds timeout) {
  const auto done = inner_->wait(timeout);
  future_->wait();
  return done;
}

void TimedWork::abort() {
  inner_->abort();
}

c10::intrusive_ptr<c10::ivalue::Future> TimedWork::getFuture() {
  return future_;
}

c10::intrusive_ptr<c10d::Work> TimedBackend::allreduce(
    std::vector<at::Tensor>& tensors,
    const c10d::AllreduceOptions& options) {
  // The reducer's own map of used parameters is whole numbers; it is no bucket.
  if (tensors.empty() || !tensors[0].is_floating_point()) {
    return inner_->allreduce(tensors, options);
  }
  const auto device = tensors[0].device();
  const bool by_host = !device.is_cpu() && !is_nccl(*inner_);
  if (by_host) {
    check_default_stream(device);
  }
  const auto slot = timeline_->handed_over(device);
  if (!sent_ || tensors[0].scalar_type() == *sent_) {
    return c10::make_intrusive<TimedWork>(inner_->allreduce(tensors, options), at::Tensor(), timeline_, slot, by_host);
  }
  // The reducer has divided by the number of ranks already: the sum stays in range.
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> sent{tensors[0].to(*sent_)};
  return c10::make_intrusive<TimedWork>(inner_->allreduce(sent, options), tensors[0], timeline_, slot, by_host);
}

c10::intrusive_ptr<c10d::Work> TimedBackend::broadcast(
    std::vector<at::Tensor>& tensors,
    const c10d::BroadcastOptions& options) {
  return inner_->broadcast(tensors, options);
}

c10::intrusive_ptr<c10d::ProcessGroup> timed_group(
    const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    c10::DeviceType device,
    std::optional<at::ScalarType> sent,
    const std::shared_ptr<Timeline>& timeline) {
  auto timed = c10::make_intrusive<c10d::ProcessGroup>(group->getStore(), group->getRank(), group->getSize());
  const auto backend = group->getBackend(device);
  const auto kind = is_nccl(*backend) ? c10d::ProcessGroup::BackendType::NCCL : c10d::ProcessGroup::BackendType::GLOO;
  timed->setBackend(device, kind, c10::make_intrusive<TimedBackend>(backend, sent, timeline));
  timed->setDefaultBackend(kind);
  return timed;
}

} // namespace torch_dist
