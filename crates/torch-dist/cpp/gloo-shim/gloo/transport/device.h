#pragma once
// See ../algorithm.h.
namespace gloo {
namespace transport {

class Device {
 public:
  virtual ~Device() = default;
};

class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = default;
};

} // namespace transport
} // namespace gloo
