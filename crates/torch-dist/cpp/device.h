#pragma once
#include "errors.h"
#include "rust/cxx.h"

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdint>
#include <memory>

namespace torch_dist {

// GPUs that libtorch sees, once its CUDA library is loaded.
int32_t visible_gpus();
void choose_gpu(int32_t device);

// From here on ranges of the profiler are ranges of NVTX, too.
void annotate_ranges();
bool annotates_ranges();

// A stream of a GPU, of libtorch's pool.
class StreamHandle {
 public:
  explicit StreamHandle(c10::Stream stream) : stream_(stream) {}
  const c10::Stream& inner() const {
    return stream_;
  }

 private:
  c10::Stream stream_;
};

std::unique_ptr<StreamHandle> open_stream(int32_t device);
std::unique_ptr<StreamHandle> current_stream(int32_t device);

// The stream is the current one of this thread while this exists.
class StreamScopeHandle {
 public:
  explicit StreamScopeHandle(const c10::Stream& stream) : guard_(stream) {}

 private:
  c10::StreamGuard guard_;
};

std::unique_ptr<StreamScopeHandle> enter_stream(const StreamHandle& stream);

// A point in a stream, with its time.
class EventHandle {
 public:
  EventHandle() : event_(c10::DeviceType::CUDA, c10::EventFlag::BACKEND_DEFAULT) {}

  void record(const StreamHandle& stream);
  void hold_up(const StreamHandle& stream) const;
  void wait() const;
  double ms_until(const EventHandle& later) const;

 private:
  c10::Event event_;
};

std::unique_ptr<EventHandle> new_event();

// `bytes` of page-locked host memory, uint8, from libtorch's pool of it.
size_t pinned(int64_t bytes);
// The memory of `tensor`, made on another stream, is used on `stream` as well.
void used_on(size_t tensor, const StreamHandle& stream);

} // namespace torch_dist
