#include "devices.h"

#include <dlfcn.h>
#include <executorch/runtime/platform/log.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "memory.h"
#include "wire.h"

namespace etdev {
namespace {

size_t rounded_up(size_t size, size_t unit) {
  return (size + unit - 1) / unit * unit;
}

class SimulatedMemory final : public DeviceMemory {
 public:
  SimulatedMemory(DeviceType type, uint64_t count, uint64_t capacity) : type_(type), count_(count), capacity_(capacity) {}

  ~SimulatedMemory() override {
    while (!blocks_.empty()) {
      release(blocks_.begin());
    }
  }

  void* allocate(size_t size, DeviceIndex index, size_t alignment) override {
    if (index < 0 || static_cast<uint64_t>(index) >= count_ || size > capacity_ - used_[index]) {
      return nullptr;
    }
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    Block block;
    block.size = size;
    block.index = index;
    block.mapped = std::max(rounded_up(size + alignment, page), page);
    const int file = memfd_create("etdev-device", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(block.mapped)) != 0) {
      if (file >= 0) {
        close(file);
      }
      return nullptr;
    }
    // The first mapping is what the host sees. It has an additional page at each end.
    block.reserved = block.mapped + 2 * page;
    block.outside = reserve(block.reserved);
    // The second mapping is what the device sees: its bytes, between pages that cannot be accessed.
    block.around = reserve(block.reserved);
    const bool failed = block.outside == nullptr || block.around == nullptr ||
        mmap(block.around + page, block.mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED;
    close(file);
    if (failed) {
      unmap(block);
      return nullptr;
    }
    block.inside = block.around + page;
    block.offset = (block.mapped - size) / alignment * alignment;
    std::memset(block.inside, kCanary, block.offset);
    std::memset(block.inside + block.offset + size, kCanary, block.mapped - block.offset - size);
    uint8_t* address = block.outside + page + block.offset;
    const std::string name = block_name(block);
    add_region(block.outside, block.reserved, name);
    add_region(block.around, page, "the guard page before " + name);
    add_region(block.inside + block.mapped, page, "the guard page after " + name);
    used_[index] += size;
    blocks_[address] = block;
    return address;
  }

  void deallocate(void* memory, DeviceIndex) override {
    const auto found = blocks_.find(static_cast<uint8_t*>(memory));
    if (found != blocks_.end()) {
      used_[found->second.index] -= found->second.size;
      release(found);
    }
  }

  bool copy_in(void* target, const void* source, size_t size, DeviceIndex index) override {
    uint8_t* inside = device_view(target, size, index);
    if (inside == nullptr) {
      return false;
    }
    std::memcpy(inside, source, size);
    return true;
  }

  bool copy_out(void* target, const void* source, size_t size, DeviceIndex index) override {
    const uint8_t* inside = device_view(source, size, index);
    if (inside == nullptr) {
      return false;
    }
    std::memcpy(target, inside, size);
    return true;
  }

  std::vector<std::string> damages() const override {
    const auto changed = [](uint8_t byte) { return byte != kCanary; };
    std::vector<std::string> found;
    for (const auto& [address, block] : blocks_) {
      const uint8_t* begin = block.inside + block.offset;
      const uint8_t* end = block.inside + block.mapped;
      const uint8_t* after = std::find_if(begin + block.size, end, changed);
      if (after != end) {
        found.push_back(
            block_name(block) + ": out-of-bounds write at offset " + std::to_string(after - begin));
      } else if (std::find_if<const uint8_t*>(block.inside, begin, changed) != begin) {
        found.push_back(block_name(block) + ": out-of-bounds write before its start");
      }
    }
    return found;
  }

  uint8_t* device_view(const void* memory, size_t size, DeviceIndex index) override {
    auto* at = const_cast<uint8_t*>(static_cast<const uint8_t*>(memory));
    auto found = blocks_.upper_bound(at);
    if (found == blocks_.begin()) {
      return nullptr;
    }
    --found;
    const Block& block = found->second;
    const auto start = static_cast<size_t>(at - found->first);
    if (block.index != index || start > block.size || size > block.size - start) {
      return nullptr;
    }
    return block.inside + block.offset + start;
  }

 private:
  struct Block {
    uint8_t* outside = nullptr;
    uint8_t* around = nullptr;
    uint8_t* inside = nullptr;
    size_t reserved = 0;
    size_t mapped = 0;
    size_t offset = 0;
    size_t size = 0;
    DeviceIndex index = 0;
  };

