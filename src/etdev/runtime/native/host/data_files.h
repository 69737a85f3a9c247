// Data files of a program.
#pragma once

#include <executorch/runtime/core/data_loader.h>
#include <executorch/runtime/core/named_data_map.h>

#include <memory>
#include <string>
#include <vector>

namespace etdev {

namespace rt = executorch::runtime;

std::unique_ptr<rt::DataLoader> open_file(const std::string& path);

// The data of one or more files, by name. It remembers the last name that it did not find.
class DataFiles final : public rt::NamedDataMap {
 public:
  explicit DataFiles(const std::vector<std::string>& paths);

  // Returns and forgets the last name that was not found, neither in a file nor in `inside`. Empty if there is none, or
  // if it is longer than 4096 bytes.
  std::string take_missing(const rt::NamedDataMap* inside);

  rt::Result<const rt::TensorLayout> get_tensor_layout(std::string_view key) const override;
  rt::Result<rt::FreeableBuffer> get_data(std::string_view key) const override;
  rt::Error load_data_into(std::string_view key, void* buffer, size_t size) const override;
  rt::Result<uint32_t> get_num_keys() const override;
  rt::Result<const char*> get_key(uint32_t index) const override;

 private:
  rt::Error noted(std::string_view key, rt::Error error) const;

  std::vector<std::unique_ptr<rt::DataLoader>> loaders_;
  std::vector<std::unique_ptr<rt::NamedDataMap>> files_;
  std::unique_ptr<rt::NamedDataMap> merged_;
  // The only file, or all files merged.
  const rt::NamedDataMap* all_ = nullptr;
  mutable std::string missing_;
};

}  // namespace etdev
