#include "crash.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "memory.h"
#include "wire.h"

namespace etdev {
namespace {

int answers = -1;
std::atomic<bool> writing{false};
std::atomic<int64_t> instruction{-1};
char method[256] = "";

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};

// A payload without allocation, because the allocator may have crashed.
struct Payload {
  uint8_t bytes[1024];
  size_t size = 0;

  void add(const void* data, size_t length) {
    if (size + length <= sizeof(bytes)) {
      std::memcpy(bytes + size, data, length);
      size += length;
    }
  }
  template <typename T>
  void number(T value) {
    add(&value, sizeof(value));
  }
  void text(const char* value) {
    const auto length = static_cast<uint32_t>(std::strlen(value));
    number(length);
    add(value, length);
  }
};

void handle(int number, siginfo_t* info, void*) {
  if (!writing.load() && answers >= 0) {
    Payload payload;
    payload.number(static_cast<uint32_t>(number));
    payload.text(method);
    payload.number(instruction.load());
    char where[160] = "";
    if (number == SIGSEGV || number == SIGBUS) {
      const Region* region = find_region(info->si_addr);
      if (region != nullptr) {
        const auto offset = static_cast<const uint8_t*>(info->si_addr) - region->begin;
        std::snprintf(where, sizeof(where), "%s, byte %lld", region->name, static_cast<long long>(offset));
      }
    }
    payload.text(where);
    FrameHeader header;
    header.kind = static_cast<uint16_t>(Kind::kCrash);
    header.length = payload.size;
    ssize_t written = ::write(answers, &header, sizeof(header));
    written = ::write(answers, payload.bytes, payload.size);
    static_cast<void>(written);
  }
  signal(number, SIG_DFL);
  raise(number);
}

}  // namespace

void install_crash_handler(int descriptor) {
  answers = descriptor;
  constexpr size_t kStack = 65536;
  stack_t stack = {};
  stack.ss_sp = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  stack.ss_size = kStack;
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND;
  for (const int number : kSignals) {
    sigaction(number, &action, nullptr);
  }
  find_region(nullptr);  // Maps the table of regions now.
}

void note_method(const char* name) {
  std::snprintf(method, sizeof(method), "%s", name);
  instruction.store(-1);
}

void note_instruction(int64_t position) {
  instruction.store(position, std::memory_order_relaxed);
}

void note_writing(bool now) {
  writing.store(now);
}

}  // namespace etdev
