#pragma once
#include "errors.h"
#include "rust/cxx.h"

#include <torch/csrc/jit/api/module.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace torch_dist {

struct ScriptArgument;

// A TorchScript module. Tensors cross as addresses of `at::Tensor`; returned ones belong to the caller.
class ScriptHandle {
 public:
  explicit ScriptHandle(torch::jit::Module module);

  rust::Vec<rust::String> parameter_names() const;
  rust::Vec<rust::String> buffer_names() const;
  // The parameters, then the buffers, each in the order of its names; they share their memory with the module.
  rust::Vec<size_t> tensors() const;
  // What `forward` takes without the module itself: a name and a type for each.
  rust::Vec<rust::String> argument_names() const;
  rust::Vec<rust::String> argument_types() const;
  size_t required_arguments() const;
  void set_training(bool training);
  void to_gpu(int32_t index);
  size_t forward(rust::Slice<const ScriptArgument> arguments);
  void save(rust::Str path) const;

 private:
  torch::jit::Module module_;
};

std::unique_ptr<ScriptHandle> load_script(rust::Str path);
// A module of these parameters, float32 with a gradient, whose methods are `source`, in the language of TorchScript.
std::unique_ptr<ScriptHandle> define_script(
    rust::Slice<const rust::String> names, rust::Slice<const size_t> parameters, rust::Str source);

} // namespace torch_dist
