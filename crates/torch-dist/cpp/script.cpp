#include "script.h"

#include "torch-dist/src/ffi.rs.h"
#include "group.h"

#include <torch/csrc/jit/serialization/import.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace torch_dist {

namespace {

std::string owned(rust::Str text) {
  return std::string(text.data(), text.size());
}

template <typename List>
rust::Vec<rust::String> names_of(const List& list) {
  rust::Vec<rust::String> names;
  for (const auto& item : list) {
    names.push_back(rust::String(item.name));
  }
  return names;
}

} // namespace

ScriptHandle::ScriptHandle(torch::jit::Module module) : module_(std::move(module)) {}

rust::Vec<rust::String> ScriptHandle::parameter_names() const {
  return names_of(module_.named_parameters(true));
}

rust::Vec<rust::String> ScriptHandle::buffer_names() const {
  return names_of(module_.named_buffers(true));
}

rust::Vec<size_t> ScriptHandle::tensors() const {
  rust::Vec<size_t> addresses;
  for (const auto& item : module_.named_parameters(true)) {
    addresses.push_back(given(item.value));
  }
  for (const auto& item : module_.named_buffers(true)) {
    addresses.push_back(given(item.value));
  }
  return addresses;
}

rust::Vec<rust::String> ScriptHandle::argument_names() const {
  rust::Vec<rust::String> names;
  const auto& arguments = module_.get_method("forward").function().getSchema().arguments();
  for (size_t i = 1; i < arguments.size(); ++i) {
    names.push_back(rust::String(arguments[i].name()));
  }
  return names;
}

rust::Vec<rust::String> ScriptHandle::argument_types() const {
  rust::Vec<rust::String> types;
  const auto& arguments = module_.get_method("forward").function().getSchema().arguments();
  for (size_t i = 1; i < arguments.size(); ++i) {
    types.push_back(rust::String(arguments[i].type()->annotation_str()));
  }
  return types;
}

size_t ScriptHandle::required_arguments() const {
  const auto& arguments = module_.get_method("forward").function().getSchema().arguments();
  size_t required = 0;
  for (size_t i = 1; i < arguments.size(); ++i) {
    required += arguments[i].default_value() ? 0 : 1;
  }
  return required;
}

void ScriptHandle::to_gpu(int32_t index) {
  module_.to(c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index)));
}

void ScriptHandle::set_training(bool training) {
  module_.train(training);
}

size_t ScriptHandle::forward(rust::Slice<const ScriptArgument> arguments) {
  std::vector<c10::IValue> inputs;
  inputs.reserve(arguments.size());
  for (const auto& argument : arguments) {
    if (argument.tensor == 0) {
      inputs.emplace_back(argument.number);
    } else {
      inputs.emplace_back(borrowed(argument.tensor));
    }
  }
  auto output = module_.forward(std::move(inputs));
  if (!output.isTensor()) {
    throw std::runtime_error("forward returns " + output.tagKind() + ", not a Tensor");
  }
  return given(std::move(output).toTensor());
}

void ScriptHandle::save(rust::Str path) const {
  module_.save(owned(path));
}

std::unique_ptr<ScriptHandle> load_script(rust::Str path) {
  return std::make_unique<ScriptHandle>(torch::jit::load(owned(path), at::Device(at::kCPU)));
}

std::unique_ptr<ScriptHandle> define_script(
    rust::Slice<const rust::String> names, rust::Slice<const size_t> parameters, rust::Str source) {
  torch::jit::Module module("Defined");
  for (size_t i = 0; i < names.size() && i < parameters.size(); ++i) {
    auto parameter = borrowed(parameters[i]).detach().clone().set_requires_grad(true);
    module.register_parameter(std::string(names[i]), std::move(parameter), false);
  }
  module.define(owned(source));
  return std::make_unique<ScriptHandle>(std::move(module));
}

} // namespace torch_dist
