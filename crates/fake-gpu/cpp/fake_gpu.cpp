// A GPU without hardware, in the place of libtorch's CUDA part: streams take the time that a test says, and events know when they were
// passed. Devices and current streams are those of libtorch's own fake device. C functions alone, and no exception, cross to the
// tests.
#include "timed_allreduce.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/FakeGuardImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace {

using Devices = c10::impl::FakeGuardImpl<c10::DeviceType::CUDA>;

const c10::Device the_gpu(c10::DeviceType::CUDA, 0);

struct Event {
  int64_t number;
  // Microseconds of the device's clock.
  int64_t passed;
};

struct State {
  std::mutex mutex;
  // When each stream is through with what it was given, microseconds.
  std::map<c10::StreamId, int64_t> streams;
  // How far the host knows the device to have come.
  int64_t seen = 0;
  int64_t events = 0;
  c10::StreamId opened = 0;
  std::vector<std::string> calls;
  // Not empty: every call fails with it.
  std::string failure;
};

State& state() {
  static State state;
  return state;
}

// Writes down a call, which may fail, and does it.
template <typename Work>
auto call(const std::string& name, Work&& work) {
  auto& gpu = state();
  const std::lock_guard<std::mutex> lock(gpu.mutex);
  gpu.calls.push_back(name);
  TORCH_CHECK(gpu.failure.empty(), gpu.failure);
  return work(gpu);
}

std::string on(const c10::Stream& stream) {
  return std::to_string(stream.id());
}

std::string number(void* event) {
  return event == nullptr ? "new" : std::to_string(static_cast<Event*>(event)->number);
}

void check(const c10::Device& device) {
  TORCH_CHECK(device.index() == 0, "there is one GPU, and no number ", static_cast<int>(device.index()));
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override {
    return c10::DeviceType::CUDA;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return 1;
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    check(device);
    return devices_.exchangeDevice(device);
  }
  c10::Device getDevice() const override {
    return devices_.getDevice();
  }
  void setDevice(c10::Device device) const override {
    check(device);
    devices_.setDevice(device);
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    devices_.uncheckedSetDevice(device);
  }
  c10::Stream getStream(c10::Device device) const override {
    check(device);
    return devices_.getStream(device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    check(device);
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    check(device);
    return call("open", [&](State& gpu) { return c10::Stream(c10::Stream::UNSAFE, device, ++gpu.opened); });
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return devices_.exchangeStream(stream);
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    call("record on " + on(stream), [&](State& gpu) {
      if (*event == nullptr) {
        *event = new Event{++gpu.events, 0};
      }
      static_cast<Event*>(*event)->passed = gpu.streams[stream.id()];
    });
  }
  void block(void* event, const c10::Stream& stream) const override {
    call("block " + on(stream) + " until " + number(event), [&](State& gpu) {
      auto& time = gpu.streams[stream.id()];
      time = std::max(time, static_cast<Event*>(event)->passed);
    });
  }
  bool queryEvent(void* event) const override {
    return call("query " + number(event), [&](State& gpu) { return static_cast<Event*>(event)->passed <= gpu.seen; });
  }
  void synchronizeEvent(void* event) const override {
    call("wait for " + number(event), [&](State& gpu) {
      gpu.seen = std::max(gpu.seen, static_cast<Event*>(event)->passed);
    });
  }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {
    return call("time from " + number(from) + " to " + number(to), [&](State&) {
      return static_cast<double>(static_cast<Event*>(to)->passed - static_cast<Event*>(from)->passed) / 1e3;
    });
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }

 private:
  Devices devices_;
};

// An all-reduce that is over when a test says so.
struct Reduction final : c10d::Work {
  Reduction()
      : event(c10::DeviceType::CUDA), future(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors())) {}
  // What the host copied back is there where stream `copies` is now; where that is negative, the device reduced.
  void done(c10::StreamId copies) {
    if (copies >= 0) {
      event.record(c10::Stream(c10::Stream::UNSAFE, the_gpu, copies));
    }
    future->markCompleted(c10::IValue(std::vector<at::Tensor>{}));
  }
  void synchronize() override {
    event.block(c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getStream(the_gpu));
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return future;
  }
  c10::Event event;
  c10::intrusive_ptr<c10::ivalue::Future> future;
};

// Gloo or NCCL, as far as a reducer and the end of a group use them.
struct Communicator final : c10d::Backend {
  Communicator(int rank, int size, bool nccl) : Backend(rank, size), nccl(nccl) {}
  const std::string getBackendName() const override {
    return nccl ? "nccl" : "gloo";
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    last = c10::make_intrusive<Reduction>();
    return last;
  }
  void abort() override {
    call("abort", [](State&) {});
  }
  void shutdown() override {
    call("shutdown", [](State&) {});
  }
  bool nccl;
  c10::intrusive_ptr<Reduction> last;
};

