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

size_t Timeline::buckets() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return intervals_.size();
}

c10::intrusive_ptr<c10::ivalue::Future> TimedAllreduce::runHook(c10d::GradBucket& bucket) {
  const auto slot = timeline_->handed_over();
  std::vector<at::Tensor> tensors{bucket.getBufferRef()};
  tensors[0].div_(group_->getSize());
  auto reduced = group_->allreduce(tensors)->getFuture();
  // A future derived from the group's own one: it completes only after the time is written down.
  return reduced->then(
      [timeline = timeline_, slot](c10::ivalue::Future& done) {
        timeline->completed(slot);
        return done.value();
      },
      reduced->elementType());
}

at::Tensor TimedAllreduce::parseHookResult(const c10::IValue& result) {
  return c10d::detail::parseCppCommHookResult(result);
}

} // namespace expctl::dist
