#include "libraries.h"

#include <dlfcn.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/kernel/operator_registry.h>

#include <string>

#include "wire.h"

namespace rt = executorch::runtime;

namespace etdev {
namespace {

// Reason why the runtime last refused a backend. Static initializers of the wheel's libraries may use it
// before those of this file have run.
std::string& refusal() {
  static std::string text;
  return text;
}

}  // namespace

void open_library(const std::string& path) {
  const size_t backends = rt::get_num_registered_backends();
  const size_t kernels = rt::get_registered_kernels().size();
  refusal().clear();
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
    throw HostError(std::string("it cannot be opened: ") + dlerror());
  }
  if (!refusal().empty()) {
    throw HostError(refusal());
  }
  if (rt::get_num_registered_backends() == backends && rt::get_registered_kernels().size() == kernels) {
    throw HostError("it registers neither a backend nor a kernel");
  }
}

}  // namespace etdev

namespace executorch::runtime {

// Replaces ExecuTorch's function in all libraries. They ignore its answer, which is an error for a backend that exists.
Error register_backend(const Backend& backend) {
  using Register = Error (*)(const Backend&);
  static const auto original =
      reinterpret_cast<Register>(dlsym(RTLD_NEXT, "_ZN10executorch7runtime16register_backendERKNS0_7BackendE"));
  if (original == nullptr) {
    return Error::Internal;
  }
  const Error error = original(backend);
  if (error == Error::InvalidArgument) {
    etdev::refusal() = std::string("it registers the backend ") + backend.name + ", which the runtime already has";
  } else if (error != Error::Ok) {
    etdev::refusal() = std::string("the runtime cannot register its backend ") + backend.name;
  }
  return error;
}

}  // namespace executorch::runtime
