#include "store.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace torch_dist {

namespace {

std::vector<std::string> strings(rust::Slice<const rust::String> keys) {
  std::vector<std::string> out;
  out.reserve(keys.size());
  for (const auto& key : keys) {
    out.emplace_back(key.data(), key.size());
  }
  return out;
}

} // namespace

std::unique_ptr<StoreHandle> open_store(
    rust::Str host, uint16_t port, bool serve, int32_t listen_fd, int64_t timeout_ms) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = serve;
  if (listen_fd >= 0) {
    options.masterListenFd = listen_fd;
  }
  // Who has come is counted by name, key by key, so that a time-out can say which ranks are missing.
  options.waitWorkers = false;
  options.timeout = std::chrono::milliseconds(timeout_ms);
  auto store = c10::make_intrusive<c10d::TCPStore>(std::string(host), options);
  const auto bound = store->getPort();
  return std::make_unique<StoreHandle>(std::move(store), bound);
}

std::unique_ptr<StoreHandle> open_lone_store(int64_t timeout_ms) {
  auto store = c10::make_intrusive<c10d::HashStore>();
  store->setTimeout(std::chrono::milliseconds(timeout_ms));
  return std::make_unique<StoreHandle>(std::move(store), 0);
}

std::unique_ptr<StoreHandle> StoreHandle::another() const {
  return std::make_unique<StoreHandle>(store_, port_);
}

uint16_t StoreHandle::port() const {
  return port_;
}

void StoreHandle::set_timeout(int64_t timeout_ms) const {
  store_->setTimeout(std::chrono::milliseconds(timeout_ms));
}

void StoreHandle::set(rust::Str key, rust::Slice<const uint8_t> value) const {
  store_->set(std::string(key), std::vector<uint8_t>(value.begin(), value.end()));
}

rust::Vec<uint8_t> StoreHandle::get(rust::Str key) const {
  const auto value = store_->get(std::string(key));
  rust::Vec<uint8_t> out;
  out.reserve(value.size());
  for (const auto byte : value) {
    out.push_back(byte);
  }
  return out;
}

int64_t StoreHandle::add(rust::Str key, int64_t amount) const {
  return store_->add(std::string(key), amount);
}

bool StoreHandle::check(rust::Slice<const rust::String> keys) const {
  return store_->check(strings(keys));
}

void StoreHandle::wait(rust::Slice<const rust::String> keys, int64_t timeout_ms) const {
  store_->wait(strings(keys), std::chrono::milliseconds(timeout_ms));
}

} // namespace torch_dist
