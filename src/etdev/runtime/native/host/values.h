// Inputs and outputs of calls: their encoding in messages, and the memory that the caller provides for them.
#pragma once

#include <executorch/runtime/core/device_memory_buffer.h>
#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/executor/method.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "devices.h"
#include "memory.h"
#include "results.h"
#include "wire.h"

namespace etdev {

using executorch::aten::TensorImpl;
using rt::EValue;

// Memory of an input or output that the caller provides: on the host, or on the device that the program names.
class Provided {
 public:
  Provided(size_t size, Device device, uint64_t alignment, const std::string& name) : size_(size), device_(device) {
    if (device.is_cpu()) {
      host_ = std::make_unique<GuardedBuffer>(size, alignment, name);
      return;
    }
    memory_ = checked(
        rt::DeviceMemoryBuffer::create(size, device.type(), device.index(), alignment),
        "cannot allocate " + name + " (" + std::to_string(size) + " bytes) on " +
            device_name(device.type(), device.index()));
  }

  void* data() const {
    return host_ != nullptr ? host_->data() : memory_.data();
  }
  void fill(const void* source) {
    if (host_ != nullptr) {
      std::memcpy(host_->data(), source, size_);
    } else {
      Devices::of(device_.type())->provide(memory_.data(), source, size_, device_.index());
    }
  }
  // Fills memory on the host with poison.
  void poison() {
    if (host_ != nullptr) {
      etdev::poison(host_->data(), 0, size_);
    }
  }

 private:
  size_t size_;
  Device device_;
  std::unique_ptr<GuardedBuffer> host_;
  rt::DeviceMemoryBuffer memory_;
};

// An input of a request, in memory of its own.
struct Input {
  std::unique_ptr<Provided> bytes;
  // The bytes in the request, and whether the program reads them in the caller's memory instead of a copy.
  const uint8_t* given = nullptr;
  bool shared = false;
  std::vector<TensorImpl::SizesType> sizes;
  std::vector<TensorImpl::DimOrderType> order;
  std::vector<TensorImpl::StridesType> strides;
  std::unique_ptr<TensorImpl> tensor;
  std::string characters;
  executorch::aten::ArrayRef<char> text;
  EValue value;
};

// Returns the device of a tensor; the host for other values.
Device device_of(const EValue& value);

// Returns the dimension order of a tensor; nothing for other values.
std::optional<std::vector<uint8_t>> order_of(const EValue& value);

const EValue& input_of(const rt::Method& method, size_t index);

// Returns the outputs of a loaded method whose memory the caller provides. Call it before the method has inputs.
//
// An output that is an input, or a constant in a data file, is not planned either, but has memory of its own.
std::vector<size_t> provided_outputs(const rt::Method& method);

// Reads input number `index` of a request, into memory on `device`. `declared` is the input in the program.
void read_value(
    Reader& reader, Input& input, size_t index, const EValue& declared, Device device, uint64_t alignment);

// Writes output number `index` of a call.
void write_value(Writer& writer, const EValue& value, size_t index);

}  // namespace etdev