  void release(std::map<uint8_t*, Block>::iterator at) {
    const Block& block = at->second;
    remove_region(block.outside);
    remove_region(block.around);
    remove_region(block.inside + block.mapped);
    unmap(block);
    blocks_.erase(at);
  }

  std::string block_name(const Block& block) const {
    return device_name(type_, block.index) + "'s memory (" + std::to_string(block.size) + " bytes)";
  }

  static uint8_t* reserve(size_t size) {
    void* found = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return found == MAP_FAILED ? nullptr : static_cast<uint8_t*>(found);
  }

  static void unmap(const Block& block) {
    for (uint8_t* mapping : {block.outside, block.around}) {
      if (mapping != nullptr) {
        munmap(mapping, block.reserved);
      }
    }
  }

  DeviceType type_;
  uint64_t count_;
  uint64_t capacity_;
  std::map<DeviceIndex, uint64_t> used_;
  std::map<uint8_t*, Block> blocks_;
};

class CudaMemory final : public DeviceMemory {
 public:
  CudaMemory(const std::string& path, std::map<DeviceIndex, int> ordinals) : ordinals_(std::move(ordinals)) {
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) {
      const char* reason = dlerror();
      throw HostError("CUDA's runtime library cannot be opened: " + std::string(reason ? reason : path));
    }
    set_device_ = function<int (*)(int)>("cudaSetDevice");
    malloc_ = function<int (*)(void**, size_t)>("cudaMalloc");
    free_ = function<int (*)(void*)>("cudaFree");
    memcpy_ = function<int (*)(void*, const void*, size_t, int)>("cudaMemcpy");
    error_ = function<const char* (*)(int)>("cudaGetErrorString");
  }

  void* allocate(size_t size, DeviceIndex index, size_t) override {
    void* found = nullptr;
    // An empty buffer needs an address, too.
    return on(index) && done(malloc_(&found, std::max<size_t>(size, 1)), "cudaMalloc") ? found : nullptr;
  }

  void deallocate(void* memory, DeviceIndex index) override {
    if (on(index)) {
      done(free_(memory), "cudaFree");
    }
  }

  bool copy_in(void* target, const void* source, size_t size, DeviceIndex index) override {
    return on(index) && done(memcpy_(target, source, size, kHostToDevice), "cudaMemcpy");
  }

  bool copy_out(void* target, const void* source, size_t size, DeviceIndex index) override {
    return on(index) && done(memcpy_(target, source, size, kDeviceToHost), "cudaMemcpy");
  }

  uint8_t* device_view(const void*, size_t, DeviceIndex) override {
    return nullptr;
  }

 private:
  static constexpr int kHostToDevice = 1;
  static constexpr int kDeviceToHost = 2;

  template <typename F>
  F function(const char* name) {
    void* found = dlsym(library_, name);
    if (found == nullptr) {
      throw HostError("CUDA's runtime library has no function " + std::string(name));
    }
    return reinterpret_cast<F>(found);
  }

  bool on(DeviceIndex index) {
    const auto mapped = ordinals_.find(index);
    return done(set_device_(mapped == ordinals_.end() ? index : mapped->second), "cudaSetDevice");
  }

  bool done(int code, const char* what) {
    if (code != 0) {
      ET_LOG(Error, "%s failed: %s", what, error_(code));
    }
    return code == 0;
  }

  std::map<DeviceIndex, int> ordinals_;
  void* library_ = nullptr;
  int (*set_device_)(int) = nullptr;
  int (*malloc_)(void**, size_t) = nullptr;
  int (*free_)(void*) = nullptr;
  int (*memcpy_)(void*, const void*, size_t, int) = nullptr;
  const char* (*error_)(int) = nullptr;
};

}  // namespace

std::string device_name(DeviceType type, DeviceIndex index) {
  if (type == DeviceType::CPU) {
    return "the host";
  }
  return "cuda:" + std::to_string(static_cast<int>(index));
}

std::unique_ptr<DeviceMemory> simulated_memory(DeviceType type, uint64_t count, uint64_t capacity) {
  return std::make_unique<SimulatedMemory>(type, count, capacity);
}

std::unique_ptr<DeviceMemory> cuda_memory(const std::string& path, const std::map<DeviceIndex, int>& ordinals) {
  return std::make_unique<CudaMemory>(path, ordinals);
}

Devices* Devices::of(DeviceType type) {
  static Devices cuda(DeviceType::CUDA);
  return type == DeviceType::CUDA ? &cuda : nullptr;
}

void Devices::register_once() {
  if (!registered_) {
    rt::register_device_allocator(this);
    registered_ = true;
  }
}

