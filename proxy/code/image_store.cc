#include "proxy/code/image_store.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/cuda_api.h"
#include "proxy/code/image_scan.h"
#include "proxy/common/client_limits.h"

namespace tube::proxy {

namespace {

constexpr size_t kMostKept = 4096;

Error image_error(CUresult code, std::string message) {
  return Error{static_cast<int>(code), std::move(message)};
}

// Whole range or nothing; a file that ends early is an error here, not a SIGBUS later.
bool read_all(int fd, std::byte* to, uint64_t bytes, uint64_t offset) {
  while (bytes > 0) {
    const ssize_t got = pread(fd, to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
  return true;
}

}  // namespace

std::shared_ptr<Image> Image::make(uint64_t bytes) {
  void* memory =
      mmap(nullptr, bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  return std::shared_ptr<Image>(new Image(static_cast<std::byte*>(memory), bytes));
}

Image::~Image() { munmap(data_, size_ + 1); }

const ImageFacts& Image::facts(std::span<const int> capabilities) const {
  std::call_once(scanned_, [&] { facts_ = scan_image({data_, size_}, capabilities); });
  return facts_;
}
bool Image::managed(std::span<const int> capabilities) const {
  return (facts(capabilities).all & kImageManaged) != 0;
}

std::shared_ptr<const Image> ImageStore::share(std::shared_ptr<const Image> image) {
  const Hash128 hash = hash128(image->data(), image->size());
  std::lock_guard lock(mutex_);
  auto& known = by_content_[hash];
  std::shared_ptr<const Image> same = known.lock();
  // The hash is not made for hostile input: compare the bytes.
  if (same != nullptr && same->size() == image->size() &&
      std::memcmp(same->data(), image->data(), image->size()) == 0)
    return same;
  known = image;
  kept_.push_back(image);
  kept_bytes_ += image->size();
  for (; kept_bytes_ > limits::kKeptImageBytes || kept_.size() > kMostKept; kept_.pop_front())
    kept_bytes_ -= kept_.front()->size();
  return image;
}

Result<std::shared_ptr<const Image>> ImageStore::from_bytes(
    std::span<const std::byte> untrusted_bytes) {
  if (untrusted_bytes.empty()) return image_error(CUDA_ERROR_INVALID_IMAGE, "empty image");
  std::shared_ptr<Image> image = Image::make(untrusted_bytes.size());
  if (image == nullptr)
    return image_error(CUDA_ERROR_OUT_OF_MEMORY, "no host memory for a module image");
  std::memcpy(image->data(), untrusted_bytes.data(), untrusted_bytes.size());
  return share(std::move(image));
}

Result<std::shared_ptr<const Image>> ImageStore::from_fd(int fd, uint64_t untrusted_offset,
                                                         uint64_t untrusted_size,
                                                         uint64_t* read_bytes) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
    return image_error(CUDA_ERROR_INVALID_VALUE, "the image's fd is not a file");
  const auto file_bytes = static_cast<uint64_t>(info.st_size);
  if (untrusted_size == 0 || untrusted_size > limits::kImageBytes ||
      untrusted_offset > file_bytes || untrusted_size > file_bytes - untrusted_offset) {
    return image_error(CUDA_ERROR_INVALID_IMAGE, "the image lies outside its file");
  }
  const FileKey key{info.st_dev,          info.st_ino,      info.st_ctim.tv_sec,
                    info.st_ctim.tv_nsec, untrusted_offset, untrusted_size};
  {
    std::lock_guard lock(mutex_);
    if (auto known = by_file_.find(key); known != by_file_.end()) {
      if (auto image = known->second.lock()) return image;
    }
  }
  std::shared_ptr<Image> image = Image::make(untrusted_size);
  if (image == nullptr)
    return image_error(CUDA_ERROR_OUT_OF_MEMORY, "no host memory for a module image");
  if (!read_all(fd, image->data(), untrusted_size, untrusted_offset)) {
    return image_error(CUDA_ERROR_INVALID_IMAGE,
                       std::string("the image cannot be read: ") + std::strerror(errno));
  }
  *read_bytes += untrusted_size;
  std::shared_ptr<const Image> shared = share(std::move(image));
  std::lock_guard lock(mutex_);
  by_file_[key] = shared;
  if (by_file_.size() > 4096) {  // entries of images that are gone
    std::erase_if(by_file_, [](const auto& entry) { return entry.second.expired(); });
    std::erase_if(by_content_, [](const auto& entry) { return entry.second.expired(); });
  }
  return shared;
}

const std::string* ImageStore::intern(std::string_view name) {
  std::lock_guard lock(mutex_);
  auto it = names_.find(name);
  if (it == names_.end())
    it = names_.emplace(std::string(name), std::make_unique<std::string>(name)).first;
  return it->second.get();
}

}  // namespace tube::proxy
