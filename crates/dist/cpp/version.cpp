#include "expctl-dist/cpp/version.h"

#include <torch/version.h>

namespace expctl::dist {

rust::String version() { return rust::String(TORCH_VERSION); }

}  // namespace expctl::dist
