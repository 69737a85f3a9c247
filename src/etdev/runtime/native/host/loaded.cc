#include "loaded.h"

#include <executorch/extension/data_loader/mmap_data_loader.h>
#include <executorch/extension/flat_tensor/flat_tensor_data_map.h>
#include <executorch/extension/named_data_map/merged_data_map.h>
#include <executorch/runtime/core/event_tracer.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "crash.h"
#include "heap.h"
#include "results.h"
#include "values.h"

namespace etdev {
namespace {

using executorch::aten::Tensor;
using executorch::extension::FlatTensorDataMap;
using executorch::extension::MmapDataLoader;
using MergedMap = executorch::extension::merged_data_map::MergedDataMap;
using rt::Error;
using rt::Span;
using rt::Tag;

std::unique_ptr<rt::DataLoader> open_file(const std::string& path) {
  return std::make_unique<MmapDataLoader>(
      checked(MmapDataLoader::from(path.c_str(), MmapDataLoader::MlockConfig::NoMlock), path + " cannot be opened"));
}

// Follows the instructions of a method. ExecuTorch says at which instruction it is before each kernel and delegate.
class Watch final : public rt::EventTracer {
 public:
  Watch(const std::map<int64_t, std::vector<Range>>& unused, const std::vector<uint8_t*>& buffers)
      : unused_(unused), buffers_(buffers) {}

  void begin_call() {
    fill(-1);
  }

  rt::EventTracerEntry start_profiling(const char*, rt::ChainID, rt::DebugHandle) override {
    // The debug handle is only set within an instruction.
    if (chain_id_ != rt::kUnsetChainId) {
      note_instruction(static_cast<int64_t>(debug_handle_));
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
  rt::Result<bool> log_evalue(const EValue&, rt::LoggedEValueType) override {
    return false;
  }
  rt::Result<bool> log_intermediate_output_delegate(const char*, rt::DelegateDebugIntId, const Tensor&) override {
    return false;
  }
  rt::Result<bool> log_intermediate_output_delegate(
      const char*, rt::DelegateDebugIntId, const executorch::runtime::ArrayRef<Tensor>) override {
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
      poison(buffers_[range.buffer], range.offset, range.size);
    }
  }

  const std::map<int64_t, std::vector<Range>>& unused_;
  const std::vector<uint8_t*>& buffers_;
};

}  // namespace

// Planned buffers of a method, or of all methods if they share them.
struct Loaded::Arena {
  std::vector<PlannedBuffer> planned;
  std::vector<std::unique_ptr<GuardedBuffer>> host;
  std::vector<rt::DeviceMemoryBuffer> device;
  std::vector<Span<uint8_t>> spans;
  std::vector<Device> devices;
  // Where the host can write a buffer's bytes, as the device would.
  std::vector<uint8_t*> views;

