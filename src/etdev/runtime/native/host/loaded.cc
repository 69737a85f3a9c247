#include "loaded.h"


#include <algorithm>
#include <chrono>
#include <cstring>

#include "crash.h"
#include "heap.h"
#include "reference.h"
#include "results.h"
#include "values.h"
#include "watch.h"

namespace etdev {
namespace {

using executorch::aten::Tensor;
using rt::Error;
using rt::Span;
using rt::Tag;

}  // namespace

// Planned buffers of a method, or of all methods if they share them.
struct Loaded::Arena {
  std::vector<PlannedBuffer> planned;
  std::vector<std::unique_ptr<GuardedBuffer>> host;
  std::vector<rt::DeviceMemoryBuffer> device;
  std::vector<Span<uint8_t>> spans;
  std::vector<Device> devices;
  // Host view of each buffer's bytes, through which the host writes them like the device.
  std::vector<Span<uint8_t>> views;

  void add(const PlannedBuffer& buffer, uint64_t alignment) {
    const std::string name = "planned buffer " + std::to_string(planned.size() + 1);
    planned.push_back(buffer);
    devices.push_back(buffer.device);
    if (buffer.device.is_cpu()) {
      host.push_back(std::make_unique<GuardedBuffer>(buffer.size, alignment, name));
      std::memset(host.back()->data(), 0, buffer.size);
      spans.push_back({host.back()->data(), buffer.size});
      views.push_back(spans.back());
      return;
    }
    device.push_back(checked(
        rt::DeviceMemoryBuffer::create(buffer.size, buffer.device.type(), buffer.device.index(), alignment),
        "cannot allocate " + name + " (" + std::to_string(buffer.size) + " bytes) on " +
            device_name(buffer.device.type(), buffer.device.index())));
    auto* allocator = Devices::of(buffer.device.type());
    spans.push_back(device.back().as_span());
    views.push_back({allocator->device_view(device.back().data(), buffer.size, buffer.device.index()), buffer.size});
    if (views.back().data() == nullptr) {  // Memory of a simulated device is zero from the start.
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
  // Outputs whose memory the caller provides.
  std::vector<size_t> provided;
  Opened took;
};

Loaded::Loaded(const std::string& path, const std::vector<std::string>& data, bool shared, uint64_t alignment)
    : loader_(open_file(path)), shared_(shared), alignment_(alignment) {
  program_ = std::make_unique<rt::Program>(checked(
      rt::Program::load(loader_.get(), rt::Program::Verification::InternalConsistency), "cannot load the program"));
  if (!data.empty()) {
    data_ = std::make_unique<DataFiles>(data);
  }
}

Loaded::~Loaded() {
  close();
}

std::vector<std::string> Loaded::methods() const {
  std::vector<std::string> found;
  for (size_t i = 0; i < program_->num_methods(); ++i) {
    found.emplace_back(checked(program_->get_method_name(i), "cannot read the name of method " + std::to_string(i)));
  }
  return found;
}

std::shared_ptr<Loaded::Arena> Loaded::arena(const std::string& name) {
  if (shared_ && common_ != nullptr) {
    return common_;
  }
  std::vector<PlannedBuffer> wanted;
  for (const std::string& each : shared_ ? methods() : std::vector<std::string>{name}) {
    const auto meta = checked(program_->method_meta(each.c_str()), "cannot read the metadata of method '" + each + "'");
    for (size_t i = 0; i < meta.num_memory_planned_buffers(); ++i) {
      const std::string failure = "cannot read the metadata of planned buffer " + std::to_string(i + 1);
      const auto size = static_cast<uint64_t>(checked(meta.memory_planned_buffer_size(i), failure));
      const Device device = checked(meta.memory_planned_buffer_device(i), failure);
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
  added->planned = std::make_unique<rt::HierarchicalAllocator>(
      Span<Span<uint8_t>>(arena.spans.data(), arena.spans.size()),
      Span<const Device>(arena.devices.data(), arena.devices.size()));
  added->pool.reset(Pool::create(options.method_pool, "the method pool of '" + name + "'", options.failing));
  added->temporary.reset(Pool::create(options.temporary_pool, "the temporary pool of '" + name + "'", options.failing));
  added->memory =
      std::make_unique<rt::MemoryManager>(added->pool.get(), added->planned.get(), added->temporary.get());
  if (options.watch) {
    added->watch = std::make_unique<Watch>(added->options.unused, arena.views, true);
  }
  const NestedWatches watches(options.watch ? options.nested : std::vector<Unused>());
  note_method(name.c_str());
  const int64_t before = heap_in_use();
  reset_heap_peak();
  auto method = program_->load_method(name.c_str(), added->memory.get(), added->watch.get(), data_.get());
  added->took.heap = heap_in_use() - before;
  added->took.heap_peak = heap_peak() - before;
  if (!method.ok()) {
    fail("method '" + name + "' cannot be loaded" + cause(*added), method.error());
  }
  added->method = std::make_unique<rt::Method>(std::move(method.get()));
  for (size_t i = 0; i < added->method->inputs_size(); ++i) {
    added->took.orders.push_back(order_of(input_of(*added->method, i)));
  }
  added->provided = provided_outputs(*added->method);
  added->took.buffers = arena.planned;
  added->took.method_pool = added->pool->most_used();
  added->temporary->forget();
  open_[name] = std::move(added);
  return open_[name]->took;
}

std::string Loaded::cause(const Open& open) {
  std::string found = open.pool->failure();
  if (found.empty() && data_ != nullptr) {
    const auto inside = program_->get_named_data_map();
    found = data_->take_missing(inside.ok() ? *inside : nullptr);
    found = found.empty() ? found : "no data file has '" + found + "'";
  }
  return found.empty() ? found : ": " + found;
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
    throw HostError("method '" + name + "' is not open");
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
    const EValue& declared = input_of(method, i);
    const Device device = planned ? Device(DeviceType::CPU, 0) : device_of(declared);
    read_value(reader, inputs[i], i, declared, device, alignment_);
    inputs[i].shared = !planned && inputs[i].bytes != nullptr;
  }
  std::vector<std::unique_ptr<Provided>> outputs;
  for (const size_t i : open.provided) {
    const std::string output = "output " + std::to_string(i);
    const size_t size = checked(meta.output_tensor_meta(i), "cannot read the metadata of " + output).nbytes();
    outputs.push_back(std::make_unique<Provided>(size, device_of(method.get_output(i)), alignment_, output));
    if (open.watch != nullptr) {
      outputs.back()->poison();
    }
    check(
        method.set_output_data_ptr(outputs.back()->data(), size, i),
        "cannot set the memory of " + output + " of method '" + name + "'");
  }
  Called took;
  took.seconds.reserve(repeat);
  const int64_t before = heap_in_use();
  reset_heap_peak();
  for (uint32_t turn = 0; turn < repeat; ++turn) {
    for (Input& input : inputs) {
      if (turn > 0 && input.shared) {
        input.bytes->fill(input.given);  // The previous call may have overwritten it.
      }
    }
    if (open.watch != nullptr) {
      open.watch->begin_call();
    }
    const auto began = std::chrono::steady_clock::now();
    for (size_t i = 0; i < count; ++i) {
      check(method.set_input(inputs[i].value, i), "cannot set input " + std::to_string(i) + " of method '" + name + "'");
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
  took.damages = damages();
  for (const std::string& damage : Devices::of(DeviceType::CUDA)->damages()) {
    took.damages.push_back(damage);
  }
  writer.number(static_cast<uint32_t>(method.outputs_size()));
  for (size_t i = 0; i < method.outputs_size(); ++i) {
    write_value(writer, method.get_output(i), i);
  }
  return took;
}

}  // namespace etdev
