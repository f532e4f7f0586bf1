#include "device.h"

#include "group.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <atomic>

namespace torch_dist {

namespace {

std::atomic<bool> annotates{false};

c10::impl::VirtualGuardImpl gpus() {
  return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA);
}

c10::Device gpu(int32_t index) {
  return c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index));
}

} // namespace

int32_t visible_gpus() {
  // Without the CUDA library there is no implementation to ask.
  if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) {
    return 0;
  }
  return gpus().deviceCount();
}

void choose_gpu(int32_t device) {
  gpus().setDevice(gpu(device));
}

void annotate_ranges() {
  annotates = true;
}

bool annotates_ranges() {
  return annotates;
}

std::unique_ptr<StreamHandle> open_stream(int32_t device) {
  return std::make_unique<StreamHandle>(gpus().getStreamFromGlobalPool(gpu(device)));
}

std::unique_ptr<StreamHandle> current_stream(int32_t device) {
  return std::make_unique<StreamHandle>(gpus().getStream(gpu(device)));
}

std::unique_ptr<StreamScopeHandle> enter_stream(const StreamHandle& stream) {
  return std::make_unique<StreamScopeHandle>(stream.inner());
}

void EventHandle::record(const StreamHandle& stream) {
  event_.record(stream.inner());
}

void EventHandle::hold_up(const StreamHandle& stream) const {
  event_.block(stream.inner());
}

void EventHandle::wait() const {
  event_.synchronize();
}

double EventHandle::ms_until(const EventHandle& later) const {
  return event_.elapsedTime(later.event_);
}

std::unique_ptr<EventHandle> new_event() {
  return std::make_unique<EventHandle>();
}

size_t pinned(int64_t bytes) {
  auto memory = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  return given(std::move(memory));
}

void used_on(size_t tensor, const StreamHandle& stream) {
  borrowed(tensor).record_stream(stream.inner());
}

} // namespace torch_dist