  void add(const PlannedBuffer& buffer, uint64_t alignment) {
    const std::string name = "planned buffer " + std::to_string(planned.size() + 1);
    planned.push_back(buffer);
    devices.push_back(buffer.device);
    if (buffer.device.is_cpu()) {
      host.push_back(std::make_unique<GuardedBuffer>(buffer.size, alignment, name));
      std::memset(host.back()->data(), 0, buffer.size);
      spans.push_back({host.back()->data(), buffer.size});
      views.push_back(host.back()->data());
      return;
    }
    device.push_back(checked(
        rt::DeviceMemoryBuffer::create(buffer.size, buffer.device.type(), buffer.device.index(), alignment),
        name + " of " + std::to_string(buffer.size) + " bytes cannot be allocated on " +
            device_name(buffer.device.type(), buffer.device.index())));
    auto* allocator = Devices::of(buffer.device.type());
    spans.push_back(device.back().as_span());
    views.push_back(allocator->device_view(device.back().data(), buffer.size, buffer.device.index()));
    if (views.back() == nullptr) {  // Memory of a simulated device is zero from the start.
      const std::vector<uint8_t> zeros(buffer.size);
      allocator->provide(device.back().data(), zeros.data(), zeros.size(), buffer.device.index());
    }
  }
};

struct Loaded::Open {
  OpenOptions options;
  std::shared_ptr<Arena> arena;
  std::unique_ptr<rt::HierarchicalAllocator> planned;
  std::unique_ptr<Pool> pool;
  std::unique_ptr<Pool> temporary;
  std::unique_ptr<rt::MemoryManager> memory;
  std::unique_ptr<Watch> watch;
  std::unique_ptr<rt::Method> method;
  Opened took;
};

Loaded::Loaded(const std::string& path, const std::vector<std::string>& data, bool shared, uint64_t alignment)
    : loader_(open_file(path)), shared_(shared), alignment_(alignment) {
  program_ = std::make_unique<rt::Program>(checked(
      rt::Program::load(loader_.get(), rt::Program::Verification::InternalConsistency), "the program is refused"));
  for (const std::string& file : data) {
    data_loaders_.push_back(open_file(file));
    data_.push_back(std::make_unique<FlatTensorDataMap>(
        checked(FlatTensorDataMap::load(data_loaders_.back().get()), file + " is refused")));
  }
  if (data_.size() > 1) {
    std::vector<const rt::NamedDataMap*> maps;
    for (const auto& map : data_) {
      maps.push_back(map.get());
    }
    merged_ = std::make_unique<MergedMap>(
        checked(MergedMap::load({maps.data(), maps.size()}), "the data files do not fit together"));
  }
}

Loaded::~Loaded() {
  close();
}

std::vector<std::string> Loaded::methods() const {
  std::vector<std::string> found;
  for (size_t i = 0; i < program_->num_methods(); ++i) {
    found.emplace_back(checked(program_->get_method_name(i), "a method has no name"));
  }
  return found;
}

std::shared_ptr<Loaded::Arena> Loaded::arena(const std::string& name) {
  if (shared_ && common_ != nullptr) {
    return common_;
  }
  std::vector<PlannedBuffer> wanted;
  for (const std::string& each : shared_ ? methods() : std::vector<std::string>{name}) {
    const auto meta = checked(program_->method_meta(each.c_str()), "method '" + each + "' has no description");
    for (size_t i = 0; i < meta.num_memory_planned_buffers(); ++i) {
      const auto size = static_cast<uint64_t>(checked(meta.memory_planned_buffer_size(i), "a planned buffer's size"));
      const Device device = checked(meta.memory_planned_buffer_device(i), "a planned buffer's device");
      if (i == wanted.size()) {
        wanted.push_back({device, size});
      } else if (wanted[i].device != device) {
        throw HostError("methods place planned buffer " + std::to_string(i + 1) + " on different devices");
      }
      wanted[i].size = std::max(wanted[i].size, size);
    }
  }
  auto made = std::make_shared<Arena>();
  for (const PlannedBuffer& buffer : wanted) {
    made->add(buffer, alignment_);
  }
  if (shared_) {
    common_ = made;
  }
  return made;
}

Opened Loaded::open(const std::string& name, const OpenOptions& options) {
  open_.erase(name);
  options_[name] = options;
  auto added = std::make_unique<Open>();
  added->options = options;
  added->arena = arena(name);
  Arena& arena = *added->arena;
  for (const auto& [position, ranges] : options.unused) {
    for (const Range& range : ranges) {
      if (range.buffer >= arena.planned.size() || range.offset > arena.planned[range.buffer].size ||
          range.size > arena.planned[range.buffer].size - range.offset) {
        throw HostError("the bytes to poison at " + std::to_string(position) + " are outside of the planned buffers");
      }
      if (arena.views[range.buffer] == nullptr) {
        throw HostError("the host cannot poison memory of a device that is not simulated");
      }
    }
  }
  added->planned = std::make_unique<rt::HierarchicalAllocator>(
      Span<Span<uint8_t>>(arena.spans.data(), arena.spans.size()),
      Span<const Device>(arena.devices.data(), arena.devices.size()));
  added->pool.reset(Pool::create(options.method_pool, "the method pool of '" + name + "'", options.failing));
  added->temporary.reset(Pool::create(options.temporary_pool, "the temporary pool of '" + name + "'", options.failing));
  added->memory =
      std::make_unique<rt::MemoryManager>(added->pool.get(), added->planned.get(), added->temporary.get());
  if (options.watch) {
    added->watch = std::make_unique<Watch>(added->options.unused, arena.views);
  }
  const rt::NamedDataMap* data = merged_ != nullptr ? merged_.get() : data_.empty() ? nullptr : data_[0].get();
  note_method(name.c_str());
  const int64_t before = heap_in_use();
  reset_heap_peak();
  auto method = program_->load_method(name.c_str(), added->memory.get(), added->watch.get(), data);
  added->took.heap = heap_in_use() - before;
  added->took.heap_peak = heap_peak() - before;
  if (!method.ok()) {
    const std::string& pool = added->pool->failure();
    fail("method '" + name + "' cannot be loaded" + (pool.empty() ? "" : ": " + pool), method.error());
  }
  added->method = std::make_unique<rt::Method>(std::move(method.get()));
  added->took.buffers = arena.planned;
  added->took.method_pool = added->pool->most_used();
  added->temporary->forget();
  open_[name] = std::move(added);
  return open_[name]->took;
}

void Loaded::close() {
  open_.clear();
  common_.reset();
  called_ = false;
}

void Loaded::reset() {
  if (called_) {
    close();
  }
}

Loaded::Open& Loaded::opened(const std::string& name) {
  const auto found = open_.find(name);
  if (found != open_.end()) {
    return *found->second;
  }
  if (options_.count(name) == 0) {
    throw HostError("method '" + name + "' was never opened");
  }
  // Methods that share memory are loaded together: loading one writes its initial state.
  const auto options = options_;
  for (const auto& [each, how] : options) {
    if (each == name || shared_) {
      open(each, how);
    }
  }
  return *open_.at(name);
}

Called Loaded::call(const std::string& name, uint32_t repeat, Reader& reader, Writer& writer) {
  Open& open = opened(name);
  rt::Method& method = *open.method;
  note_method(name.c_str());
  const auto count = reader.number<uint32_t>();
  if (count != method.inputs_size()) {
    throw HostError(
        "method '" + name + "' takes " + std::to_string(method.inputs_size()) + " inputs, not " + std::to_string(count));
  }
  called_ = true;
  const auto meta = method.method_meta();
  std::vector<Input> inputs(count);
  for (size_t i = 0; i < count; ++i) {
    const auto tag = meta.input_tag(i);
    const bool planned = tag.ok() && *tag == Tag::Tensor && meta.input_tensor_meta(i)->is_memory_planned();
    // ExecuTorch copies into planned memory from the host.
    const Device device = planned ? Device(DeviceType::CPU, 0) : device_of(input_of(method, i));
    read_value(reader, inputs[i], i, device, alignment_);
  }
  std::vector<std::unique_ptr<Provided>> outputs;
  for (size_t i = 0; i < method.outputs_size(); ++i) {
    const auto tag = meta.output_tag(i);
    if (!tag.ok() || *tag != Tag::Tensor) {
      continue;
    }
    const auto info = checked(meta.output_tensor_meta(i), "output " + std::to_string(i));
    if (!info.is_memory_planned()) {
      outputs.push_back(std::make_unique<Provided>(
          info.nbytes(), device_of(method.get_output(i)), alignment_, "output " + std::to_string(i)));
      if (open.watch != nullptr) {
        outputs.back()->poison();
      }
      // An output that is an input or a constant has memory already and refuses this.
      static_cast<void>(method.set_output_data_ptr(outputs.back()->data(), info.nbytes(), i));
    }
  }
  Called took;
  took.seconds.reserve(repeat);
  const int64_t before = heap_in_use();
  reset_heap_peak();
  for (uint32_t turn = 0; turn < repeat; ++turn) {
    if (open.watch != nullptr) {
      open.watch->begin_call();
    }
    const auto began = std::chrono::steady_clock::now();
    for (size_t i = 0; i < count; ++i) {
      check(method.set_input(inputs[i].value, i), "input " + std::to_string(i) + " of method '" + name + "' is refused");
    }
    const Error error = method.execute();
    took.seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    if (error != Error::Ok) {
      const std::string& pool = open.temporary->failure();
      fail("method '" + name + "' failed" + (pool.empty() ? "" : ": " + pool), error);
    }
  }
  took.heap = heap_in_use() - before;
  took.heap_peak = heap_peak() - before;
  took.method_pool = open.pool->most_used();
  took.temporary_pool = open.temporary->most_used();
  const auto inspect = [&](const auto& buffer) {
    const std::string damage = buffer.damage();
    if (!damage.empty()) {
      took.damages.push_back(damage);
    }
  };
  for (const auto& buffer : open.arena->host) {
    inspect(*buffer);
  }
  for (const Input& input : inputs) {
    if (input.bytes != nullptr) {
      inspect(*input.bytes);
    }
  }
  for (const auto& buffer : outputs) {
    inspect(*buffer);
  }
  writer.number(static_cast<uint32_t>(method.outputs_size()));
  for (size_t i = 0; i < method.outputs_size(); ++i) {
    write_value(writer, method.get_output(i), i);
  }
  return took;
}

}  // namespace etdev
