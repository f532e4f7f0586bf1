#pragma once
#include "errors.h"
#include "rust/cxx.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <memory>
#include <optional>

namespace torch_dist {

struct ProfileSettings;

// What a profile found.
class RecordedHandle {
 public:
  explicit RecordedHandle(std::unique_ptr<torch::autograd::profiler::ProfilerResult> result)
      : result_(std::move(result)) {}

  void save(rust::Str path) const;

 private:
  std::unique_ptr<torch::autograd::profiler::ProfilerResult> result_;
};

void prepare_profile(const ProfileSettings& settings);
// Of this thread, and of those that work for it.
void start_profile(const ProfileSettings& settings);
std::unique_ptr<RecordedHandle> stop_profile();

// A range from its making to its end, on one thread: of the profiler that runs there, and of NVTX where that is wanted.
class RangeHandle {
 public:
  RangeHandle(std::optional<at::StepCallbacks>&& callbacks, bool annotates, rust::Str name);
  ~RangeHandle();
  RangeHandle(const RangeHandle&) = delete;
  RangeHandle& operator=(const RangeHandle&) = delete;

 private:
  std::optional<at::RecordFunction> function_;
  bool annotates_;
};

// Null where nobody listens.
std::unique_ptr<RangeHandle> open_range(rust::Str name);

} // namespace torch_dist
