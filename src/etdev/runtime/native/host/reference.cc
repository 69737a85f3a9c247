#include "reference.h"

#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/device_memory_buffer.h>
#include <executorch/runtime/core/exec_aten/util/tensor_util.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/executor/program.h>
#include <executorch/runtime/platform/log.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "devices.h"
#include "memory.h"
#include "watch.h"
#include "wire.h"

namespace etdev {
namespace {

using executorch::aten::Tensor;
using executorch::aten::TensorImpl;
using executorch::extension::BufferDataLoader;
using rt::Error;
using rt::EValue;
using rt::Span;

constexpr char kMethod[] = "forward";
constexpr size_t kAlignment = 64;

// Unused bytes of the programs that are loaded next, in reverse order.
std::vector<Unused> expected;

// Memory of a nested program's planned buffer on the delegate's device, with the bytes in which the host computes.
struct Arena {
  rt::DeviceMemoryBuffer device;
  std::unique_ptr<GuardedBuffer> host;
  Span<uint8_t> span;
};

// A shape that outlives the tensors made from it.
struct Shape {
  std::vector<TensorImpl::SizesType> sizes;
  std::vector<TensorImpl::DimOrderType> order;
  std::vector<TensorImpl::StridesType> strides;
};

// Bytes of an argument in host memory: a view of the device's memory, or else a copy. Transfers for this copy are not
// counted, because they are not the program's copies.
class View {
 public:
  View(const Tensor& tensor, size_t size) : size_(size), device_(tensor.unsafeGetTensorImpl()->device()) {
    at_ = tensor.mutable_data_ptr();
    bytes_ = static_cast<uint8_t*>(at_);
    if (device_.is_cpu()) {
      return;
    }
    allocator_ = Devices::of(device_.type());
    bytes_ = allocator_->device_view(at_, size, device_.index());
    if (bytes_ == nullptr) {
      copy_.resize(size);
      bytes_ = copy_.data();
    }
  }

  // Replaces the view by a copy, so that writes to other arguments do not change it.
  void keep() {
    if (copy_.empty()) {
      copy_.assign(bytes_, bytes_ + size_);
      bytes_ = copy_.data();
    }
  }
  bool overlaps(const View& other) const {
    const auto* one = static_cast<const uint8_t*>(at_);
    const auto* two = static_cast<const uint8_t*>(other.at_);
    return size_ > 0 && other.size_ > 0 && one < two + other.size_ && two < one + size_;
  }
  void fetch() {
    if (!copy_.empty()) {
      allocator_->fetch(bytes_, at_, size_, device_.index());
    }
  }
  void store(size_t size) {
    if (!copy_.empty()) {
      allocator_->provide(at_, bytes_, size, device_.index());
    }
  }
  uint8_t* bytes() const {
    return bytes_;
  }
  size_t size() const {
    return size_;
  }

 private:
  size_t size_;
  Device device_;
  Devices* allocator_ = nullptr;
  void* at_ = nullptr;
  uint8_t* bytes_ = nullptr;
  std::vector<uint8_t> copy_;
};

// A loaded delegate.
class Nested {
 public:
  Error load(const void* blob, size_t size, Device device) {
    device_ = device;
    loader_ = std::make_unique<BufferDataLoader>(blob, size);
    auto program = rt::Program::load(loader_.get());
    if (!program.ok()) {
      return program.error();
    }
    program_ = std::make_unique<rt::Program>(std::move(program.get()));
    auto meta = program_->method_meta(kMethod);
    if (!meta.ok()) {
      return meta.error();
    }
    for (size_t i = 0; i < meta->num_memory_planned_buffers(); ++i) {
      const Error error = add_arena(static_cast<size_t>(meta->memory_planned_buffer_size(i).get()), i);
      if (error != Error::Ok) {
        return error;
      }
    }
    for (const auto& arena : arenas_) {
      spans_.push_back(arena.span);
    }
    planned_ = std::make_unique<rt::HierarchicalAllocator>(Span<Span<uint8_t>>(spans_.data(), spans_.size()));
    pool_.reset(Pool::create(kNoLimit, "the method pool of a delegate", 0));
    temporary_.reset(Pool::create(kNoLimit, "the temporary pool of a delegate", 0));
    memory_ = std::make_unique<rt::MemoryManager>(pool_.get(), planned_.get(), temporary_.get());
    if (!expected.empty()) {
      unused_ = std::move(expected.back());
      expected.pop_back();
      watch_ = std::make_unique<Watch>(unused_, spans_, false);
    }
    auto method = program_->load_method(kMethod, memory_.get(), watch_.get());
    if (!method.ok()) {
      return method.error();
    }
    method_ = std::make_unique<rt::Method>(std::move(method.get()));
    return Error::Ok;
  }

