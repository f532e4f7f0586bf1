#pragma once
#include "errors.h"
#include "rust/cxx.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstdint>
#include <memory>

namespace torch_dist {

// One connection to a TCPStore, and the server with it where this process serves; or a store of this process alone.
class StoreHandle {
 public:
  StoreHandle(c10::intrusive_ptr<c10d::Store> store, uint16_t port) : store_(std::move(store)), port_(port) {}

  // Another handle to the same store.
  std::unique_ptr<StoreHandle> another() const;
  uint16_t port() const;
  void set_timeout(int64_t timeout_ms) const;
  void set(rust::Str key, rust::Slice<const uint8_t> value) const;
  rust::Vec<uint8_t> get(rust::Str key) const;
  int64_t add(rust::Str key, int64_t amount) const;
  bool check(rust::Slice<const rust::String> keys) const;
  void wait(rust::Slice<const rust::String> keys, int64_t timeout_ms) const;

  const c10::intrusive_ptr<c10d::Store>& inner() const {
    return store_;
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  uint16_t port_;
};

// With `serve`, `listen_fd` is a bound socket that the server takes over, or -1 for one of its own on all addresses.
std::unique_ptr<StoreHandle> open_store(
    rust::Str host, uint16_t port, bool serve, int32_t listen_fd, int64_t timeout_ms);
std::unique_ptr<StoreHandle> open_lone_store(int64_t timeout_ms);

} // namespace torch_dist
