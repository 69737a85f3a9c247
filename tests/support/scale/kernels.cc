// A kernel of an op that no library of ExecuTorch has: mine::twice.out.
#include <executorch/runtime/kernel/operator_registry.h>

namespace rt = executorch::runtime;

namespace {

void twice(rt::KernelRuntimeContext&, rt::Span<rt::EValue*> args) {
  const auto x = args[0]->toTensor();
  const auto out = args[1]->toTensor();
  for (ssize_t i = 0; i < x.numel(); ++i) {
    out.mutable_data_ptr<float>()[i] = 2 * x.const_data_ptr<float>()[i];
  }
}

const rt::Kernel kernel("mine::twice.out", twice);
const rt::Error registered = rt::register_kernels({&kernel, 1});

}  // namespace
