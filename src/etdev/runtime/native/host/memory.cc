#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>

#include "wire.h"

namespace etdev {
namespace {

constexpr size_t kMaxRegions = 65536;
constexpr size_t kUnlimited = size_t{1} << 30;

// A plain array: the crash handler must not take locks or follow pointers that are being changed.
Region* regions() {
  static Region* const table = static_cast<Region*>(mmap(
      nullptr, kMaxRegions * sizeof(Region), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return table;
}
size_t region_count = 0;

std::set<const GuardedBuffer*> guarded_buffers;

size_t page_size() {
  static const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

size_t rounded_up(size_t size, size_t unit) {
  return (size + unit - 1) / unit * unit;
}

}  // namespace

void add_region(const void* begin, size_t size, const std::string& name) {
  if (region_count == kMaxRegions) {
    throw HostError("the program has too many buffers");
  }
  Region& added = regions()[region_count];
  added.begin = static_cast<const uint8_t*>(begin);
  added.end = added.begin + size;
  std::snprintf(added.name, sizeof(added.name), "%s", name.c_str());
  ++region_count;
}

void remove_region(const void* begin) {
  for (size_t i = 0; i < region_count; ++i) {
    if (regions()[i].begin == begin) {
      regions()[i] = regions()[--region_count];
      return;
    }
  }
}

const Region* find_region(const void* address) {
  const auto* at = static_cast<const uint8_t*>(address);
  for (size_t i = 0; i < region_count; ++i) {
    if (regions()[i].begin <= at && at < regions()[i].end) {
      return &regions()[i];
    }
  }
  return nullptr;
}

GuardedBuffer::GuardedBuffer(size_t size, size_t alignment, const std::string& name) : name_(name), size_(size) {
  const size_t page = page_size();
  const size_t inner = std::max(rounded_up(size + alignment, page), page);
  mapped_ = inner + 2 * page;
  void* mapping = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    throw HostError("cannot allocate " + described());
  }
  mapping_ = static_cast<uint8_t*>(mapping);
  first_ = mapping_ + page;
  last_ = first_ + inner;
  if (mprotect(first_, inner, PROT_READ | PROT_WRITE) != 0) {
    munmap(mapping_, mapped_);
    throw HostError("cannot allocate " + described());
  }
  data_ = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(last_) - size) / alignment * alignment);
  std::memset(first_, kCanary, static_cast<size_t>(data_ - first_));
  std::memset(data_ + size, kCanary, static_cast<size_t>(last_ - data_) - size);
  add_region(mapping_, page, "the guard page before " + name);
  add_region(last_, page, "the guard page after " + name);
  guarded_buffers.insert(this);
}

GuardedBuffer::~GuardedBuffer() {
  guarded_buffers.erase(this);
  remove_region(mapping_);
  remove_region(last_);
  munmap(mapping_, mapped_);
}

std::string GuardedBuffer::damage() const {
  const auto changed = [](uint8_t byte) { return byte != kCanary; };
  const uint8_t* after = std::find_if(data_ + size_, last_, changed);
  if (after != last_) {
    return described() + ": out-of-bounds write at offset " + std::to_string(after - data_);
  }
  // Only the last page before the start is read: a write before the start changes it first.
  const uint8_t* from = std::max(first_, data_ - std::min<ptrdiff_t>(data_ - first_, 4096));
  if (std::find_if(from, static_cast<const uint8_t*>(data_), changed) != data_) {
    return described() + ": out-of-bounds write before its start";
  }
  return "";
}

std::vector<std::string> damages() {
  std::vector<std::string> found;
  for (const GuardedBuffer* buffer : guarded_buffers) {
    const std::string damage = buffer->damage();
    if (!damage.empty()) {
      found.push_back(damage);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

Pool* Pool::create(uint64_t limit, const std::string& name, uint64_t failing) {
  const size_t size = limit == kNoLimit ? kUnlimited : limit;
  if (size == 0) {
    return new Pool(0, nullptr, name, failing);
  }
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    throw HostError("cannot allocate " + name);
  }
  return new Pool(size, static_cast<uint8_t*>(base), name, failing);
}

Pool::~Pool() {
  if (base_address() != nullptr) {
    munmap(base_address(), size());
  }
}

void* Pool::allocate(size_t size, size_t alignment) {
  ++count_;
  void* found = count_ == failing_ ? nullptr : MemoryAllocator::allocate(size, alignment);
  most_ = std::max(most_, used_size());
  if (found == nullptr && failure_.empty()) {
    failure_ = count_ == failing_
        ? name_ + ": injected fault at allocation " + std::to_string(count_)
        : name_ + " of " + std::to_string(this->size()) + " bytes is too small: " + std::to_string(used_size()) +
            " are in use, and " + std::to_string(size) + " more are needed";
  }
  return found;
}

void Pool::reset() {
  most_ = std::max(most_, used_size());
  MemoryAllocator::reset();
}

size_t Pool::most_used() const {
  return std::max(most_, used_size());
}

void Pool::forget() {
  most_ = 0;
}

void poison(uint8_t* begin, size_t offset, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    begin[offset + i] = (offset + i) % 2 == 0 ? 0xff : 0x7f;
  }
}

}  // namespace etdev
