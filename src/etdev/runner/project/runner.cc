#include "runner.h"

#include <executorch/extension/data_loader/buffer_data_loader.h>
//@if data
#include <executorch/extension/flat_tensor/flat_tensor_data_map.h>
//@end
#include <executorch/runtime/core/exec_aten/util/dim_order_util.h>
#include <executorch/runtime/core/exec_aten/util/tensor_dimension_limit.h>
#include <executorch/runtime/core/hierarchical_allocator.h>
#include <executorch/runtime/executor/memory_manager.h>
#include <executorch/runtime/executor/program.h>
#include <executorch/runtime/platform/runtime.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>
//@if embed

// The files, in files of their own: uint64_t, because compilers read long arrays of them fastest.
extern "C" {
@EXTERNS@
}
//@end

namespace @ID@ {
namespace {

namespace rt = executorch::runtime;
using executorch::aten::Tensor;
using executorch::aten::TensorImpl;
using rt::EValue;
using rt::HierarchicalAllocator;
using rt::MemoryAllocator;
using rt::MemoryManager;
using rt::MethodMeta;
using rt::Program;
using rt::Result;

char problem[320] = "";

Error Fail(Error error, const char* text) {
  std::snprintf(problem, sizeof(problem), "%s (%s)", text, rt::to_string(error));
  return error;
}

// Static memory of a number of bytes, which may be 0. The alignment is that of the variable, so that no bytes are added.
template <size_t kBytes>
struct Block {
  uint8_t bytes[kBytes];
  uint8_t* at(size_t offset) { return bytes + offset; }
  Span<uint8_t> span(size_t size = kBytes) { return {bytes, size}; }
};
template <>
struct Block<0> {
  uint8_t* at(size_t) { return nullptr; }
  Span<uint8_t> span(size_t = 0) { return {}; }
};

// Static memory of an object that is constructed later. It is not destroyed at the end of the program.
template <typename T>
class Slot {
 public:
  template <typename... Args>
  T& emplace(Args&&... args) {
    reset();
    value_ = new (bytes_) T(std::forward<Args>(args)...);
    return *value_;
  }
  void reset() {
    if (value_ != nullptr) {
      value_->~T();
      value_ = nullptr;
    }
  }
  bool full() const { return value_ != nullptr; }
  T& get() { return *value_; }

 private:
  alignas(T) unsigned char bytes_[sizeof(T)];
  T* value_ = nullptr;
};

[[maybe_unused]] void Clear(Span<uint8_t> memory) {
  if (memory.size() > 0) {
    std::memset(memory.data(), 0, memory.size());
  }
}

// A pool of fixed size that remembers its peak, and the first request that it could not meet.
class Pool final : public MemoryAllocator {
 public:
  Pool(Span<uint8_t> memory, const char* constant)
      : MemoryAllocator(static_cast<uint32_t>(memory.size()), memory.data()), constant_(constant) {}

  void* allocate(size_t size, size_t alignment = kDefaultAlignment) override {
    if (this->size() == 0) {
      requested_ = requested_ == 0 ? size + (size == 0) : requested_;
      return nullptr;
    }
    void* found = MemoryAllocator::allocate(size, alignment);
    if (found == nullptr && requested_ == 0) {
      requested_ = size + (size == 0);
      left_ = free_size();
    }
    peak_ = used_size() > peak_ ? used_size() : peak_;
    return found;
  }

  bool was_too_small() const { return requested_ != 0; }
  PoolUse use() const { return {constant_, size(), peak_}; }

  Error Fail() const {
    std::snprintf(
        problem, sizeof(problem),
        "%s is too small: of its %zu bytes %zu were left when %zu were requested. Raise it in @NAME@_memory.h",
        constant_, static_cast<size_t>(size()), left_, requested_);
    return Error::MemoryAllocationFailed;
  }

