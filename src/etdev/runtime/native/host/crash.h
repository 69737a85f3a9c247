// Reports a crash of the process to the parent, with the instruction that ran.
#pragma once

#include <cstdint>

namespace etdev {

// Installs handlers for the signals of a crash. They write a frame to `descriptor`.
void install_crash_handler(int descriptor);

// Records the current method and instruction. -1: before the first instruction.
void note_method(const char* name);
void note_instruction(int64_t position);

// Records that a frame is being written. A crash then does not write a frame.
void note_writing(bool writing);

}  // namespace etdev
