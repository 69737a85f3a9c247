#include "values.h"

#include <algorithm>

namespace etdev {
namespace {

using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using rt::Tag;

// Kinds of values in messages.
enum class Value : uint8_t { kNone = 0, kTensor = 1, kInt = 2, kDouble = 3, kBool = 4, kString = 5 };

void read_tensor(Reader& reader, Input& input, size_t index, Device device, uint64_t alignment) {
  const auto type = static_cast<ScalarType>(reader.number<int8_t>());
  const auto dimensions = reader.number<uint32_t>();
  for (uint32_t i = 0; i < dimensions; ++i) {
    input.sizes.push_back(reader.number<int32_t>());
    input.order.push_back(static_cast<TensorImpl::DimOrderType>(i));
  }
  input.strides.assign(dimensions, 1);
  for (size_t i = dimensions; i > 1; --i) {
    input.strides[i - 2] = input.strides[i - 1] * std::max(input.sizes[i - 1], 1);
  }
  const auto size = reader.number<uint64_t>();
  input.bytes = std::make_unique<Provided>(size, device, alignment, "input " + std::to_string(index));
  input.bytes->fill(reader.take(size));
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
    throw HostError("input " + std::to_string(index) + " has another number of bytes than its shape");
  }
  input.value = EValue(Tensor(input.tensor.get()));
}

}  // namespace

Device device_of(const EValue& value) {
  return value.isTensor() ? value.toTensor().unsafeGetTensorImpl()->device() : Device(DeviceType::CPU, 0);
}

const EValue& input_of(const rt::Method& method, size_t index) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return method.get_input(index);
#pragma GCC diagnostic pop
}

void read_value(Reader& reader, Input& input, size_t index, Device device, uint64_t alignment) {
  switch (static_cast<Value>(reader.number<uint8_t>())) {
    case Value::kTensor:
      read_tensor(reader, input, index, device, alignment);
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
    case Value::kNone:
      return;
    default:
      throw HostError("input " + std::to_string(index) + " has an unknown kind");
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
      throw HostError("output " + std::to_string(index) + " is a value of a kind that has no form in an answer");
  }
}

}  // namespace etdev