 private:
  const char* constant_;
  size_t peak_ = 0;
  size_t requested_ = 0;
  size_t left_ = 0;
};
//@if data

// The data files as one map. A name is looked up in one file after the other.
class DataFiles final : public rt::NamedDataMap {
 public:
  Error Load() {
    for (size_t i = 0; i < kDataFileCount; ++i) {
      loaders_[i].emplace(kFiles[i + 1].bytes, kFiles[i + 1].size);
      Result<Map> map = Map::load(&loaders_[i].get());
      if (!map.ok()) {
        std::snprintf(problem, sizeof(problem), "cannot load %s (%s)", kFiles[i + 1].name, rt::to_string(map.error()));
        return map.error();
      }
      maps_[i].emplace(std::move(map.get()));
    }
    return Error::Ok;
  }
  void Unload() {
    for (size_t i = 0; i < kDataFileCount; ++i) {
      maps_[i].reset();
      loaders_[i].reset();
    }
  }

  Result<const rt::TensorLayout> get_tensor_layout(std::string_view key) const override {
    for (auto& map : maps_) {
      auto found = map.get().get_tensor_layout(key);
      if (found.ok()) {
        return found.get();
      }
      if (found.error() != Error::NotFound) {
        return found.error();
      }
    }
    return Error::NotFound;
  }
  Result<rt::FreeableBuffer> get_data(std::string_view key) const override {
    for (auto& map : maps_) {
      auto found = map.get().get_data(key);
      if (found.ok() || found.error() != Error::NotFound) {
        return found;
      }
    }
    return Error::NotFound;
  }
  Error load_data_into(std::string_view key, void* buffer, size_t size) const override {
    for (auto& map : maps_) {
      Error error = map.get().load_data_into(key, buffer, size);
      if (error != Error::NotFound) {
        return error;
      }
    }
    return Error::NotFound;
  }
  Result<uint32_t> get_num_keys() const override {
    uint32_t count = 0;
    for (auto& map : maps_) {
      count += map.get().get_num_keys().get();
    }
    return count;
  }
  Result<const char*> get_key(uint32_t index) const override {
    for (auto& map : maps_) {
      uint32_t count = map.get().get_num_keys().get();
      if (index < count) {
        return map.get().get_key(index);
      }
      index -= count;
    }
    return Error::InvalidArgument;
  }