void Devices::use(std::unique_ptr<DeviceMemory> memory) {
  memory_ = std::move(memory);
  live_.clear();
  faults_.clear();
  reset_counts();
}

void Devices::fail(std::vector<Fault> faults) {
  faults_ = std::move(faults);
  done_.clear();
}

void Devices::reset_counts() {
  std::map<DeviceIndex, DeviceCounts> kept;
  for (const auto& [index, before] : counts_) {
    kept[index].live_allocations = before.live_allocations;
    kept[index].live_bytes = before.live_bytes;
  }
  counts_ = std::move(kept);
}

uint8_t* Devices::device_view(const void* memory, size_t size, DeviceIndex index) {
  return memory_ == nullptr ? nullptr : memory_->device_view(memory, size, index);
}

void Devices::provide(void* target, const void* source, size_t size, DeviceIndex index) {
  if (memory_ == nullptr || !memory_->copy_in(target, source, size, index)) {
    throw HostError("cannot copy bytes to " + device_name(type_, index));
  }
}

void Devices::fetch(void* target, const void* source, size_t size, DeviceIndex index) {
  if (memory_ == nullptr || !memory_->copy_out(target, source, size, index)) {
    throw HostError("cannot copy bytes from " + device_name(type_, index));
  }
}

bool Devices::fails(Operation operation) {
  const uint64_t number = ++done_[operation];
  return std::any_of(faults_.begin(), faults_.end(), [&](const Fault& fault) {
    return fault.operation == operation && (number == fault.nth || (fault.lasting && number > fault.nth));
  });
}

rt::Result<void*> Devices::allocate(size_t size, DeviceIndex index, size_t alignment) {
  const std::lock_guard<std::mutex> guard(lock_);
  const bool fault = fails(Operation::kAllocate);
  void* found = memory_ == nullptr || fault ? nullptr : memory_->allocate(size, index, alignment);
  if (found == nullptr) {
    ET_LOG(
        Error,
        "%s cannot allocate %zu bytes%s",
        device_name(type_, index).c_str(),
        size,
        fault ? ": injected fault" : "");
    return rt::Error::MemoryAllocationFailed;
  }
  live_[found] = {index, size};
  DeviceCounts& counts = counts_[index];
  ++counts.allocations;
  counts.allocated_bytes += size;
  ++counts.live_allocations;
  counts.live_bytes += size;
  return found;
}

void Devices::deallocate(void* memory, DeviceIndex index) {
  const std::lock_guard<std::mutex> guard(lock_);
  const auto found = live_.find(memory);
  if (found == live_.end() || found->second.first != index) {
    ET_LOG(Error, "cannot free memory that %s did not allocate", device_name(type_, index).c_str());
    return;
  }
  DeviceCounts& counts = counts_[index];
  --counts.live_allocations;
  counts.live_bytes -= found->second.second;
  live_.erase(found);
  memory_->deallocate(memory, index);
}

rt::Error Devices::copy_host_to_device(void* target, const void* source, size_t size, DeviceIndex index) {
  const std::lock_guard<std::mutex> guard(lock_);
  if (fails(Operation::kHostToDevice)) {
    ET_LOG(Error, "cannot copy %zu bytes to %s: injected fault", size, device_name(type_, index).c_str());
    return rt::Error::Internal;
  }
  if (memory_ == nullptr || !memory_->copy_in(target, source, size, index)) {
    ET_LOG(
        Error,
        "cannot copy %zu bytes to %s; the range may be outside of its allocations",
        size,
        device_name(type_, index).c_str());
    return rt::Error::InvalidArgument;
  }
  ++counts_[index].copies_in;
  counts_[index].bytes_in += size;
  return rt::Error::Ok;
}

rt::Error Devices::copy_device_to_host(void* target, const void* source, size_t size, DeviceIndex index) {
  const std::lock_guard<std::mutex> guard(lock_);
  if (fails(Operation::kDeviceToHost)) {
    ET_LOG(Error, "cannot copy %zu bytes from %s: injected fault", size, device_name(type_, index).c_str());
    return rt::Error::Internal;
  }
  if (memory_ == nullptr || !memory_->copy_out(target, source, size, index)) {
    ET_LOG(
        Error,
        "cannot copy %zu bytes from %s; the range may be outside of its allocations",
        size,
        device_name(type_, index).c_str());
    return rt::Error::InvalidArgument;
  }
  ++counts_[index].copies_out;
  counts_[index].bytes_out += size;
  return rt::Error::Ok;
}

}  // namespace etdev