using SharedTimeline = std::shared_ptr<torch_dist::Timeline>;

// A bucket on its way: what a test ends, and what a reducer waits for.
struct Bucket {
  c10::intrusive_ptr<Reduction> reduction;
  c10::intrusive_ptr<c10d::Work> timed;
};

size_t told(const std::string& text, char* to, size_t room) {
  std::memcpy(to, text.data(), std::min(text.size(), room));
  return text.size();
}

// Runs `work`; the length of what it threw, whose beginning is in `message` then, or 0.
template <typename Work>
size_t guarded(char* message, size_t room, Work&& work) {
  try {
    work();
    return 0;
  } catch (const c10::Error& error) {
    return told(error.what_without_backtrace(), message, room);
  } catch (const std::exception& error) {
    return told(error.what(), message, room);
  }
}

SharedTimeline& timeline_at(void* address) {
  return *static_cast<SharedTimeline*>(address);
}

} // namespace

extern "C" {

void expctl_fake_gpu_install() {
  static const c10::impl::DeviceGuardImplRegistrar registered(c10::DeviceType::CUDA, new Guard());
  Devices::setDeviceIndex(0);
  Devices::resetStreams();
  auto& gpu = state();
  const std::lock_guard<std::mutex> lock(gpu.mutex);
  gpu.streams.clear();
  gpu.seen = gpu.events = 0;
  gpu.opened = 0;
  gpu.calls.clear();
  gpu.failure.clear();
}

void expctl_fake_gpu_works(int64_t stream, int64_t microseconds) {
  auto& gpu = state();
  const std::lock_guard<std::mutex> lock(gpu.mutex);
  gpu.streams[stream] += microseconds;
}

void expctl_fake_gpu_fail(const char* text, size_t length) {
  auto& gpu = state();
  const std::lock_guard<std::mutex> lock(gpu.mutex);
  gpu.failure.assign(text, length);
}

size_t expctl_fake_gpu_calls(char* to, size_t room) {
  auto& gpu = state();
  const std::lock_guard<std::mutex> lock(gpu.mutex);
  std::string all;
  for (const auto& name : gpu.calls) {
    all += name + "\n";
  }
  return told(all, to, room);
}

void* expctl_fake_gpu_timeline() {
  return new SharedTimeline(std::make_shared<torch_dist::Timeline>());
}

void expctl_fake_gpu_drop_timeline(void* timeline) {
  delete static_cast<SharedTimeline*>(timeline);
}

void expctl_fake_gpu_begin(void* timeline) {
  timeline_at(timeline)->begin();
}

// Hands gradients over, by which a tensor is meant that says it is on the GPU; nothing computes with it.
size_t expctl_fake_gpu_allreduce(void* timeline, bool nccl, void** bucket, char* message, size_t room) {
  return guarded(message, room, [&] {
    static std::array<float, 4> numbers{};
    const auto options = at::TensorOptions().dtype(at::kFloat).device(the_gpu);
    std::vector<at::Tensor> gradients{
        at::for_blob(numbers.data(), {4}).options(options).target_device(the_gpu).make_tensor()};
    const auto communicator = c10::make_intrusive<Communicator>(0, 2, nccl);
    const auto timed = c10::make_intrusive<torch_dist::TimedBackend>(communicator, std::nullopt, timeline_at(timeline));
    auto work = timed->allreduce(gradients);
    *bucket = new Bucket{communicator->last, std::move(work)};
  });
}

size_t expctl_fake_gpu_done(void* bucket, int64_t copies, char* message, size_t room) {
  return guarded(message, room, [&] {
    const auto& of = *static_cast<Bucket*>(bucket);
    of.reduction->done(copies);
    of.timed->getFuture()->waitAndThrow();
  });
}

void expctl_fake_gpu_drop_bucket(void* bucket) {
  delete static_cast<Bucket*>(bucket);
}

bool expctl_fake_gpu_under_way(void* timeline) {
  return timeline_at(timeline)->under_way();
}

size_t expctl_fake_gpu_totals(
    void* timeline, int64_t* busy, int64_t* exposed, size_t* buckets, char* message, size_t room) {
  return guarded(message, room, [&] {
    const auto totals = timeline_at(timeline)->totals();
    *busy = totals.busy;
    *exposed = totals.exposed;
    *buckets = totals.buckets;
  });
}

// In the place of `torch_dist_nccl_open` of torch-dist's nccl/backend.cpp.
int expctl_fake_gpu_nccl_open(const void*, int rank, int world, int64_t, void** backend, char*, size_t) {
  c10::intrusive_ptr<c10d::Backend> communicator = c10::make_intrusive<Communicator>(rank, world, true);
  *backend = communicator.release();
  return 0;
}

} // extern "C"
