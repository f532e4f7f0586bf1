#include "profile.h"

#include "device.h"
#include "torch-dist/src/ffi.rs.h"

#include <torch/csrc/profiler/stubs/base.h>

#include <set>
#include <string>

namespace torch_dist {

namespace {

using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

ProfilerConfig config(const ProfileSettings& settings) {
  return ProfilerConfig(ProfilerState::KINETO, settings.record_shapes, settings.memory, settings.stack);
}

std::set<ActivityType> activities(const ProfileSettings& settings) {
  if (settings.cuda) {
    return {ActivityType::CPU, ActivityType::CUDA};
  }
  return {ActivityType::CPU};
}

} // namespace

void prepare_profile(const ProfileSettings& settings) {
  torch::autograd::profiler::prepareProfiler(config(settings), activities(settings));
}

void start_profile(const ProfileSettings& settings) {
  torch::autograd::profiler::enableProfiler(config(settings), activities(settings));
}

std::unique_ptr<RecordedHandle> stop_profile() {
  return std::make_unique<RecordedHandle>(torch::autograd::profiler::disableProfiler());
}

void RecordedHandle::save(rust::Str path) const {
  result_->save(std::string(path));
}

RangeHandle::RangeHandle(std::optional<at::StepCallbacks>&& callbacks, bool annotates, rust::Str name)
    : annotates_(annotates) {
  const std::string text(name);
  if (callbacks) {
    function_.emplace(std::move(*callbacks));
    function_->before(text);
  }
  if (annotates_) {
    torch::profiler::impl::cudaStubs()->rangePush(text.c_str());
  }
}

RangeHandle::~RangeHandle() {
  if (annotates_) {
    torch::profiler::impl::cudaStubs()->rangePop();
  }
}

std::unique_ptr<RangeHandle> open_range(rust::Str name) {
  auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
  const bool annotates = annotates_ranges();
  if (!callbacks.has_value() && !annotates) {
    return nullptr;
  }
  return std::make_unique<RangeHandle>(std::move(callbacks), annotates, name);
}

} // namespace torch_dist
