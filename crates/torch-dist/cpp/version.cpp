#include "torch-dist/cpp/version.h"

#include <dlfcn.h>

#include <ATen/Version.h>
#include <torch/version.h>

#include <string>

namespace torch_dist {

rust::String compiled_version() {
  return rust::String(TORCH_VERSION);
}

rust::String loaded_version() {
  // The only place where libtorch names its own version at run time: its headers' constant is that of the compilation.
  const std::string key = "TORCH_VERSION=";
  const auto config = at::show_config();
  const auto at = config.find(key);
  if (at == std::string::npos) {
    return rust::String();
  }
  const auto start = at + key.size();
  const auto end = config.find_first_of(",\n", start);
  return rust::String::lossy(config.substr(start, end == std::string::npos ? end : end - start));
}

rust::String loaded_file() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&at::show_config), &info) == 0 || info.dli_fname == nullptr) {
    return rust::String();
  }
  return rust::String::lossy(info.dli_fname);
}

}  // namespace torch_dist
