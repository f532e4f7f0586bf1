#include "profile.h"

#include "expctl-dist/src/ffi.rs.h"

#include <set>
#include <string>

namespace expctl::dist {

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

std::unique_ptr<RangeHandle> open_range(rust::Str name) {
  auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
  if (!callbacks.has_value()) {
    return nullptr;
  }
  return std::make_unique<RangeHandle>(std::move(*callbacks), name);
}

} // namespace expctl::dist
