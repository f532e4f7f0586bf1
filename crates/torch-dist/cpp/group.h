#pragma once
#include "borrowed.h"
#include "store.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <vector>

namespace torch_dist {

class GroupHandle {
 public:
  explicit GroupHandle(c10::intrusive_ptr<c10d::ProcessGroup> group) : group_(std::move(group)) {}

  // Gives up what other ranks might wait for, unless the group was shut down.
  ~GroupHandle();

  // Tensors of GPUs go through the host, as those of the host do.
  void serve_gpus() const;
  // Tensors of GPUs go through NCCL; `open` is the address of `torch_dist_nccl_open`.
  void add_nccl(
      const StoreHandle& store,
      rust::Str prefix,
      size_t open,
      int64_t timeout_ms) const;
  // The end in peace of what connects GPUs, when this rank is through its last collective; waits until all ranks are.
  void shutdown() const;
  void barrier() const;
  void all_reduce_sum(size_t tensor) const;
  void broadcast(size_t tensor, int32_t root) const;
  void all_gather(rust::Slice<const size_t> outputs, size_t input) const;

  const c10::intrusive_ptr<c10d::ProcessGroup>& inner() const {
    return group_;
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  // None over Gloo, and after the end.
  mutable c10::intrusive_ptr<c10d::Backend> nccl_;
};

// `interface` is the name of a network interface, or empty; then `address` is bound, or, if that is empty too, what
// libtorch finds for this machine's name.
std::unique_ptr<GroupHandle> open_gloo_group(
    const StoreHandle& store,
    rust::Str prefix,
    int32_t rank,
    int32_t world,
    int64_t timeout_ms,
    rust::Str interface,
    rust::Str address);

} // namespace torch_dist
