#include "data_files.h"

#include <executorch/extension/data_loader/mmap_data_loader.h>
#include <executorch/extension/flat_tensor/flat_tensor_data_map.h>
#include <executorch/extension/named_data_map/merged_data_map.h>

#include "results.h"

namespace etdev {
namespace {

using executorch::extension::FlatTensorDataMap;
using executorch::extension::MmapDataLoader;
using MergedMap = executorch::extension::merged_data_map::MergedDataMap;

// Bytes reserved for the remembered name, so that remembering it does not change the counts of the heap.
constexpr size_t kMostOfName = 4096;

bool has_key(const rt::NamedDataMap& map, const std::string& key) {
  for (uint32_t i = 0; i < map.get_num_keys().get(); ++i) {
    if (key == map.get_key(i).get()) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::unique_ptr<rt::DataLoader> open_file(const std::string& path) {
  return std::make_unique<MmapDataLoader>(
      checked(MmapDataLoader::from(path.c_str(), MmapDataLoader::MlockConfig::NoMlock), "cannot open " + path));
}

DataFiles::DataFiles(const std::vector<std::string>& paths) {
  std::vector<const rt::NamedDataMap*> maps;
  for (const std::string& path : paths) {
    loaders_.push_back(open_file(path));
    files_.push_back(std::make_unique<FlatTensorDataMap>(
        checked(FlatTensorDataMap::load(loaders_.back().get()), "cannot load " + path)));
    maps.push_back(files_.back().get());
  }
  if (maps.size() > 1) {
    merged_ = std::make_unique<MergedMap>(
        checked(MergedMap::load({maps.data(), maps.size()}), "cannot merge the data files"));
  }
  all_ = merged_ != nullptr ? merged_.get() : maps.at(0);
  missing_.reserve(kMostOfName);
}

std::string DataFiles::take_missing(const rt::NamedDataMap* inside) {
  const std::string found = missing_;
  missing_.clear();
  return inside != nullptr && has_key(*inside, found) ? std::string() : found;
}

rt::Result<const rt::TensorLayout> DataFiles::get_tensor_layout(std::string_view key) const {
  auto found = all_->get_tensor_layout(key);
  if (!found.ok()) {
    return noted(key, found.error());
  }
  return found.get();
}

rt::Result<rt::FreeableBuffer> DataFiles::get_data(std::string_view key) const {
  auto found = all_->get_data(key);
  static_cast<void>(noted(key, found.error()));
  return found;
}

rt::Error DataFiles::load_data_into(std::string_view key, void* buffer, size_t size) const {
  return noted(key, all_->load_data_into(key, buffer, size));
}

rt::Result<uint32_t> DataFiles::get_num_keys() const {
  return all_->get_num_keys();
}

rt::Result<const char*> DataFiles::get_key(uint32_t index) const {
  return all_->get_key(index);
}

rt::Error DataFiles::noted(std::string_view key, rt::Error error) const {
  if (error == rt::Error::NotFound) {
    missing_.clear();
    if (key.size() <= kMostOfName) {
      missing_.append(key);
    }
  }
  return error;
}

}  // namespace etdev