 private:
  using Map = executorch::extension::FlatTensorDataMap;
  Slot<executorch::extension::BufferDataLoader> loaders_[kDataFileCount];
  mutable Slot<Map> maps_[kDataFileCount];
};
//@end

// ---------------------------------------------------------------------------------------------------------------------
// Memory: all static memory of the project. For firmware, give each arena the attribute that puts it into its section:
// @MACRO@_@FIRST_ARENA@_ATTRIBUTES and so on, defined before @NAME@_memory.h or on the command line of the compiler.
// ---------------------------------------------------------------------------------------------------------------------

@MEMORY@

// ---------------------------------------------------------------------------------------------------------------------
// Facts about the files and methods.
// ---------------------------------------------------------------------------------------------------------------------

enum class Kind : uint8_t { kTensor, kInt, kDouble, kBool, kString, kNone };

struct InputFacts {
  Kind kind;
  size_t offset;  // Of the memory for its bytes, in `io`.
  size_t size;    // Of that memory: the bytes of the largest sizes.
  int64_t integer;
  double number;
  const char* text;
};

// An output whose memory the program does not plan.
struct OutputFacts {
  size_t output;
  size_t offset;  // In `io`.
  size_t size;
};

struct MethodFacts {
  const char* name;
  const InputFacts* inputs;
  size_t input_count;
  const OutputFacts* outputs;
  size_t output_count;
  Span<uint8_t>* buffers;
  const char* const* buffer_constants;
  size_t buffer_count;
  Span<uint8_t> pool;
  const char* pool_constant;
  size_t temp;  // Bytes that it needs of the pool for temporary memory.
};

@TABLES@

// ---------------------------------------------------------------------------------------------------------------------
// Objects. They are in static memory, too.
// ---------------------------------------------------------------------------------------------------------------------

struct LoadedMethod {
  Slot<Pool> pool;
  Slot<HierarchicalAllocator> planned;
  Slot<MemoryManager> memory;
  Slot<Method> method;
};

Slot<executorch::extension::BufferDataLoader> loader;
Slot<Program> program;
//@if data
DataFiles data_files;
//@end
Slot<Pool> temp_pool;
LoadedMethod methods[kMethodCount];

Error FailFor(size_t method, Error error, const char* step) {
  if (methods[method].pool.get().was_too_small()) {
    return methods[method].pool.get().Fail();
  }
  if (temp_pool.get().was_too_small()) {
    return temp_pool.get().Fail();
  }
  std::snprintf(problem, sizeof(problem), "cannot %s method %s (%s)", step, kMethods[method].name, rt::to_string(error));
  return error;
}

// Checks the sizes of memory that the runtime does not check by itself.
Error CheckMemory(const MethodFacts& facts, const MethodMeta& meta) {
  if (temp_pool.get().size() < facts.temp) {
    std::snprintf(
        problem, sizeof(problem), "@ID@::kTempPoolBytes is too small: it is %zu, and method %s needs %zu. Raise it in @NAME@_memory.h",
        static_cast<size_t>(temp_pool.get().size()), facts.name, facts.temp);
    return Error::MemoryAllocationFailed;
  }
  if (meta.num_memory_planned_buffers() != facts.buffer_count) {
    return Fail(Error::InvalidProgram, "@NAME@_memory.h is not that of this program: generate the project again");
  }
  for (size_t i = 0; i < facts.buffer_count; ++i) {
    const auto size = static_cast<size_t>(meta.memory_planned_buffer_size(i).get());
    if (facts.buffers[i].size() < size) {
      std::snprintf(
          problem, sizeof(problem), "%s is too small: it has %zu bytes, and the program needs %zu. Raise it in @NAME@_memory.h",
          facts.buffer_constants[i], facts.buffers[i].size(), size);
      return Error::MemoryAllocationFailed;
    }
  }
  return Error::Ok;
}

Error LoadMethod(size_t index) {
  const MethodFacts& facts = kMethods[index];
  LoadedMethod& loaded = methods[index];
  Result<MethodMeta> meta = program.get().method_meta(facts.name);
  if (!meta.ok()) {
    return Fail(meta.error(), "@NAME@_memory.h is not that of this program: generate the project again");
  }
  Error error = CheckMemory(facts, meta.get());
  if (error != Error::Ok) {
    return error;
  }
  loaded.planned.emplace(Span<Span<uint8_t>>(facts.buffers, facts.buffer_count));
  loaded.memory.emplace(&loaded.pool.get(), &loaded.planned.get(), &temp_pool.get());
  Result<Method> method = program.get().load_method(
//@if data
      facts.name, &loaded.memory.get(), nullptr, &data_files);
//@else
      facts.name, &loaded.memory.get());
//@end
  if (!method.ok()) {
    return FailFor(index, method.error(), "load");
  }
  loaded.method.emplace(std::move(method.get()));
  for (size_t i = 0; i < facts.output_count; ++i) {
    const OutputFacts& output = facts.outputs[i];
    error = loaded.method.get().set_output_data_ptr(io.at(output.offset), output.size, output.output);
    if (error != Error::Ok) {
      return FailFor(index, error, "set an output of");
    }
  }
  return Error::Ok;
}

}  // namespace

const File kFiles[kFileCount] = {
@FILES@
};

const char* Problem() { return problem; }