  Error execute(Span<EValue*> arguments) {
    const size_t inputs = method_->inputs_size();
    const size_t outputs = method_->outputs_size();
    if (arguments.size() != inputs + outputs) {
      ET_LOG(Error, "the call has %zu arguments, but the nested program takes %zu", arguments.size(), inputs + outputs);
      return Error::InvalidArgument;
    }
    if (watch_ != nullptr) {
      watch_->begin_call();
    }
    std::vector<View> results;
    results.reserve(outputs);
    const auto meta = method_->method_meta();
    for (size_t i = 0; i < outputs; ++i) {
      const auto info = meta.output_tensor_meta(i);
      if (!info.ok() || !arguments[inputs + i]->isTensor()) {
        return Error::NotSupported;
      }
      results.emplace_back(arguments[inputs + i]->toTensor(), info->nbytes());
    }
    std::vector<View> given;
    std::vector<Shape> shapes(inputs);
    std::vector<TensorImpl> tensors;
    given.reserve(inputs);
    tensors.reserve(inputs);
    for (size_t i = 0; i < inputs; ++i) {
      const Error error = arguments[i]->isTensor()
          ? set_tensor(i, arguments[i]->toTensor(), shapes[i], results, given, tensors)
          : set_number(i, *arguments[i]);
      if (error != Error::Ok) {
        return error;
      }
    }
    for (size_t i = 0; i < outputs; ++i) {
      if (!meta.output_tensor_meta(i)->is_memory_planned()) {
        const Error error = method_->set_output_data_ptr(results[i].bytes(), results[i].size(), i);
        if (error != Error::Ok) {
          return error;
        }
      }
    }
    const Error error = method_->execute();
    if (error != Error::Ok) {
      return error;
    }
    return store(arguments, inputs, results);
  }

 private:
  Error add_arena(size_t size, size_t number) {
    Arena arena;
    uint8_t* bytes = nullptr;
    if (!device_.is_cpu()) {
      auto memory = rt::DeviceMemoryBuffer::create(size, device_.type(), device_.index(), kAlignment);
      if (!memory.ok()) {
        return memory.error();
      }
      arena.device = std::move(memory.get());
      bytes = Devices::of(device_.type())->device_view(arena.device.data(), size, device_.index());
    }
    if (bytes == nullptr) {
      arena.host = std::make_unique<GuardedBuffer>(
          size, kAlignment, "planned buffer " + std::to_string(number + 1) + " of a delegate");
      bytes = arena.host->data();
    }
    std::memset(bytes, 0, size);
    arena.span = {bytes, size};
    arenas_.push_back(std::move(arena));
    return Error::Ok;
  }

  Error set_tensor(
      size_t i,
      const Tensor& tensor,
      Shape& shape,
      const std::vector<View>& results,
      std::vector<View>& given,
      std::vector<TensorImpl>& tensors) {
    given.emplace_back(tensor, tensor.nbytes());
    View& view = given.back();
    view.fetch();
    // Outputs may overlap inputs in memory, so the backend reads all inputs before it writes an output.
    if (std::any_of(results.begin(), results.end(), [&](const View& result) { return result.overlaps(view); })) {
      view.keep();
    }
    shape.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
    shape.order.assign(tensor.dim_order().begin(), tensor.dim_order().end());
    shape.strides.assign(tensor.strides().begin(), tensor.strides().end());
    tensors.emplace_back(
        tensor.scalar_type(),
        tensor.dim(),
        shape.sizes.data(),
        given.back().bytes(),
        shape.order.data(),
        shape.strides.data());
    return method_->set_input(EValue(Tensor(&tensors.back())), i);
  }

