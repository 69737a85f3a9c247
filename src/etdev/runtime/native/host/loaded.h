// A loaded program, with its memory.
#pragma once

#include <executorch/runtime/core/device_memory_buffer.h>
#include <executorch/runtime/core/hierarchical_allocator.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/executor/program.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data_files.h"
#include "devices.h"
#include "memory.h"
#include "wire.h"

namespace etdev {

// Options for opening a method.
struct OpenOptions {
  // Sizes of the pools in bytes.
  uint64_t method_pool = kNoLimit;
  uint64_t temporary_pool = kNoLimit;
  // Number of the allocation from each pool that fails; 0 for none.
  uint64_t failing = 0;
  // Whether instructions are watched: the last one is known after a crash, and unused bytes are filled with poison.
  bool watch = false;
  Unused unused;
  // Unused bytes of the programs in EtdevReferenceBackend's delegates, in the order of the method's delegates.
  std::vector<Unused> nested;
};

// A planned buffer as it was allocated.
struct PlannedBuffer {
  Device device{DeviceType::CPU, 0};
  uint64_t size = 0;
};

// Memory used by loading a method.
struct Opened {
  // Dimension order of each input; none for an input that is not a tensor.
  std::vector<std::optional<std::vector<uint8_t>>> orders;
  std::vector<PlannedBuffer> buffers;
  uint64_t method_pool = 0;
  int64_t heap = 0;
  int64_t heap_peak = 0;
};

// Time and memory used by the calls of a method.
struct Called {
  std::vector<double> seconds;
  uint64_t method_pool = 0;
  uint64_t temporary_pool = 0;
  int64_t heap = 0;
  int64_t heap_peak = 0;
  std::vector<std::string> damages;
};

class Loaded {
 public:
  // Opens the program and its data files. With `shared`, all methods use the same planned buffers.
  Loaded(const std::string& path, const std::vector<std::string>& data, bool shared, uint64_t alignment);
  ~Loaded();

  std::vector<std::string> methods() const;
  // Loads a method. Repeated calls load it again, with new memory.
  Opened open(const std::string& name, const OpenOptions& options);
  // Puts all methods into their initial state: the next call of a method loads it again, with the same options.
  void reset();
  // Reads the inputs from a request, calls a method, and writes its outputs.
  Called call(const std::string& name, uint32_t repeat, Reader& inputs, Writer& outputs);

 private:
  struct Arena;
  struct Open;

  std::shared_ptr<Arena> arena(const std::string& name);
  Open& opened(const std::string& name);
  // Returns ": " and the reason why a method could not be loaded; empty if it is unknown.
  std::string cause(const Open& open);
  void close();

  std::unique_ptr<rt::DataLoader> loader_;
  std::unique_ptr<rt::Program> program_;
  std::unique_ptr<DataFiles> data_;
  bool shared_;
  uint64_t alignment_;
  // Whether a method was called since the methods were loaded.
  bool called_ = false;
  std::shared_ptr<Arena> common_;
  std::map<std::string, OpenOptions> options_;
  std::map<std::string, std::unique_ptr<Open>> open_;
};

}  // namespace etdev
