#include "timed_allreduce.h"

#include <algorithm>
#include <chrono>

namespace expctl::dist {

namespace {

int64_t now() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

} // namespace

void Timeline::begin() {
  const std::lock_guard<std::mutex> lock(mutex_);
  intervals_.clear();
}

size_t Timeline::handed_over() {
  const std::lock_guard<std::mutex> lock(mutex_);
  intervals_.push_back({now(), 0});
  return intervals_.size() - 1;
}

void Timeline::completed(size_t bucket) {
  const auto time = now();
  const std::lock_guard<std::mutex> lock(mutex_);
  // A late completion of an abandoned pass finds its entry gone.
  if (bucket < intervals_.size()) {
    intervals_[bucket].end = time;
  }
}

int64_t Timeline::busy() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  // Hand-overs are in order of time, so one pass over the intervals merges them.
  int64_t total = 0;
  int64_t covered = 0;
  for (const auto& interval : intervals_) {
    const auto start = std::max(interval.start, covered);
    total += std::max<int64_t>(interval.end - start, 0);
    covered = std::max(covered, interval.end);
  }
  return total;
}

int64_t Timeline::exposed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (intervals_.empty()) {
    return 0;
  }
  // Buckets may complete in another order than they were handed over in.
  int64_t completed = 0;
  for (const auto& interval : intervals_) {
    completed = std::max(completed, interval.end);
  }
  return std::max<int64_t>(completed - intervals_.back().start, 0);
}

bool Timeline::under_way() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(intervals_.begin(), intervals_.end(), [](const Interval& i) { return i.end == 0; });
}

std::vector<Timeline::Interval> Timeline::intervals() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return intervals_;
}

size_t Timeline::buckets() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return intervals_.size();
}

TimedWork::TimedWork(c10::intrusive_ptr<c10d::Work> inner, std::shared_ptr<Timeline> timeline, size_t slot)
    : Work(-1, c10d::OpType::ALLREDUCE), inner_(std::move(inner)) {
  auto reduced = inner_->getFuture();
  // A future derived from the group's own one: it completes only after the time is written down.
  future_ = reduced->then(
      [timeline = std::move(timeline), slot](c10::ivalue::Future& done) {
        timeline->completed(slot);
        return done.value();
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
  return inner_->wait(timeout);
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
  const auto slot = timeline_->handed_over();
  return c10::make_intrusive<TimedWork>(inner_->allreduce(tensors, options), timeline_, slot);
}

c10::intrusive_ptr<c10d::Work> TimedBackend::broadcast(
    std::vector<at::Tensor>& tensors,
    const c10d::BroadcastOptions& options) {
  return inner_->broadcast(tensors, options);
}

c10::intrusive_ptr<c10d::ProcessGroup> timed_group(
    const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    const std::shared_ptr<Timeline>& timeline) {
  auto timed = c10::make_intrusive<c10d::ProcessGroup>(group->getStore(), group->getRank(), group->getSize());
  const auto kind = group->getBackendType();
  timed->setBackend(
      c10::DeviceType::CPU,
      kind,
      c10::make_intrusive<TimedBackend>(group->getBackend(c10::DeviceType::CPU), timeline));
  timed->setDefaultBackend(kind);
  return timed;
}

} // namespace expctl::dist
