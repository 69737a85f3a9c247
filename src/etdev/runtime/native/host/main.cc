// The host process of etdev's native runtime: etdev-native-host READ_FD WRITE_FD.
//
// It answers requests of its parent until the parent closes the stream. It also reports errors and crashes as answers.

#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <executorch/runtime/platform/runtime.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <limits>
#include <set>

#include "crash.h"
#include "devices.h"
#include "heap.h"
#include "libraries.h"
#include "loaded.h"
#include "reference.h"
#include "wire.h"

namespace etdev {
namespace {

class Host {
 public:
  void answer(Kind kind, Reader& request, Writer& answer) {
    switch (kind) {
      case Kind::kHello:
        return hello(answer);
      case Kind::kLoad:
        return load(request, answer);
      case Kind::kOpen:
        return open(request, answer);
      case Kind::kCall:
        return call(request, answer);
      case Kind::kUnload:
        return unload(answer);
      case Kind::kFaults:
        return faults(request);
      case Kind::kLibrary:
        return open_library(request.text());
      case Kind::kRegisterTwice:
        return rt::register_device_allocator(Devices::of(DeviceType::CUDA));
      default:
        throw HostError("unknown request");
    }
  }

 private:
  static void hello(Writer& answer) {
    std::set<std::string> operators;
    for (const auto& kernel : rt::get_registered_kernels()) {
      operators.insert(kernel.name_);
    }
    answer.texts({operators.begin(), operators.end()});
    std::vector<std::string> backends;
    std::vector<std::string> usable;
    for (size_t i = 0; i < rt::get_num_registered_backends(); ++i) {
      const char* name = rt::get_backend_name(i).get();
      backends.emplace_back(name);
      if (rt::get_backend_class(name)->is_available()) {
        usable.emplace_back(name);
      }
    }
    answer.texts(backends);
    answer.texts(usable);
    answer.number(static_cast<uint8_t>(heap_is_counted()));
  }

  void load(Reader& request, Writer& answer) {
    loaded_.reset();
    const std::string path = request.text();
    const std::vector<std::string> data = request.texts();
    const bool shared = request.number<uint8_t>() != 0;
    const auto alignment = request.number<uint64_t>();
    use_devices(request);
    heap_before_ = heap_in_use();
    loaded_ = std::make_unique<Loaded>(path, data, shared, alignment);
    answer.texts(loaded_->methods());
  }

  // Devices are the program's own: absent, simulated, or CUDA.
  static void use_devices(Reader& request) {
    enum : uint8_t { kAbsent = 0, kSimulated = 1, kCuda = 2 };
    Devices* devices = Devices::of(DeviceType::CUDA);
    const auto kind = request.number<uint8_t>();
    if (kind == kAbsent) {
      return;
    }
    if (kind == kSimulated) {
      const auto count = request.number<uint64_t>();
      devices->use(simulated_memory(DeviceType::CUDA, count, request.number<uint64_t>()));
    } else {
      const std::string path = request.text();
      std::map<DeviceIndex, int> ordinals;
      const auto count = request.number<uint32_t>();
      for (uint32_t i = 0; i < count; ++i) {
        const auto index = request.number<int8_t>();
        ordinals[index] = request.number<int32_t>();
      }
      devices->use(cuda_memory(path, ordinals));
    }
    devices->register_once();
  }

  static void faults(Reader& request) {
    std::vector<Fault> wanted;
    const auto count = request.number<uint32_t>();
    for (uint32_t i = 0; i < count; ++i) {
      Fault fault;
      fault.operation = static_cast<Operation>(request.number<uint8_t>());
      fault.nth = request.number<uint64_t>();
      fault.lasting = request.number<uint8_t>() != 0;
      wanted.push_back(fault);
    }
    Devices::of(DeviceType::CUDA)->fail(std::move(wanted));
  }

  Loaded& loaded() {
    if (loaded_ == nullptr) {
      throw HostError("no program is loaded");
    }
    return *loaded_;
  }

  static Unused read_unused(Reader& request) {
    Unused found;
    const auto moments = request.number<uint32_t>();
    for (uint32_t i = 0; i < moments; ++i) {
      auto& ranges = found[request.number<int64_t>()];
      ranges.resize(request.number<uint32_t>());
      for (Range& range : ranges) {
        range.buffer = request.number<uint32_t>();
        range.offset = request.number<uint64_t>();
        range.size = request.number<uint64_t>();
      }
    }
    return found;
  }

