// c10d's process group over NCCL, for a process into which libtorch_cuda has been loaded: what is undefined here comes from there.
// C functions alone, and no exception, cross to the program.
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>

namespace {

void tell(const std::string& words, char* message, size_t room) {
  if (room == 0) {
    return;
  }
  const auto length = std::min(words.size(), room - 1);
  std::memcpy(message, words.data(), length);
  message[length] = '\0';
}

} // namespace

// A backend of `world` ranks that meet in `store`, a `c10d::Store` that the caller keeps a reference of; `device` is the GPU of this
// rank. Returns 0 with an owned `c10d::Backend` in `backend`, or 1 with a `message`.
extern "C" __attribute__((visibility("default"))) int expctl_nccl_open(
    const void* store,
    int rank,
    int world,
    int64_t timeout_ms,
    int device,
    void** backend,
    char* message,
    size_t room) {
  try {
    auto shared = c10::intrusive_ptr<c10d::Store>::reclaim_copy(static_cast<c10d::Store*>(const_cast<void*>(store)));
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = std::chrono::milliseconds(timeout_ms);
    auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(std::move(shared), rank, world, std::move(options));
    group->setBoundDeviceId(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
    c10::intrusive_ptr<c10d::Backend> base = std::move(group);
    *backend = base.release();
    return 0;
  } catch (const c10::Error& error) {
    tell(error.what_without_backtrace(), message, room);
  } catch (const std::exception& error) {
    tell(error.what(), message, room);
  } catch (...) {
    tell("unknown C++ exception", message, room);
  }
  return 1;
}

// `ncclGetVersion`, or 0.
extern "C" __attribute__((visibility("default"))) int expctl_nccl_version() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}
