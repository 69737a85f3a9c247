#include "wire.h"

#include <unistd.h>

#include <cerrno>

namespace etdev {
namespace {

bool read_all(int descriptor, void* target, size_t size) {
  auto* at = static_cast<uint8_t*>(target);
  while (size > 0) {
    const ssize_t count = ::read(descriptor, at, size);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return false;
    }
    at += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

void write_all(int descriptor, const void* source, size_t size) {
  const auto* at = static_cast<const uint8_t*>(source);
  while (size > 0) {
    const ssize_t count = ::write(descriptor, at, size);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      _exit(0);  // The parent is gone.
    }
    at += count;
    size -= static_cast<size_t>(count);
  }
}

}  // namespace

std::string Reader::text() {
  const auto size = number<uint32_t>();
  return std::string(reinterpret_cast<const char*>(take(size)), size);
}

std::vector<std::string> Reader::texts() {
  const auto count = number<uint32_t>();
  std::vector<std::string> found;
  for (uint32_t i = 0; i < count; ++i) {
    found.push_back(text());
  }
  return found;
}

const uint8_t* Reader::take(uint64_t size) {
  if (size > payload_.size() - at_) {
    throw HostError("the request is truncated");
  }
  const uint8_t* found = payload_.data() + at_;
  at_ += size;
  return found;
}

void Writer::text(const std::string& value) {
  number<uint32_t>(static_cast<uint32_t>(value.size()));
  bytes(value.data(), value.size());
}

void Writer::texts(const std::vector<std::string>& values) {
  number<uint32_t>(static_cast<uint32_t>(values.size()));
  for (const auto& value : values) {
    text(value);
  }
}

void Writer::bytes(const void* data, size_t size) {
  const auto* at = static_cast<const uint8_t*>(data);
  payload_.insert(payload_.end(), at, at + size);
}

bool receive(int descriptor, int answers, FrameHeader& header, std::vector<uint8_t>& payload) {
  if (!read_all(descriptor, &header, sizeof(header))) {
    return false;
  }
  if (header.magic != kMagic || header.version != kVersion) {
    // Any answer tells the parent this process's version.
    send(answers, Kind::kError, {});
    throw HostError("the parent process uses another version of the protocol");
  }
  payload.resize(header.length);
  return read_all(descriptor, payload.data(), payload.size());
}

void send(int descriptor, Kind kind, const std::vector<uint8_t>& payload) {
  FrameHeader header;
  header.kind = static_cast<uint16_t>(kind);
  header.length = payload.size();
  write_all(descriptor, &header, sizeof(header));
  write_all(descriptor, payload.data(), payload.size());
}

}  // namespace etdev
