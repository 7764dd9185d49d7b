#include "proxy/code/kernel_record.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <utility>

#include "base/cache_dir.h"
#include "base/log.h"
#include "policies/early_kernels.h"

namespace tube::proxy {
namespace {

// Lines: this one, then of each image "image HIGH LOW LOADS" (hexadecimal), and behind it of each
// kernel "LOAD NAME".
constexpr std::string_view kHead = "tube kernels 1\n";

// The next line, without its end; false: there is none.
bool take_line(std::string_view* text, std::string_view* line) {
  const size_t end = text->find('\n');
  if (end == std::string_view::npos) return false;
  *line = text->substr(0, end);
  text->remove_prefix(end + 1);
  return true;
}

// The next number of the line and the space behind it.
bool take_number(std::string_view* line, uint64_t* number) {
  const auto [end, error] = std::from_chars(line->data(), line->data() + line->size(), *number, 16);
  if (error != std::errc()) return false;
  line->remove_prefix(static_cast<size_t>(end - line->data()));
  if (!line->empty() && line->front() == ' ') line->remove_prefix(1);
  return true;
}

// What a line of the file can hold.
bool writable(std::string_view kernel) {
  return !kernel.empty() && kernel.size() <= KernelRecord::kMostNameBytes &&
         kernel.find('\n') == std::string_view::npos;
}

}  // namespace

bool KernelRecord::enter(OfImage& image, std::string_view kernel, uint64_t load) {
  const auto known = image.wanted.find(kernel);
  if (known != image.wanted.end()) {
    const bool later = known->second < load;
    if (later) known->second = load;
    return later;
  }
  if (!writable(kernel) || image.wanted.size() >= kMostKernels || !has_room(kernel.size()))
    return false;
  image.wanted.emplace(kernel, load);
  bytes_ += kernel.size();
  return true;
}

std::vector<std::string> KernelRecord::begin_load(const Hash128& hash) {
  std::lock_guard lock(mutex_);
  const auto known = images_.find(hash);
  if (known == images_.end()) return {};
  OfImage& image = known->second;
  ++image.loads;
  changed_ = true;
  std::erase_if(image.wanted, [&](const auto& entry) {
    const bool old = !policies::loads_early(entry.second, image.loads);
    if (old) bytes_ -= entry.first.size();
    return old;
  });
  std::vector<std::pair<uint64_t, std::string>> kernels;
  for (const auto& [name, load] : image.wanted) kernels.emplace_back(load, name);
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> names;
  names.reserve(kernels.size());
  for (auto& [load, name] : kernels) names.push_back(std::move(name));
  return names;
}

void KernelRecord::wanted(const Hash128& hash, const std::string& kernel) {
  std::lock_guard lock(mutex_);
  auto known = images_.find(hash);
  if (known == images_.end()) {
    // One whose kernels are all forgotten makes room.
    if (images_.size() >= kMostImages)
      std::erase_if(images_, [](const auto& entry) { return entry.second.wanted.empty(); });
    if (images_.size() >= kMostImages) return;
    known = images_.emplace(hash, OfImage{.loads = 1, .wanted = {}}).first;
  }
  changed_ |= enter(known->second, kernel, known->second.loads);
}

std::string KernelRecord::text() const {
  std::lock_guard lock(mutex_);
  std::string text(kHead);
  char numbers[80];
  for (const auto& [hash, image] : images_) {
    if (image.wanted.empty()) continue;
    std::snprintf(numbers, sizeof(numbers), "image %" PRIx64 " %" PRIx64 " %" PRIx64 "\n",
                  hash.high, hash.low, image.loads);
    text += numbers;
    for (const auto& [name, load] : image.wanted) {
      std::snprintf(numbers, sizeof(numbers), "%" PRIx64 " ", load);
      text += numbers;
      text += name;
      text += '\n';
    }
  }
  return text;
}

bool KernelRecord::take(std::string_view text) {
  if (text.size() > kMostBytes || !text.starts_with(kHead)) return false;
  text.remove_prefix(kHead.size());
  std::lock_guard lock(mutex_);
  OfImage* image = nullptr;
  for (std::string_view line; take_line(&text, &line);) {
    uint64_t load = 0;
    if (line.starts_with("image ")) {
      line.remove_prefix(6);
      Hash128 hash;
      image = nullptr;
      if (!take_number(&line, &hash.high) || !take_number(&line, &hash.low) ||
          !take_number(&line, &load) || images_.size() >= kMostImages)
        continue;
      image = &images_[hash];
      image->loads = std::max(image->loads, load);
    } else if (image != nullptr && take_number(&line, &load)) {
      (void)enter(*image, line, std::min(load, image->loads));
    }
  }
  return true;
}

void KernelRecord::read() {
  if (path_.empty()) return;
  const Result<std::string> text = read_kept_file(path_, kMostBytes);
  if (text.ok() ? take(*text) : text.error().code == ENOENT) return;
  log_info("nothing is known of kernels that were used earlier: %s",
           text.ok() ? (path_ + " is no record").c_str() : text.error().message.c_str());
}

void KernelRecord::write() {
  {
    std::lock_guard lock(mutex_);
    if (path_.empty() || !std::exchange(changed_, false)) return;
  }
  const Status written = write_kept_file(path_, text());
  static Once said;
  if (!written.ok() && said.first())
    log_info("which kernels were used is not kept: %s", written.error().message.c_str());
}

}  // namespace tube::proxy
