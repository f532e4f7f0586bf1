#include "timed_allreduce.h"

#include <torch/csrc/autograd/engine.h>

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
  finalised_ = 0;
  has_result_ = false;
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

bool Timeline::first_result() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !std::exchange(has_result_, true);
}

void Timeline::finalised() {
  const auto time = now();
  const std::lock_guard<std::mutex> lock(mutex_);
  finalised_ = time;
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
  return intervals_.empty() ? 0 : std::max<int64_t>(finalised_ - intervals_.back().start, 0);
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
  // The reducer asks for results inside its own final callback of the backward pass. A callback that is queued there
  // runs after it, that is, when all gradients have been copied back.
  if (timeline_->first_result()) {
    torch::autograd::Engine::get_default_engine().queue_callback([timeline = timeline_] { timeline->finalised(); });
  }
  return c10d::detail::parseCppCommHookResult(result);
}

} // namespace expctl::dist
