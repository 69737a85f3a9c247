// Follows the instructions of a method while it runs.
#pragma once

#include <executorch/runtime/core/event_tracer.h>
#include <executorch/runtime/core/span.h>

#include <string>
#include <vector>

#include "crash.h"
#include "memory.h"
#include "wire.h"

namespace etdev {

namespace rt = ::executorch::runtime;

// Follows the instructions of a method. ExecuTorch reports its position before each kernel and delegate.
class Watch final : public rt::EventTracer {
 public:
  // `buffers` are host views of the planned buffers. With `notes`, the report of a crash names the last instruction.
  // Throws HostError for unused bytes that the host cannot write.
  Watch(const Unused& unused, const std::vector<rt::Span<uint8_t>>& buffers, bool notes)
      : unused_(unused), buffers_(buffers), notes_(notes) {
    for (const auto& [position, ranges] : unused) {
      for (const Range& range : ranges) {
        if (range.buffer >= buffers.size() || range.offset > buffers[range.buffer].size() ||
            range.size > buffers[range.buffer].size() - range.offset) {
          throw HostError("the bytes to poison at " + std::to_string(position) + " are outside of the planned buffers");
        }
        if (buffers[range.buffer].data() == nullptr) {
          throw HostError("the host cannot poison memory of a device that is not simulated");
        }
      }
    }
  }

  void begin_call() {
    fill(-1);
  }

  rt::EventTracerEntry start_profiling(const char*, rt::ChainID, rt::DebugHandle) override {
    // The debug handle is only set within an instruction.
    if (chain_id_ != rt::kUnsetChainId) {
      if (notes_) {
        note_instruction(static_cast<int64_t>(debug_handle_));
      }
      fill(static_cast<int64_t>(debug_handle_));
    }
    return {};
  }

  void create_event_block(const char*) override {}
  void end_profiling(rt::EventTracerEntry) override {}
  rt::EventTracerEntry start_profiling_delegate(const char*, rt::DelegateDebugIntId) override {
    return {};
  }
  void end_profiling_delegate(rt::EventTracerEntry, const void*, size_t) override {}
  void log_profiling_delegate(
      const char*, rt::DelegateDebugIntId, et_timestamp_t, et_timestamp_t, const void*, size_t) override {}
  void track_allocation(rt::AllocatorID, size_t) override {}
  rt::AllocatorID track_allocator(const char*) override {
    return 0;
  }
  rt::Result<bool> log_evalue(const rt::EValue&, rt::LoggedEValueType) override {
    return false;
  }
  rt::Result<bool> log_intermediate_output_delegate(const char*, rt::DelegateDebugIntId, const executorch::aten::Tensor&) override {
    return false;
  }
  rt::Result<bool> log_intermediate_output_delegate(
      const char*, rt::DelegateDebugIntId, const executorch::runtime::ArrayRef<executorch::aten::Tensor>) override {
    return false;
  }
  rt::Result<bool> log_intermediate_output_delegate(const char*, rt::DelegateDebugIntId, const int&) override {
    return false;
  }
  rt::Result<bool> log_intermediate_output_delegate(const char*, rt::DelegateDebugIntId, const bool&) override {
    return false;
  }
  rt::Result<bool> log_intermediate_output_delegate(const char*, rt::DelegateDebugIntId, const double&) override {
    return false;
  }
  void set_delegation_intermediate_output_filter(rt::EventTracerFilterBase*) override {}

 private:
  void fill(int64_t position) {
    const auto found = unused_.find(position);
    if (found == unused_.end()) {
      return;
    }
    for (const Range& range : found->second) {
      poison(buffers_[range.buffer].data(), range.offset, range.size);
    }
  }

  const Unused& unused_;
  const std::vector<rt::Span<uint8_t>>& buffers_;
  const bool notes_;
};

}  // namespace etdev