  void open(Reader& request, Writer& answer) {
    const std::string name = request.text();
    OpenOptions options;
    options.method_pool = request.number<uint64_t>();
    options.temporary_pool = request.number<uint64_t>();
    for (const uint64_t limit : {options.method_pool, options.temporary_pool}) {
      if (limit != kNoLimit && limit > std::numeric_limits<uint32_t>::max()) {
        throw HostError("a pool cannot be larger than 4 GiB");
      }
    }
    options.failing = request.number<uint64_t>();
    options.watch = request.number<uint8_t>() != 0;
    options.unused = read_unused(request);
    options.nested.resize(request.number<uint32_t>());
    for (Unused& unused : options.nested) {
      unused = read_unused(request);
    }
    const Opened took = loaded().open(name, options);
    answer.number(static_cast<uint32_t>(took.orders.size()));
    for (const auto& order : took.orders) {
      answer.number(order.has_value() ? static_cast<int32_t>(order->size()) : int32_t{-1});
      if (order.has_value()) {
        answer.bytes(order->data(), order->size());
      }
    }
    answer.number(static_cast<uint32_t>(took.buffers.size()));
    for (const PlannedBuffer& buffer : took.buffers) {
      answer.number(static_cast<int8_t>(buffer.device.type()));
      answer.number(static_cast<int8_t>(buffer.device.index()));
      answer.number(buffer.size);
    }
    answer.number(took.method_pool);
    answer.number(took.heap);
    answer.number(took.heap_peak);
  }

  void call(Reader& request, Writer& answer) {
    const std::string name = request.text();
    const bool fresh = request.number<uint8_t>() != 0;
    const auto repeat = request.number<uint32_t>();
    if (fresh) {
      loaded().reset();
    }
    Writer outputs;
    const Called took = loaded().call(name, repeat, request, outputs);
    answer.number(static_cast<uint32_t>(took.seconds.size()));
    for (const double seconds : took.seconds) {
      answer.number(seconds);
    }
    answer.number(took.method_pool);
    answer.number(took.temporary_pool);
    answer.number(took.heap);
    answer.number(took.heap_peak);
    answer.texts(took.damages);
    device_counts(answer);
    answer.bytes(outputs.payload().data(), outputs.payload().size());
  }

  void unload(Writer& answer) {
    loaded_.reset();
    answer.number(heap_in_use() - heap_before_);
    device_counts(answer);
  }

  static void device_counts(Writer& answer) {
    const auto& counts = Devices::of(DeviceType::CUDA)->counts();
    answer.number(static_cast<uint32_t>(counts.size()));
    for (const auto& [index, found] : counts) {
      answer.number(static_cast<int8_t>(index));
      for (const uint64_t number :
           {found.allocations,
            found.allocated_bytes,
            found.live_allocations,
            found.live_bytes,
            found.copies_in,
            found.bytes_in,
            found.copies_out,
            found.bytes_out}) {
        answer.number(number);
      }
    }
  }

  std::unique_ptr<Loaded> loaded_;
  int64_t heap_before_ = 0;
};

int serve(int reading, int writing) {
  Host host;
  FrameHeader header;
  std::vector<uint8_t> payload;
  while (receive(reading, writing, header, payload)) {
    Reader request(std::move(payload));
    Writer answer;
    Kind kind = Kind::kAnswer;
    note_method("");
    try {
      host.answer(static_cast<Kind>(header.kind), request, answer);
    } catch (const std::exception& error) {
      answer = Writer();
      answer.text(error.what());
      kind = Kind::kError;
    }
    note_writing(true);
    send(writing, kind, answer.payload());
    note_writing(false);
    payload = {};
  }
  return 0;
}

}  // namespace
}  // namespace etdev

int main(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }
  signal(SIGINT, SIG_IGN);  // Ctrl-C reaches all processes. The parent decides when this one ends.
  signal(SIGPIPE, SIG_IGN);
  const int reading = std::atoi(argv[1]);
  const int writing = std::atoi(argv[2]);
  etdev::install_crash_handler(writing);
  executorch::runtime::runtime_init();
  etdev::register_reference_backend();
  try {
    return etdev::serve(reading, writing);
  } catch (const std::exception&) {
    return 1;
  }
}
