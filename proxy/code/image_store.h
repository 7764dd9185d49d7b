// Module images as the driver reads them, one copy per proxy.
//
// A client names its image by bytes in the record, or by an fd (a file it mapped, or a memory file)
// with offset and size. The bytes are copied here: a file that shrinks under a mapping would kill
// the proxy, and the driver reads lazily, long after the load. The copy is shared by content, so
// that eight functions with one library hold its images once. An image from the same place of the
// same file is compared with the copy: 256 KiB of the file at a time, which stay in the core's
// cache, so nothing is allocated, copied as a whole or hashed (4 to 8 GB/s of a core at 2 GHz,
// where reading and hashing the whole takes 1.2), and without the machine code for generations of
// GPUs that the proxy does not have, which is most of a library's. A file's times prove nothing: a
// store through a shared mapping whose page is dirty already changes none. Of functions that come
// with the same part of a file at the same time, one reads it and the others wait for that, then
// compare their file with it as ever: a burst of them costs one copy. An image lives as long as
// somebody holds it; the last ones that the driver has taken, up to limits::kKeptImageBytes, are
// held here, for the next function. Any thread; `mutex_` (rank 30) guards the indexes and is not
// held while bytes are read or compared.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "base/hash.h"
#include "base/result.h"
#include "proxy/code/image_scan.h"

namespace tube::proxy {

class HostBudget;

class Image {
 public:
  // nullptr: no memory. `host` counts it.
  static std::shared_ptr<Image> make(uint64_t bytes, HostBudget* host = nullptr);
  ~Image();
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;
  std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }
  // Of what a client brought; zero for an image that was made of one.
  const Hash128& content() const { return content_; }
  // What its kernels may write to, and whether it has managed variables; found out when first
  // asked.
  const ImageFacts& facts(std::span<const int> capabilities) const;
  bool managed(std::span<const int> capabilities) const;

 private:
  Image(std::byte* data, uint64_t size, HostBudget* host) : data_(data), size_(size), host_(host) {}
  std::byte* data_;
  uint64_t size_;  // a NUL follows: PTX is text
  HostBudget* const host_;
  friend class ImageStore;
  Hash128 content_;
  mutable std::once_flag scanned_;
  mutable ImageFacts facts_;
};

class ImageStore {
 public:
  // Who finds a part of a file being read waits for that so long: a file system may hang.
  explicit ImageStore(std::chrono::milliseconds patience = std::chrono::seconds(30))
      : patience_(patience) {}
  // What counts the images' bytes; before any.
  void count_in(HostBudget* host) { host_ = host; }
  HostBudget* host() const { return host_; }
  // Error code: CUresult. `capabilities` are those of the GPUs, times ten, that the image is for;
  // empty: all of its bytes count. from_fd adds to `*read_bytes` what it had to copy, and may stand
  // behind who reads the same part: when that fails or takes too long, it reads for itself.
  Result<std::shared_ptr<const Image>> from_bytes(std::span<const std::byte> untrusted_bytes);
  Result<std::shared_ptr<const Image>> from_fd(int fd, uint64_t untrusted_offset,
                                               uint64_t untrusted_size,
                                               std::span<const int> capabilities,
                                               uint64_t* read_bytes);
  // The driver has taken it: it is worth keeping.
  void keep(std::shared_ptr<const Image> image);
  // How many wait for somebody's reading now.
  size_t waiting() const;

 private:
  using FileKey = std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>;  // device, inode, place
  // Somebody reads what is at a place; under mutex_.
  struct Reading {
    bool over = false;
    std::shared_ptr<const Image> image;  // then, for those who wait; nullptr: it failed
  };
  std::shared_ptr<const Image> known_at(const FileKey& key,
                                        const std::shared_ptr<const Image>& other,
                                        std::shared_ptr<Reading>* own);
  std::shared_ptr<const Image> known_in(int fd, const FileKey& key,
                                        std::span<const int> capabilities,
                                        std::shared_ptr<Reading>* own);
  void read_over(const FileKey& key, Reading& own);
  std::shared_ptr<const Image> share(std::shared_ptr<Image> image);
  void forget_gone();
  std::shared_ptr<Image> make(uint64_t bytes);

  const std::chrono::milliseconds patience_;
  HostBudget* host_ = nullptr;
  mutable std::mutex mutex_;
  std::condition_variable read_;  // a reading is over
  std::map<FileKey, std::shared_ptr<Reading>> readings_;
  size_t waiting_ = 0;
  std::map<FileKey, std::weak_ptr<const Image>> by_file_;
  std::unordered_map<Hash128, std::weak_ptr<const Image>, Hash128Hasher> by_content_;
  std::deque<std::shared_ptr<const Image>> kept_;  // the newest last
  uint64_t kept_bytes_ = 0;
  size_t forget_at_ = 4096;
};

}  // namespace tube::proxy
