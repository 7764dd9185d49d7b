// Which kernels functions looked up in which image, by the image's content: kept between the runs
// of a workflow's proxies (base/cache_dir.h), so that the next load of an image brings them along
// (policies/early_kernels.h).
//
// The file says nothing that has to be right: a kernel that an image does not have is not found,
// and one that is missing is loaded when it is asked for.
//
// Any thread; `mutex_` is a leaf and not held while a file is read or written.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/hash.h"

namespace tube::proxy {

class KernelRecord {
 public:
  static constexpr size_t kMostImages = 4096, kMostKernels = 2048;  // of one
  static constexpr size_t kMostBytes = 8u << 20;                    // of a file, and of all names
  static constexpr size_t kMostNameBytes = 4096;

  // `path`: the file; empty: none.
  explicit KernelRecord(std::string path) : path_(std::move(path)) {}

  // The image is loaded once more: what to load with it, most recently wanted first.
  std::vector<std::string> begin_load(const Hash128& image);
  // Somebody looked it up.
  void wanted(const Hash128& image, const std::string& kernel);

  // What an earlier proxy wrote; before any load.
  void read();
  // If anything is new since. Blocks for the disk.
  void write();

  // The file's form, for tests: false, and nothing taken, when it is none of ours.
  std::string text() const;
  bool take(std::string_view text);

 private:
  struct OfImage {
    uint64_t loads = 0;
    std::map<std::string, uint64_t, std::less<>> wanted;  // at which load, last
  };
  bool has_room(size_t name_bytes) const { return bytes_ + name_bytes <= kMostBytes / 2; }
  bool enter(OfImage& image, std::string_view kernel, uint64_t load);

  const std::string path_;
  mutable std::mutex mutex_;
  std::unordered_map<Hash128, OfImage, Hash128Hasher> images_;
  size_t bytes_ = 0;  // of all names
  bool changed_ = false;
};

}  // namespace tube::proxy
