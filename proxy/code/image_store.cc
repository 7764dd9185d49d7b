#include "proxy/code/image_store.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "base/cuda_api.h"
#include "base/scope_guard.h"
#include "image/fatbin.h"
#include "proxy/code/image_scan.h"
#include "proxy/common/client_limits.h"
#include "proxy/memory/host_budget.h"

namespace tube::proxy {

namespace {

constexpr size_t kMostKept = 4096;
constexpr int kMostLooks = 4;  // at what others have read of a file that changes all the time
constexpr uint64_t kPiece = 256u << 10;  // compared at a time: a core's cache holds it

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

struct Part {
  uint64_t begin, end;
};

// All of the image but machine code for generations of GPUs that are not here: of the libraries'
// fatbins most bytes, and nothing reads them.
std::vector<Part> parts_in_use(const Image& image, std::span<const int> capabilities) {
  std::vector<Part> parts{{0, image.size()}};
  if (capabilities.empty()) return parts;
  image::FatbinReader reader(image.data(), image.size());
  for (image::Entry entry; reader.next(&entry);) {
    const bool usable = !entry.is(image::EntryKind::kElf) ||
                        std::any_of(capabilities.begin(), capabilities.end(),
                                    [&](int here) { return here / 10 == entry.sm / 10; });
    if (usable) continue;
    const auto begin = static_cast<uint64_t>(entry.payload - image.data());
    parts.back().end = begin;
    parts.push_back({begin + entry.payload_size, image.size()});
  }
  return parts;
}

// Whether the file still holds the image's bytes at `offset`. A file that ends early does not.
bool still_holds(int fd, uint64_t offset, const Image& image, std::span<const int> capabilities) {
  const auto piece = std::make_unique_for_overwrite<std::byte[]>(std::min(kPiece, image.size()));
  for (const Part& part : parts_in_use(image, capabilities)) {
    for (uint64_t at = part.begin; at < part.end; at += kPiece) {
      const uint64_t bytes = std::min(kPiece, part.end - at);
      if (!read_all(fd, piece.get(), bytes, offset + at)) return false;
      if (std::memcmp(piece.get(), image.data() + at, bytes) != 0) return false;
    }
  }
  return true;
}

}  // namespace

std::shared_ptr<Image> Image::make(uint64_t bytes, HostBudget* host) {
  if (!take_host(host, HostUse::kImages, bytes)) return nullptr;
  ScopeGuard give([&] { give_host(host, HostUse::kImages, bytes); });
  void* memory =
      mmap(nullptr, bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  ScopeGuard unmap([&] { munmap(memory, bytes + 1); });
  auto* image = new Image(static_cast<std::byte*>(memory), bytes, host);
  unmap.dismiss();
  give.dismiss();
  return std::shared_ptr<Image>(image);
}

Image::~Image() {
  munmap(data_, size_ + 1);
  give_host(host_, HostUse::kImages, size_);
}

const ImageFacts& Image::facts(std::span<const int> capabilities) const {
  std::call_once(scanned_, [&] { facts_ = scan_image({data_, size_}, capabilities); });
  return facts_;
}
bool Image::managed(std::span<const int> capabilities) const {
  return (facts(capabilities).all & kImageManaged) != 0;
}

std::shared_ptr<const Image> ImageStore::share(std::shared_ptr<Image> image) {
  const Hash128 hash = hash128(image->data(), image->size());
  image->content_ = hash;
  for (std::shared_ptr<const Image> other;;) {
    std::shared_ptr<const Image> same;
    {
      std::lock_guard lock(mutex_);
      auto& known = by_content_[hash];
      same = known.lock();
      if (same == nullptr || same == other) {
        known = image;
        forget_gone();
        return image;
      }
    }
    // The hash is not made for hostile input: compare the bytes. Without the lock: it takes long.
    if (same->size() == image->size() &&
        std::memcmp(same->data(), image->data(), image->size()) == 0)
      return same;
    other = std::move(same);
  }
}

void ImageStore::keep(std::shared_ptr<const Image> image) {
  std::deque<std::shared_ptr<const Image>> gone;  // ends behind the lock
  std::lock_guard lock(mutex_);
  if (std::find(kept_.begin(), kept_.end(), image) != kept_.end()) return;
  kept_bytes_ += image->size();
  kept_.push_back(std::move(image));
  while (kept_bytes_ > limits::kKeptImageBytes || kept_.size() > kMostKept) {
    kept_bytes_ -= kept_.front()->size();
    gone.push_back(std::move(kept_.front()));
    kept_.pop_front();
  }
}

// Where there is no memory, once more without those that are kept for functions to come.
std::shared_ptr<Image> ImageStore::make(uint64_t bytes) {
  if (auto image = Image::make(bytes, host_)) return image;
  std::deque<std::shared_ptr<const Image>> kept;
  {
    std::lock_guard lock(mutex_);
    kept.swap(kept_);
    kept_bytes_ = 0;
  }
  if (kept.empty()) return nullptr;
  kept.clear();
  return Image::make(bytes, host_);
}

// mutex_ is held. Entries of images that are gone; each time as many have come as there were.
void ImageStore::forget_gone() {
  const auto expired = [](const auto& entry) { return entry.second.expired(); };
  if (by_file_.size() + by_content_.size() < forget_at_) return;
  std::erase_if(by_file_, expired);
  std::erase_if(by_content_, expired);
  forget_at_ = std::max(kMostKept, 2 * (by_file_.size() + by_content_.size()));
}

Result<std::shared_ptr<const Image>> ImageStore::from_bytes(
    std::span<const std::byte> untrusted_bytes) {
  if (untrusted_bytes.empty()) return image_error(CUDA_ERROR_INVALID_IMAGE, "empty image");
  std::shared_ptr<Image> image = make(untrusted_bytes.size());
  if (image == nullptr)
    return image_error(CUDA_ERROR_OUT_OF_MEMORY, "no host memory for a module image");
  std::memcpy(image->data(), untrusted_bytes.data(), untrusted_bytes.size());
  return share(std::move(image));
}

// What was read of the place; not `other`, which is not there now, unless somebody has just read
// that again. nullptr: the caller has to read it; with `*own`, others wait for him.
std::shared_ptr<const Image> ImageStore::known_at(const FileKey& key,
                                                  const std::shared_ptr<const Image>& other,
                                                  std::shared_ptr<Reading>* own) {
  std::unique_lock lock(mutex_);
  if (const auto found = by_file_.find(key); found != by_file_.end()) {
    std::shared_ptr<const Image> known = found->second.lock();
    if (known != nullptr && known != other) return known;
  }
  const auto found = readings_.find(key);
  if (found == readings_.end()) {
    *own = readings_.emplace(key, std::make_shared<Reading>()).first->second;
    return nullptr;
  }
  const std::shared_ptr<Reading> reading = found->second;
  ++waiting_;
  (void)read_.wait_for(lock, patience_, [&] { return reading->over; });
  --waiting_;
  return reading->image;
}

// The image of which the file holds the bytes, if somebody has read it; else as above.
std::shared_ptr<const Image> ImageStore::known_in(int fd, const FileKey& key,
                                                  std::span<const int> capabilities,
                                                  std::shared_ptr<Reading>* own) {
  std::shared_ptr<const Image> known;
  for (int looks = 0; looks < kMostLooks; ++looks) {
    known = known_at(key, known, own);
    if (known == nullptr) break;
    if (still_holds(fd, std::get<2>(key), *known, capabilities)) return known;
  }
  return nullptr;
}

// Whatever became of it: nobody waits for who has gone.
void ImageStore::read_over(const FileKey& key, Reading& own) {
  std::lock_guard lock(mutex_);
  own.over = true;
  readings_.erase(key);
  read_.notify_all();
}

size_t ImageStore::waiting() const {
  std::lock_guard lock(mutex_);
  return waiting_;
}

Result<std::shared_ptr<const Image>> ImageStore::from_fd(int fd, uint64_t untrusted_offset,
                                                         uint64_t untrusted_size,
                                                         std::span<const int> capabilities,
                                                         uint64_t* read_bytes) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
    return image_error(CUDA_ERROR_INVALID_VALUE, "the image's fd is not a file");
  const auto file_bytes = static_cast<uint64_t>(info.st_size);
  if (untrusted_size == 0 || untrusted_size > limits::kImageBytes ||
      untrusted_offset > file_bytes || untrusted_size > file_bytes - untrusted_offset) {
    return image_error(CUDA_ERROR_INVALID_IMAGE, "the image lies outside its file");
  }
  const FileKey key{info.st_dev, info.st_ino, untrusted_offset, untrusted_size};
  std::shared_ptr<Reading> own;
  if (auto known = known_in(fd, key, capabilities, &own); known != nullptr) return known;
  const ScopeGuard over([&] {
    if (own != nullptr) read_over(key, *own);
  });
  std::shared_ptr<Image> image = make(untrusted_size);
  if (image == nullptr)
    return image_error(CUDA_ERROR_OUT_OF_MEMORY, "no host memory for a module image");
  if (!read_all(fd, image->data(), untrusted_size, untrusted_offset)) {
    return image_error(CUDA_ERROR_INVALID_IMAGE,
                       std::string("the image cannot be read: ") + std::strerror(errno));
  }
  *read_bytes += untrusted_size;
  std::shared_ptr<const Image> shared = share(std::move(image));
  std::lock_guard lock(mutex_);
  if (own != nullptr) own->image = shared;
  by_file_[key] = shared;
  forget_gone();
  return shared;
}

}  // namespace tube::proxy