  // ExecuTorch refuses a number that differs from the one in the file. So it gets that one, which is then replaced.
  Error set_number(size_t i, const EValue& value) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    EValue& held = method_->mutable_input(i);
    const Error error = method_->set_input(held, i);
    held = value;
#pragma GCC diagnostic pop
    return error;
  }

  Error store(Span<EValue*> arguments, size_t inputs, std::vector<View>& results) {
    for (size_t i = 0; i < results.size(); ++i) {
      const Tensor& found = method_->get_output(i).toTensor();
      Tensor target = arguments[inputs + i]->toTensor();
      if (found.nbytes() > results[i].size()) {
        ET_LOG(Error, "output %zu has %zu bytes, but at most %zu fit", i, found.nbytes(), results[i].size());
        return Error::InvalidState;
      }
      if (found.nbytes() > 0 && found.const_data_ptr() != results[i].bytes()) {
        std::memcpy(results[i].bytes(), found.const_data_ptr(), found.nbytes());
      }
      results[i].store(found.nbytes());
      const Error error = rt::resize_tensor(target, found.sizes());
      if (error != Error::Ok) {
        return error;
      }
    }
    return Error::Ok;
  }

  Device device_{DeviceType::CPU, 0};
  std::unique_ptr<BufferDataLoader> loader_;
  std::unique_ptr<rt::Program> program_;
  std::vector<Arena> arenas_;
  std::vector<Span<uint8_t>> spans_;
  std::unique_ptr<rt::HierarchicalAllocator> planned_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<Pool> temporary_;
  std::unique_ptr<rt::MemoryManager> memory_;
  Unused unused_;
  std::unique_ptr<Watch> watch_;
  std::unique_ptr<rt::Method> method_;
};

Device device_of(rt::ArrayRef<rt::CompileSpec> specs) {
  for (const auto& spec : specs) {
    if (std::strcmp(spec.key, "target_device") == 0) {
      const std::string name(static_cast<const char*>(spec.value.buffer), spec.value.nbytes);
      const auto colon = name.find(':');
      if (name.compare(0, colon, "cuda") == 0) {
        const int index = colon == std::string::npos ? 0 : std::atoi(name.c_str() + colon + 1);
        return {DeviceType::CUDA, static_cast<DeviceIndex>(index)};
      }
    }
  }
  return {DeviceType::CPU, 0};
}

class ReferenceBackend final : public rt::BackendInterface {
 public:
  bool is_available() const override {
    return true;
  }

  rt::Result<rt::DelegateHandle*> init(
      rt::BackendInitContext&,
      rt::FreeableBuffer* processed,
      rt::ArrayRef<rt::CompileSpec> specs) const override {
    auto nested = std::make_unique<Nested>();
    try {
      const Error error = nested->load(processed->data(), processed->size(), device_of(specs));
      if (error != Error::Ok) {
        return error;
      }
    } catch (const HostError& error) {
      ET_LOG(Error, "%s", error.what());
      return Error::MemoryAllocationFailed;
    }
    return static_cast<rt::DelegateHandle*>(nested.release());
  }

  Error execute(rt::BackendExecutionContext&, rt::DelegateHandle* handle, Span<EValue*> arguments) const override {
    try {
      return static_cast<Nested*>(handle)->execute(arguments);
    } catch (const HostError& error) {
      ET_LOG(Error, "%s", error.what());
      return Error::Internal;
    }
  }

  void destroy(rt::DelegateHandle* handle) const override {
    delete static_cast<Nested*>(handle);
  }
};

}  // namespace

NestedWatches::NestedWatches(std::vector<Unused> unused) {
  expected.assign(std::make_move_iterator(unused.rbegin()), std::make_move_iterator(unused.rend()));
}

NestedWatches::~NestedWatches() {
  expected.clear();
}

void register_reference_backend() {
  static ReferenceBackend backend;
  const auto error = rt::register_backend({"EtdevReferenceBackend", &backend});
  if (error != Error::Ok) {
    throw HostError("EtdevReferenceBackend cannot be registered");
  }
}

}  // namespace etdev
