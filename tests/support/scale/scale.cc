// A backend that computes x * w + b, with w and b from named data.
//
// Its blob has a line "KEY OFFSET COUNT" for w and one for b: COUNT float32 at byte OFFSET of the data of KEY. Or it is
// "at KEY", and the lines are the data of KEY.
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/platform/log.h>

#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace rt = executorch::runtime;
using rt::Error;

namespace {

struct Scale {
  std::vector<float> values[2];
};

class ScaleBackend final : public rt::BackendInterface {
 public:
  bool is_available() const override {
    return true;
  }

  rt::Result<rt::DelegateHandle*> init(
      rt::BackendInitContext& context,
      rt::FreeableBuffer* processed,
      rt::ArrayRef<rt::CompileSpec>) const override {
    const rt::NamedDataMap* data = context.get_named_data_map();
    std::string text(static_cast<const char*>(processed->data()), processed->size());
    if (text.rfind("at ", 0) == 0) {
      auto inside = data->get_data(text.substr(3));
      if (!inside.ok()) {
        return inside.error();
      }
      text.assign(static_cast<const char*>(inside->data()), inside->size());
      inside->Free();
    }
    std::istringstream lines(text);
    auto made = std::make_unique<Scale>();
    for (auto& values : made->values) {
      std::string key;
      size_t offset = 0;
      size_t count = 0;
      lines >> key >> offset >> count;
      if (data == nullptr) {
        ET_LOG(Error, "there is no named data, and the delegate needs '%s'", key.c_str());
        return Error::NotFound;
      }
      auto found = data->get_data(key.c_str());
      if (!found.ok()) {
        ET_LOG(Error, "the delegate needs '%s'", key.c_str());
        return found.error();
      }
      if (found->size() < offset + count * sizeof(float)) {
        ET_LOG(Error, "the data of '%s' has only %zu bytes", key.c_str(), found->size());
        return Error::InvalidExternalData;
      }
      values.resize(count);
      std::memcpy(values.data(), static_cast<const char*>(found->data()) + offset, count * sizeof(float));
      found->Free();
    }
    return made.release();
  }

  Error execute(rt::BackendExecutionContext&, rt::DelegateHandle* handle, rt::Span<rt::EValue*> args) const override {
    const auto& [w, b] = static_cast<Scale*>(handle)->values;
    const auto x = args[0]->toTensor();
    const auto y = args[1]->toTensor();
    for (ssize_t i = 0; i < x.numel(); ++i) {
      y.mutable_data_ptr<float>()[i] = x.const_data_ptr<float>()[i] * w[i % w.size()] + b[i % b.size()];
    }
    return Error::Ok;
  }

  void destroy(rt::DelegateHandle* handle) const override {
    delete static_cast<Scale*>(handle);
  }
};

ScaleBackend backend;
const Error registered = rt::register_backend({BACKEND_NAME, &backend});

}  // namespace
