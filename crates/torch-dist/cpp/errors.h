#pragma once
// How C++ exceptions become Rust errors: cxx looks for this template before it uses its own.
// libtorch's own errors carry a stack of C++ frames after the message, which means nothing to a user.
#include <c10/util/Exception.h>

#include <exception>

namespace rust {
namespace behavior {

template <typename Try, typename Fail>
static void trycatch(Try&& func, Fail&& fail) noexcept {
  try {
    func();
  } catch (const c10::Error& error) {
    fail(error.what_without_backtrace());
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("unknown C++ exception");
  }
}

} // namespace behavior
} // namespace rust
