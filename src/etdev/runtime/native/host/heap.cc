#include "heap.h"

#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace etdev {
namespace {

std::atomic<int64_t> in_use{0};
std::atomic<int64_t> peak{0};

void* counted(void* found) {
  if (found == nullptr) {
    return found;
  }
  const auto size = static_cast<int64_t>(malloc_usable_size(found));
  const int64_t now = in_use.fetch_add(size, std::memory_order_relaxed) + size;
  int64_t before = peak.load(std::memory_order_relaxed);
  while (now > before && !peak.compare_exchange_weak(before, now, std::memory_order_relaxed)) {
  }
  return found;
}

void uncounted(void* given) {
  if (given != nullptr) {
    in_use.fetch_sub(static_cast<int64_t>(malloc_usable_size(given)), std::memory_order_relaxed);
  }
}

}  // namespace

int64_t heap_in_use() {
  return in_use.load();
}

int64_t heap_peak() {
  return peak.load();
}

void reset_heap_peak() {
  peak.store(in_use.load());
}

#ifdef __GLIBC__

bool heap_is_counted() {
  return true;
}

}  // namespace etdev

extern "C" {

void* __libc_malloc(size_t size);
void __libc_free(void* given);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* given, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
  return etdev::counted(__libc_malloc(size));
}

void free(void* given) {
  etdev::uncounted(given);
  __libc_free(given);
}

void* calloc(size_t count, size_t size) {
  return etdev::counted(__libc_calloc(count, size));
}

void* realloc(void* given, size_t size) {
  etdev::uncounted(given);
  void* found = __libc_realloc(given, size);
  if (found == nullptr && size != 0) {
    etdev::counted(given);  // The old block is still there.
  }
  return etdev::counted(found);
}

void* memalign(size_t alignment, size_t size) {
  return etdev::counted(__libc_memalign(alignment, size));
}

void* aligned_alloc(size_t alignment, size_t size) {
  return etdev::counted(__libc_memalign(alignment, size));
}

int posix_memalign(void** target, size_t alignment, size_t size) {
  void* found = etdev::counted(__libc_memalign(alignment, size));
  if (found == nullptr) {
    return ENOMEM;
  }
  *target = found;
  return 0;
}

}  // extern "C"

#else

bool heap_is_counted() {
  return false;
}

}  // namespace etdev

#endif
