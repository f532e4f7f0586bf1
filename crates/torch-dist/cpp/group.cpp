#include "group.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <array>
#include <stdexcept>

namespace torch_dist {

std::unique_ptr<GroupHandle> open_gloo_group(
    const StoreHandle& store,
    rust::Str prefix,
    int32_t rank,
    int32_t world,
    int64_t timeout_ms,
    rust::Str interface,
    rust::Str address) {
  using Gloo = c10d::ProcessGroupGloo;
  auto scoped = c10::make_intrusive<c10d::PrefixStore>(std::string(prefix), store.inner());
  auto options = Gloo::Options::create(std::chrono::milliseconds(timeout_ms));
  if (!interface.empty()) {
    options->devices.push_back(Gloo::createDeviceForInterface(std::string(interface)));
  } else if (!address.empty()) {
    options->devices.push_back(Gloo::createDeviceForHostname(std::string(address)));
  } else {
    options->devices.push_back(Gloo::createDefaultDevice());
  }
  auto backend = c10::make_intrusive<Gloo>(scoped, rank, world, options);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(scoped, rank, world);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, backend);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  return std::make_unique<GroupHandle>(std::move(group));
}

GroupHandle::~GroupHandle() {
  try {
    if (nccl_) {
      nccl_->abort();
    }
  } catch (...) {
    // Nobody is left to tell.
  }
}

void GroupHandle::serve_gpus() const {
  group_->setBackend(
      c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::GLOO, group_->getBackend(c10::DeviceType::CPU));
}

void GroupHandle::add_nccl(
    const StoreHandle& store,
    rust::Str prefix,
    size_t open,
    int64_t timeout_ms) const {
  using Open = int (*)(const void*, int, int, int64_t, void**, char*, size_t);
  const auto scoped = c10::make_intrusive<c10d::PrefixStore>(std::string(prefix), store.inner());
  const c10d::Store* base = scoped.get();
  void* backend = nullptr;
  std::array<char, 1024> message{};
  const auto code = reinterpret_cast<Open>(open)(
      base, group_->getRank(), group_->getSize(), timeout_ms, &backend, message.data(), message.size());
  if (code != 0) {
    throw std::runtime_error(message.data());
  }
  nccl_ = c10::intrusive_ptr<c10d::Backend>::reclaim(static_cast<c10d::Backend*>(backend));
  group_->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::NCCL, nccl_);
}

void GroupHandle::shutdown() const {
  if (!nccl_) {
    return;
  }
  // A communicator has memory that peers read: none may go while one of them is still in its last collective.
  barrier();
  nccl_->shutdown();
  nccl_.reset();
}

void GroupHandle::barrier() const {
  group_->barrier()->wait();
}

void GroupHandle::all_reduce_sum(size_t tensor) const {
  std::vector<at::Tensor> tensors{borrowed(tensor)};
  group_->allreduce(tensors)->wait();
}

void GroupHandle::broadcast(size_t tensor, int32_t root) const {
  std::vector<at::Tensor> tensors{borrowed(tensor)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  group_->broadcast(tensors, options)->wait();
}

void GroupHandle::all_gather(rust::Slice<const size_t> outputs, size_t input) const {
  std::vector<std::vector<at::Tensor>> gathered{borrowed(outputs)};
  std::vector<at::Tensor> inputs{borrowed(input)};
  group_->allgather(gathered, inputs)->wait();
}

} // namespace torch_dist
