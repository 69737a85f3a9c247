// Memory of @PROGRAM@@ORIGIN@, in bytes. All of it is static: runner.cc has it.
// The sizes of arenas are those of the plan in the file. The sizes of pools were measured@MEASURED@.
#pragma once

#include <cstddef>
#include <cstdint>

// Attributes of each arena, for firmware: for example __attribute__((section(".sram"))).
//@if banks
// With @MACRO@_BANK_SECTIONS, each arena is in the section of its memory bank. README.md has the linker script for them.
//@end
@ATTRIBUTES@
// Bytes that are added to each measured pool. A pool that is one byte too small fails while the program is loaded or
// called, and the error names its constant. Raise this for another compiler or another version of ExecuTorch.
#ifndef @MACRO@_POOL_MARGIN
#define @MACRO@_POOL_MARGIN 0
#endif

namespace @ID@ {

inline constexpr size_t kPoolMargin = @MACRO@_POOL_MARGIN;

// The program@DATA_WORDS@.
inline constexpr size_t kFileCount = @FILE_COUNT@;
inline constexpr size_t kDataFileCount = kFileCount - 1;
@FILES@
inline constexpr size_t kFileAlignment = @FILE_ALIGNMENT@;

// Methods: what each of them needs.
inline constexpr size_t kMethodCount = @METHOD_COUNT@;
@METHODS@

//@if banks
// Arenas: planned memory. They have the names of their memory banks.
//@else
// Arenas: planned memory. Their number is the program's memory id.
//@end
inline constexpr size_t kArenaAlignment = @ARENA_ALIGNMENT@;
@ARENAS@

// Pool for temporary memory of kernels and delegates. All methods share it, since only one is called at a time.
inline constexpr size_t kTempPoolBytes = @TEMP@;
inline constexpr size_t kPoolAlignment = @POOL_ALIGNMENT@;

// Inputs, and outputs that the program does not plan. All methods share it.
inline constexpr size_t kIoBytes = @IO@;
inline constexpr size_t kIoAlignment = @IO_ALIGNMENT@;

// All of the above. The runner's own objects, some hundred bytes per method, are not counted.@HEAP@
inline constexpr size_t kRamBytes =@RAM@;

}  // namespace @ID@
