// Conversion of ExecuTorch's errors into exceptions.
#pragma once

#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/result.h>

#include <string>
#include <utility>

#include "wire.h"

namespace etdev {

[[noreturn]] inline void fail(const std::string& what, executorch::runtime::Error error) {
  throw HostError(what + ": " + executorch::runtime::to_string(error));
}

// Returns the value of a result. Throws HostError with the text `what` if it is an error.
template <typename T>
T checked(executorch::runtime::Result<T>&& result, const std::string& what) {
  if (!result.ok()) {
    fail(what, result.error());
  }
  return std::move(result.get());
}

inline void check(executorch::runtime::Error error, const std::string& what) {
  if (error != executorch::runtime::Error::Ok) {
    fail(what, error);
  }
}

}  // namespace etdev
