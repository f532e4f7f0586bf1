// c10d's process group over NCCL, for a process into which libtorch_cuda has been loaded: what is undefined here comes from there.
// C functions alone, and no exception, cross to the program.
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>

// Of torch/csrc/cuda/nccl.h, which wants all of CUDA's headers: what libtorch_cuda was compiled with, major and minor version in
// the upper words.
namespace torch::cuda::nccl {
std::uint64_t version();
}

namespace {

using Options = c10d::ProcessGroupNCCL::Options;

void tell(const std::string& words, char* message, size_t room) {
  if (room == 0) {
    return;
  }
  const auto length = std::min(words.size(), room - 1);
  std::memcpy(message, words.data(), length);
  message[length] = '\0';
}

// Runs `work`; 0, or 1 with what it threw in `message`.
template <typename Work>
int guarded(char* message, size_t room, Work&& work) {
  try {
    work();
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

// How far into its memory the constructor of `Options` writes, which is libtorch_cuda's.
size_t extent_of_options() {
  constexpr size_t room = 4 * sizeof(Options);
  alignas(Options) unsigned char memory[room];
  size_t extent = 0;
  // What it writes may be what was there before.
  for (const unsigned char before : {0x00, 0xff}) {
    std::memset(memory, before, room);
    // The compiler may take what lies in an object's memory before its constructor for unused.
    asm volatile("" : : "r"(memory) : "memory");
    auto* options = new (memory) Options(false);
    asm volatile("" : : "r"(memory) : "memory");
    for (size_t byte = room; byte > extent; --byte) {
      if (memory[byte - 1] != before) {
        extent = byte;
      }
    }
    options->~Options();
  }
  return extent;
}

} // namespace

// Whether objects are laid out here as in the libtorch_cuda that was loaded: 0, or 1 with a `message`. `Options` has NCCL's
// configuration in it, which grows from version to version, and its memory is this library's.
extern "C" __attribute__((visibility("default"))) int torch_dist_nccl_fits(char* message, size_t room) {
  return guarded(message, room, [] {
    const auto theirs = torch::cuda::nccl::version();
    const auto their_major = theirs >> 32, their_minor = theirs >> 16 & 0xffff;
    TORCH_CHECK(
        their_major == NCCL_MAJOR && their_minor == NCCL_MINOR,
        "this is compiled against NCCL ", NCCL_MAJOR, ".", NCCL_MINOR, ", and libtorch_cuda against ", their_major, ".", their_minor);
    const auto extent = extent_of_options();
    TORCH_CHECK(
        extent <= sizeof(Options),
        "options have ", sizeof(Options), " bytes here, and libtorch_cuda writes ", extent);
  });
}

// Size of a process group here. libtorch_cuda frees it as one of its own.
extern "C" __attribute__((visibility("default"))) size_t torch_dist_nccl_group_bytes() {
  return sizeof(c10d::ProcessGroupNCCL);
}

// A backend of `world` ranks that meet in `store`, a `c10d::Store` that the caller keeps a reference of; its GPU is that of the
// tensors that it gets. Returns 0 with an owned `c10d::Backend` in `backend`, or 1 with a `message`.
extern "C" __attribute__((visibility("default"))) int torch_dist_nccl_open(
    const void* store,
    int rank,
    int world,
    int64_t timeout_ms,
    void** backend,
    char* message,
    size_t room) {
  return guarded(message, room, [&] {
    auto shared = c10::intrusive_ptr<c10d::Store>::reclaim_copy(static_cast<c10d::Store*>(const_cast<void*>(store)));
    auto options = Options::create();
    options->timeout = std::chrono::milliseconds(timeout_ms);
    c10::intrusive_ptr<c10d::Backend> group =
        c10::make_intrusive<c10d::ProcessGroupNCCL>(std::move(shared), rank, world, std::move(options));
    *backend = group.release();
  });
}

// `ncclGetVersion`, or 0.
extern "C" __attribute__((visibility("default"))) int torch_dist_nccl_version() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}
