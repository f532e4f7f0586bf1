#pragma once

#include "rust/cxx.h"

namespace torch_dist {

// Version of libtorch that this was compiled against, for example "2.11.0".
rust::String compiled_version();

// Version that the loaded libtorch says of itself, or empty if it says none.
rust::String loaded_version();

// File that libtorch was loaded from, or empty if the loader does not know.
rust::String loaded_file();

}  // namespace torch_dist
