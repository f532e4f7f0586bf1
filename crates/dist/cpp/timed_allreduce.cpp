#include "timed_allreduce.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/to.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>

namespace expctl::dist {

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

} // namespace

void Timeline::begin() {
  const std::lock_guard<std::mutex> lock(mutex_);
  buckets_.clear();
}

size_t Timeline::handed_over(const at::Tensor& gradients) {
  const auto device = gradients.device();
  const std::lock_guard<std::mutex> lock(mutex_);
  Bucket bucket;
  bucket.host = {now(), 0};
  if (!device.is_cpu()) {
    bucket.device = device;
    bucket.full = passed(device);
  }
  buckets_.push_back(std::move(bucket));
  return buckets_.size() - 1;
}

void Timeline::completed(size_t bucket) {
  const auto time = now();
  const std::lock_guard<std::mutex> lock(mutex_);
  // A late completion of an abandoned pass finds its entry gone.
  if (bucket >= buckets_.size()) {
    return;
  }
  buckets_[bucket].host.end = time;
  if (buckets_[bucket].device) {
    buckets_[bucket].reduced = passed(*buckets_[bucket].device);
  }
}

std::vector<Timeline::Interval> Timeline::times(const std::vector<Bucket>& buckets) {
  std::vector<Interval> times;
  times.reserve(buckets.size());
  for (const auto& bucket : buckets) {
    if (!bucket.device) {
      times.push_back(bucket.host);
      continue;
    }
    const auto at = [&](const std::unique_ptr<c10::Event>& event) {
      return event == nullptr ? 0 : static_cast<int64_t>(buckets.front().full->elapsedTime(*event) * 1e6);
    };
    times.push_back({at(bucket.full), at(bucket.reduced)});
  }
  return times;
}

int64_t Timeline::busy() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  // Hand-overs are in order of time, so one pass over the intervals merges them.
  int64_t total = 0;
  int64_t covered = 0;
  for (const auto& interval : times(buckets_)) {
    const auto start = std::max(interval.start, covered);
    total += std::max<int64_t>(interval.end - start, 0);
    covered = std::max(covered, interval.end);
  }
  return total;
}

int64_t Timeline::exposed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto intervals = times(buckets_);
  if (intervals.empty()) {
    return 0;
  }
  // Buckets may complete in another order than they were handed over in.
  int64_t completed = 0;
  for (const auto& interval : intervals) {
    completed = std::max(completed, interval.end);
  }
  return std::max<int64_t>(completed - intervals.back().start, 0);
}

bool Timeline::under_way() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(buckets_.begin(), buckets_.end(), [](const Bucket& bucket) {
    return bucket.host.end == 0 || (bucket.reduced != nullptr && !bucket.reduced->query());
  });
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

size_t Timeline::buckets() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return buckets_.size();
}

TimedWork::TimedWork(
    c10::intrusive_ptr<c10d::Work> inner,
    at::Tensor gradients,
    std::shared_ptr<Timeline> timeline,
    size_t slot)
    : Work(-1, c10d::OpType::ALLREDUCE), inner_(std::move(inner)) {
  auto reduced = inner_->getFuture();
  // A future derived from the group's own one: it completes only after the time is written down.
  future_ = reduced->then(
      [gradients = std::move(gradients), timeline = std::move(timeline), slot](c10::ivalue::Future& done) {
        if (!gradients.defined()) {
          timeline->completed(slot);
          return done.value();
        }
        const auto sent = done.value();
        const at::NoGradGuard no_grad;
        gradients.copy_(sent.isTensorList() ? sent.toTensorVector()[0] : sent.toTensor());
        timeline->completed(slot);
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
  const auto slot = timeline_->handed_over(tensors[0]);
  if (!sent_ || tensors[0].scalar_type() == *sent_) {
    return c10::make_intrusive<TimedWork>(inner_->allreduce(tensors, options), at::Tensor(), timeline_, slot);
  }
  // The reducer has divided by the number of ranks already: the sum stays in range.
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> sent{tensors[0].to(*sent_)};
  return c10::make_intrusive<TimedWork>(inner_->allreduce(sent, options), tensors[0], timeline_, slot);
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
  const auto kind =
      backend->getBackendName() == "nccl" ? c10d::ProcessGroup::BackendType::NCCL : c10d::ProcessGroup::BackendType::GLOO;
  timed->setBackend(device, kind, c10::make_intrusive<TimedBackend>(backend, sent, timeline));
  timed->setDefaultBackend(kind);
  return timed;
}

} // namespace expctl::dist
