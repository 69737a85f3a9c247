// EtdevReferenceBackend: a delegate whose blob is a nested program, which the host runs in the memory of its device.
#pragma once

#include <vector>

#include "memory.h"

namespace etdev {

// Registers the backend with ExecuTorch.
void register_reference_backend();

// The unused bytes of nested programs, for the delegates that are loaded in its lifetime, in their order.
class NestedWatches {
 public:
  explicit NestedWatches(std::vector<Unused> unused);
  ~NestedWatches();
  NestedWatches(const NestedWatches&) = delete;
  NestedWatches& operator=(const NestedWatches&) = delete;
};

}  // namespace etdev
