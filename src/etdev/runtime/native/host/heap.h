// Counts of the bytes that the process has allocated from the heap.
//
// heap.cc replaces the C library's allocation functions, so the counts include the runtime and the delegates.
#pragma once

#include <cstdint>

namespace etdev {

// Whether the counts are kept. They need glibc.
bool heap_is_counted();

// Bytes that are allocated now, with the allocator's rounding.
int64_t heap_in_use();

// Largest number of bytes in use since the last call of reset_heap_peak.
int64_t heap_peak();
void reset_heap_peak();

}  // namespace etdev
