#pragma once

#include "rust/cxx.h"

namespace expctl::dist {

// Version of the libtorch that this was compiled against, for example "2.11.0".
rust::String version();

}  // namespace expctl::dist
