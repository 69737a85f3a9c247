// Runs the methods of @PROGRAM@ in static memory.
//
// No code of this project calls the heap, except for main.cc (through stdio). ExecuTorch itself takes its memory from
// the arenas and pools of @NAME@_memory.h. Kernels and delegates may call the heap: see README.md.
#pragma once

#include <executorch/runtime/executor/method.h>

#include <cstddef>
#include <cstdint>

#include "@NAME@_memory.h"

namespace @ID@ {

using executorch::runtime::Error;
using executorch::runtime::Method;
using executorch::runtime::Span;

// The program, and the data files that it needs.
struct File {
  const char* name;
  const uint8_t* bytes;
  size_t size;
//@if file
  uint8_t* memory;  // Where the file has to be read to before Load(): the same address as `bytes`.
//@end
};
extern const File kFiles[kFileCount];

// How much of a pool is in use.
struct PoolUse {
  const char* constant;  // Its size in @NAME@_memory.h.
  size_t size;
  size_t peak;
};

// Loads the program and all of its methods. State begins with its initial values. Call it once, or again after
// Unload().
[[nodiscard]] Error Load();

// Destroys the methods, and with them what delegates allocated.
void Unload();

// Returns the index of a method, or kMethodCount if there is none of this name. Methods are in the file's order.
size_t FindMethod(const char* name);

// Returns a loaded method. Its outputs are get_output(i), valid until the next call of any method.
Method& GetMethod(size_t method);

// Returns the memory that an input's bytes are written to before SetInput(). It is empty for an input that is not a
// tensor. Write and set one input after the other: inputs may share this memory.
Span<uint8_t> InputMemory(size_t method, size_t input);

// Sets an input. `sizes` has one entry per dimension; without it, a tensor has the largest sizes. An input that is not
// a tensor gets the value that the program was built for. Set every input before each call.
[[nodiscard]] Error SetInput(size_t method, size_t input, const int32_t* sizes = nullptr);

// Calls a method.
[[nodiscard]] Error Execute(size_t method);

// Returns the use of a method's pool, or for `pool` 1 that of the pool for temporary memory, which all methods share.
PoolUse GetPoolUse(size_t method, size_t pool);

// Returns the cause of the last error in a sentence.
const char* Problem();

}  // namespace @ID@
