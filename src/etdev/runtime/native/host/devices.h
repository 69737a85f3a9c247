// Allocators for devices: simulated ones, whose memory the host cannot access, and CUDA.
#pragma once

#include <executorch/runtime/core/device_allocator.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace etdev {

namespace rt = ::executorch::runtime;
using rt::etensor::Device;
using rt::etensor::DeviceIndex;
using rt::etensor::DeviceType;

enum class Operation : uint8_t { kAllocate = 0, kHostToDevice = 1, kDeviceToHost = 2 };

// Failure of the nth operation of a kind, counted from 1; of all later ones too if it lasts.
struct Fault {
  Operation operation;
  uint64_t nth;
  bool lasting;
};

// What a device did since the program was loaded.
struct DeviceCounts {
  uint64_t allocations = 0;
  uint64_t allocated_bytes = 0;
  uint64_t live_allocations = 0;
  uint64_t live_bytes = 0;
  uint64_t copies_in = 0;
  uint64_t bytes_in = 0;
  uint64_t copies_out = 0;
  uint64_t bytes_out = 0;
};

std::string device_name(DeviceType type, DeviceIndex index);

// Memory of all devices of one type.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // Returns null if there is no such device or too little memory.
  virtual void* allocate(size_t size, DeviceIndex index, size_t alignment) = 0;
  virtual void deallocate(void* memory, DeviceIndex index) = 0;
  virtual bool copy_in(void* target, const void* source, size_t size, DeviceIndex index) = 0;
  virtual bool copy_out(void* target, const void* source, size_t size, DeviceIndex index) = 0;
  // Returns the address at which the host can access these bytes; null if it cannot.
  virtual uint8_t* device_view(const void* memory, size_t size, DeviceIndex index) = 0;
  // Returns a message for each allocation with a detected out-of-bounds write.
  virtual std::vector<std::string> damages() const {
    return {};
  }
};

// Devices of which each has `capacity` bytes. Their addresses cannot be accessed: a second mapping holds the bytes.
std::unique_ptr<DeviceMemory> simulated_memory(DeviceType type, uint64_t count, uint64_t capacity);

// CUDA devices, through the library at `path`. `ordinals` maps the program's device indices to the machine's.
// Throws HostError if the library cannot be opened.
std::unique_ptr<DeviceMemory> cuda_memory(const std::string& path, const std::map<DeviceIndex, int>& ordinals);

// ExecuTorch's allocator for a device type. It counts, injects faults, and forwards to the memory of the loaded program.
class Devices final : public rt::DeviceAllocator {
 public:
  // The allocator of a type. Null if the type is the host's.
  static Devices* of(DeviceType type);

  // Registers the allocator with ExecuTorch, once for the process.
  void register_once();

  void use(std::unique_ptr<DeviceMemory> memory);
  void fail(std::vector<Fault> faults);
  const std::map<DeviceIndex, DeviceCounts>& counts() const {
    return counts_;
  }
  void reset_counts();
  uint8_t* device_view(const void* memory, size_t size, DeviceIndex index);
  std::vector<std::string> damages() const {
    return memory_ == nullptr ? std::vector<std::string>() : memory_->damages();
  }
  // Copies by the caller, which writes inputs to a device and reads outputs from it, and by delegates. They are not
  // counted.
  void provide(void* target, const void* source, size_t size, DeviceIndex index);
  void fetch(void* target, const void* source, size_t size, DeviceIndex index);

  rt::Result<void*> allocate(size_t size, DeviceIndex index, size_t alignment) override;
  void deallocate(void* memory, DeviceIndex index) override;
  rt::Error copy_host_to_device(void* target, const void* source, size_t size, DeviceIndex index) override;
  rt::Error copy_device_to_host(void* target, const void* source, size_t size, DeviceIndex index) override;
  DeviceType device_type() const override {
    return type_;
  }

 private:
  explicit Devices(DeviceType type) : type_(type) {}
  bool fails(Operation operation);

  DeviceType type_;
  bool registered_ = false;
  std::unique_ptr<DeviceMemory> memory_;
  std::vector<Fault> faults_;
  std::map<Operation, uint64_t> done_;
  std::map<DeviceIndex, DeviceCounts> counts_;
  std::map<const void*, std::pair<DeviceIndex, size_t>> live_;
  std::mutex lock_;
};

}  // namespace etdev
