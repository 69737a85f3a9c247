// Messages between the host process and its parent.
//
// A frame is a header (magic, version, kind, length) and a payload. All numbers are little-endian. The same layout is in
// wire.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace etdev {

constexpr uint32_t kMagic = 0x484e5445;  // "ETNH"
constexpr uint16_t kVersion = 4;

enum class Kind : uint16_t {
  kHello = 1,
  kLoad = 2,
  kOpen = 3,
  kCall = 4,
  kUnload = 5,
  kRegisterTwice = 6,
  kFaults = 7,
  kLibrary = 8,
  kAnswer = 100,
  kError = 101,
  kCrash = 102,
};

struct FrameHeader {
  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  uint16_t kind = 0;
  uint64_t length = 0;
};
static_assert(sizeof(FrameHeader) == 16, "the header has no padding");

// Thrown for a request that fails. The text is the answer.
class HostError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Payload of a request. Each read checks that the bytes are there.
class Reader {
 public:
  explicit Reader(std::vector<uint8_t> payload) : payload_(std::move(payload)) {}

  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)), sizeof(T));
    return value;
  }
  std::string text();
  std::vector<std::string> texts();
  const uint8_t* take(uint64_t size);

 private:
  std::vector<uint8_t> payload_;
  size_t at_ = 0;
};

// Payload of an answer.
class Writer {
 public:
  template <typename T>
  void number(T value) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    payload_.insert(payload_.end(), bytes, bytes + sizeof(T));
  }
  void text(const std::string& value);
  void texts(const std::vector<std::string>& values);
  void bytes(const void* data, size_t size);
  const std::vector<uint8_t>& payload() const {
    return payload_;
  }

 private:
  std::vector<uint8_t> payload_;
};

// Reads one frame. Returns false if the parent has closed the stream. Throws HostError, after an answer to the
// descriptor `answers`, if the parent has another version of the protocol.
bool receive(int descriptor, int answers, FrameHeader& header, std::vector<uint8_t>& payload);

// Writes one frame.
void send(int descriptor, Kind kind, const std::vector<uint8_t>& payload);

}  // namespace etdev
