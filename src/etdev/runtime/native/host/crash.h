// Reports a crash of the process to the parent, with the instruction that ran.
#pragma once

#include <cstdint>

namespace etdev {

// Installs handlers for the signals of a crash. They write a frame to `descriptor`.
void install_crash_handler(int descriptor);

// Says which method runs now, and at which instruction it is. -1: before its first instruction.
void note_method(const char* name);
void note_instruction(int64_t position);

// Says that a frame is being written. A crash then writes no other frame.
void note_writing(bool writing);

}  // namespace etdev
