#include "sharedmem/file_size_limit.h"

namespace tube::shared {
namespace {

std::mutex& one_at_a_time() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

FileSizeLimit::FileSizeLimit(uint64_t size_bytes) : alone_(one_at_a_time()) {
  if (::getrlimit(RLIMIT_FSIZE, &own_) != 0 || size_bytes <= own_.rlim_cur) return;
  const rlimit all{own_.rlim_max, own_.rlim_max};
  lifted_ = changed_ = size_bytes <= own_.rlim_max && ::setrlimit(RLIMIT_FSIZE, &all) == 0;
}

FileSizeLimit::~FileSizeLimit() {
  if (changed_) (void)::setrlimit(RLIMIT_FSIZE, &own_);
}

}  // namespace tube::shared
