// Shared libraries with backends and kernels that the wheel of executorch does not have.
#pragma once

#include <string>

namespace etdev {

// Opens a library, whose static initializers register its backends and kernels with ExecuTorch.
//
// Throws HostError if the library cannot be opened, if the runtime refuses one of its backends, or if it registers
// nothing. A kernel that exists already makes ExecuTorch end the process.
void open_library(const std::string& path);

}  // namespace etdev
