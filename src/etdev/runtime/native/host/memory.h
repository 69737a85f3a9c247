// Memory of programs: guarded buffers, and pools that count their bytes in use.
#pragma once

#include <executorch/runtime/core/memory_allocator.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace etdev {

// A named range of addresses. The crash handler reports accesses to it.
struct Region {
  const uint8_t* begin;
  const uint8_t* end;
  char name[96];
};

// Adds a region, or removes one. The crash handler reads regions without a lock, when no other code runs.
void add_region(const void* begin, size_t size, const std::string& name);
void remove_region(const void* begin);
const Region* find_region(const void* address);

// Memory of exactly `size` bytes between pages that cannot be accessed.
//
// Its end touches the page after it, except for the bytes that alignment needs. Those hold a canary, as do the bytes
// between the page before it and its start.
class GuardedBuffer {
 public:
  GuardedBuffer(size_t size, size_t alignment, const std::string& name);
  ~GuardedBuffer();
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  uint8_t* data() const {
    return data_;
  }
  size_t size() const {
    return size_;
  }
  const std::string& name() const {
    return name_;
  }
  // Returns a message if the canary has changed, otherwise an empty string.
  std::string damage() const;

 private:
  std::string described() const {
    return name_ + " (" + std::to_string(size_) + " bytes)";
  }

  std::string name_;
  size_t size_;
  size_t mapped_ = 0;
  uint8_t* mapping_ = nullptr;
  uint8_t* first_ = nullptr;
  uint8_t* last_ = nullptr;
  uint8_t* data_ = nullptr;
};

// Returns a message for each guarded buffer whose canary has changed.
std::vector<std::string> damages();

// Value of the bytes around buffers.
constexpr uint8_t kCanary = 0xc5;

// Bytes of a planned buffer.
struct Range {
  uint32_t buffer;
  uint64_t offset;
  uint64_t size;
};

// Bytes that are not in use before each instruction. Position -1 is the start of a call.
using Unused = std::map<int64_t, std::vector<Range>>;

// Limit of a pool that is large enough for any program.
constexpr uint64_t kNoLimit = UINT64_MAX;

// A pool of a fixed size, or one that is large enough for any program. It is ExecuTorch's own bump allocator, so the
// bytes that it counts are those that a program with a static pool needs.
class Pool : public executorch::runtime::MemoryAllocator {
 public:
  // `failing` is the number of the allocation that fails, from 1; 0 for none.
  static Pool* create(uint64_t limit, const std::string& name, uint64_t failing);
  ~Pool() override;

  void* allocate(size_t size, size_t alignment) override;
  void reset() override;
  // Largest number of bytes in use so far, or since the last call of forget.
  size_t most_used() const;
  void forget();
  const std::string& name() const {
    return name_;
  }
  // Sentence about the first allocation that failed; empty if none did.
  const std::string& failure() const {
    return failure_;
  }

 private:
  Pool(size_t size, uint8_t* base, const std::string& name, uint64_t failing)
      : MemoryAllocator(static_cast<uint32_t>(size), base), name_(name), failing_(failing) {}

  std::string name_;
  uint64_t failing_;
  uint64_t count_ = 0;
  size_t most_ = 0;
  std::string failure_;
};

// Fills bytes with the poison of etdev's interpreter: NaN in float types, true as a bool, a large number as an integer.
void poison(uint8_t* begin, size_t offset, size_t size);

}  // namespace etdev
