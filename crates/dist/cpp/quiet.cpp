#include "quiet.h"

#include <c10/util/Flags.h>

#include <cstdlib>

C10_DECLARE_int(caffe2_log_level);

namespace expctl::dist {

void quiet() {
  constexpr int fatal = 3;
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) {
    FLAGS_caffe2_log_level = fatal;
  }
}

} // namespace expctl::dist