Error Load() {
  rt::runtime_init();
  Unload();
@CLEAR@
  loader.emplace(kFiles[0].bytes, kFiles[0].size);
  Result<Program> loaded = Program::load(&loader.get(), Program::Verification::InternalConsistency);
  if (!loaded.ok()) {
    return Fail(loaded.error(), "cannot load @PROGRAM@");
  }
  program.emplace(std::move(loaded.get()));
//@if data
  Error data_error = data_files.Load();
  if (data_error != Error::Ok) {
    return data_error;
  }
//@end
  temp_pool.emplace(temp_memory.span(), "@ID@::kTempPoolBytes");
  for (size_t i = 0; i < kMethodCount; ++i) {
    methods[i].pool.emplace(kMethods[i].pool, kMethods[i].pool_constant);
  }
  for (size_t i = 0; i < kMethodCount; ++i) {
    Error error = LoadMethod(i);
    if (error != Error::Ok) {
      return error;
    }
  }
  return Error::Ok;
}

void Unload() {
  for (LoadedMethod& loaded : methods) {
    loaded.method.reset();
    loaded.memory.reset();
    loaded.planned.reset();
    loaded.pool.reset();
  }
  temp_pool.reset();
  program.reset();
//@if data
  data_files.Unload();
//@end
  loader.reset();
}

size_t FindMethod(const char* name) {
  size_t index = 0;
  while (index < kMethodCount && std::strcmp(kMethods[index].name, name) != 0) {
    ++index;
  }
  return index;
}

Method& GetMethod(size_t method) { return methods[method].method.get(); }

Span<uint8_t> InputMemory(size_t method, size_t input) {
  const InputFacts& facts = kMethods[method].inputs[input];
  if (facts.kind != Kind::kTensor) {
    return {};
  }
  return {io.at(facts.offset), facts.size};
}

Error SetInput(size_t method, size_t input, const int32_t* sizes) {
  const InputFacts& facts = kMethods[method].inputs[input];
  Method& called = GetMethod(method);
  Error error = Error::Ok;
  executorch::aten::ArrayRef<char> text(facts.text, facts.text == nullptr ? 0 : std::strlen(facts.text));
  switch (facts.kind) {
    case Kind::kNone:
      error = called.set_input(EValue(), input);
      break;
    case Kind::kInt:
      error = called.set_input(EValue(facts.integer), input);
      break;
    case Kind::kDouble:
      error = called.set_input(EValue(facts.number), input);
      break;
    case Kind::kBool:
      error = called.set_input(EValue(facts.integer != 0), input);
      break;
    case Kind::kString:
      error = called.set_input(EValue(&text), input);
      break;
    case Kind::kTensor: {
      const auto meta = called.method_meta().input_tensor_meta(input);
      if (!meta.ok()) {
        return FailFor(method, meta.error(), "describe an input of");
      }
      TensorImpl::SizesType shape[rt::kTensorDimensionLimit];
      TensorImpl::DimOrderType order[rt::kTensorDimensionLimit];
      TensorImpl::StridesType strides[rt::kTensorDimensionLimit];
      const size_t rank = meta->sizes().size();
      for (size_t i = 0; i < rank; ++i) {
        shape[i] = sizes == nullptr ? meta->sizes()[i] : sizes[i];
        order[i] = meta->dim_order()[i];
      }
      error = rt::dim_order_to_stride(shape, order, rank, strides);
      if (error == Error::Ok) {
        TensorImpl tensor(
            meta->scalar_type(), static_cast<ssize_t>(rank), shape, io.at(facts.offset), order, strides);
        error = called.set_input(EValue(Tensor(&tensor)), input);
      }
      break;
    }
  }
  if (error != Error::Ok) {
    std::snprintf(
        problem, sizeof(problem), "method %s does not take this as input %zu (%s)", kMethods[method].name, input,
        rt::to_string(error));
  }
  return error;
}

Error Execute(size_t method) {
  const Error error = GetMethod(method).execute();
  if (error != Error::Ok || temp_pool.get().was_too_small()) {
    return FailFor(method, error, "run");
  }
  return Error::Ok;
}

PoolUse GetPoolUse(size_t method, size_t pool) {
  return pool == 0 ? methods[method].pool.get().use() : temp_pool.get().use();
}

}  // namespace @ID@
