#include "values.h"

#include <algorithm>
#include <set>

namespace etdev {
namespace {

using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using rt::Tag;

// Kinds of values in messages.
enum class Value : uint8_t { kNone = 0, kTensor = 1, kInt = 2, kDouble = 3, kBool = 4, kString = 5 };

void read_tensor(
    Reader& reader, Input& input, size_t index, const EValue& declared, Device device, uint64_t alignment) {
  const auto type = static_cast<ScalarType>(reader.number<int8_t>());
  const auto dimensions = reader.number<uint32_t>();
  for (uint32_t i = 0; i < dimensions; ++i) {
    input.sizes.push_back(reader.number<int32_t>());
    input.order.push_back(static_cast<TensorImpl::DimOrderType>(i));
  }
  // The bytes of a request are in the declared order of dimensions.
  if (declared.isTensor() && declared.toTensor().dim() == static_cast<ssize_t>(dimensions)) {
    const auto order = declared.toTensor().dim_order();
    input.order.assign(order.begin(), order.end());
  }
  input.strides.assign(dimensions, 1);
  for (size_t i = dimensions; i > 1; --i) {
    const size_t inner = input.order[i - 1];
    input.strides[input.order[i - 2]] = input.strides[inner] * std::max(input.sizes[inner], 1);
  }
  const auto size = reader.number<uint64_t>();
  input.bytes = std::make_unique<Provided>(size, device, alignment, "input " + std::to_string(index));
  input.given = reader.take(size);
  input.bytes->fill(input.given);
  input.tensor = std::make_unique<TensorImpl>(
      type,
      dimensions,
      input.sizes.data(),
      input.bytes->data(),
      input.order.data(),
      input.strides.data(),
      executorch::aten::TensorShapeDynamism::STATIC,
      device.type(),
      device.index());
  if (input.tensor->nbytes() != size) {
    throw HostError("the number of bytes of input " + std::to_string(index) + " does not match its shape");
  }
  input.value = EValue(Tensor(input.tensor.get()));
}

}  // namespace

Device device_of(const EValue& value) {
  return value.isTensor() ? value.toTensor().unsafeGetTensorImpl()->device() : Device(DeviceType::CPU, 0);
}

std::optional<std::vector<uint8_t>> order_of(const EValue& value) {
  if (!value.isTensor()) {
    return std::nullopt;
  }
  const auto order = value.toTensor().dim_order();
  return std::vector<uint8_t>(order.begin(), order.end());
}

const EValue& input_of(const rt::Method& method, size_t index) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return method.get_input(index);
#pragma GCC diagnostic pop
}

std::vector<size_t> provided_outputs(const rt::Method& method) {
  std::set<const TensorImpl*> inputs;
  for (size_t i = 0; i < method.inputs_size(); ++i) {
    if (input_of(method, i).isTensor()) {
      inputs.insert(input_of(method, i).toTensor().unsafeGetTensorImpl());
    }
  }
  std::vector<size_t> found;
  for (size_t i = 0; i < method.outputs_size(); ++i) {
    const EValue& output = method.get_output(i);
    if (!output.isTensor()) {
      continue;
    }
    const auto info = checked(
        method.method_meta().output_tensor_meta(i), "cannot read the metadata of output " + std::to_string(i));
    const Tensor tensor = output.toTensor();
    if (!info.is_memory_planned() && tensor.const_data_ptr() == nullptr &&
        inputs.count(tensor.unsafeGetTensorImpl()) == 0) {
      found.push_back(i);
    }
  }
  return found;
}

void read_value(
    Reader& reader, Input& input, size_t index, const EValue& declared, Device device, uint64_t alignment) {
  switch (static_cast<Value>(reader.number<uint8_t>())) {
    case Value::kTensor:
      read_tensor(reader, input, index, declared, device, alignment);
      return;
    case Value::kInt:
      input.value = EValue(reader.number<int64_t>());
      return;
    case Value::kDouble:
      input.value = EValue(reader.number<double>());
      return;
    case Value::kBool:
      input.value = EValue(reader.number<uint8_t>() != 0);
      return;
    case Value::kString:
      input.characters = reader.text();
      input.text = {input.characters.data(), input.characters.size()};
      input.value = EValue(&input.text);
      return;
    case Value::kNone:
      return;
    default:
      throw HostError("input " + std::to_string(index) + " has an unknown type");
  }
}

void write_value(Writer& writer, const EValue& value, size_t index) {
  switch (value.tag) {
    case Tag::None:
      writer.number(Value::kNone);
      return;
    case Tag::Int:
      writer.number(Value::kInt);
      writer.number(value.toInt());
      return;
    case Tag::Double:
      writer.number(Value::kDouble);
      writer.number(value.toDouble());
      return;
    case Tag::Bool:
      writer.number(Value::kBool);
      writer.number(static_cast<uint8_t>(value.toBool()));
      return;
    case Tag::String: {
      const auto text = value.toString();
      writer.number(Value::kString);
      writer.text(std::string(text.data(), text.size()));
      return;
    }
    case Tag::Tensor: {
      const Tensor tensor = value.toTensor();
      writer.number(Value::kTensor);
      writer.number(static_cast<int8_t>(tensor.scalar_type()));
      writer.number(static_cast<uint32_t>(tensor.dim()));
      for (ssize_t i = 0; i < tensor.dim(); ++i) {
        writer.number(static_cast<int32_t>(tensor.sizes()[i]));
        writer.number(static_cast<uint8_t>(tensor.dim_order()[i]));
      }
      writer.number(static_cast<uint64_t>(tensor.nbytes()));
      const Device device = device_of(value);
      if (device.is_cpu()) {
        writer.bytes(tensor.const_data_ptr(), tensor.nbytes());
      } else {
        std::vector<uint8_t> bytes(tensor.nbytes());
        Devices::of(device.type())->fetch(bytes.data(), tensor.const_data_ptr(), bytes.size(), device.index());
        writer.bytes(bytes.data(), bytes.size());
      }
      return;
    }
    default:
      throw HostError("output " + std::to_string(index) + " has an unsupported type");
  }
}

}  // namespace etdev
