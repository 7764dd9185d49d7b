#include "hook/memory/write_freeze.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tube::hook {
namespace {
constexpr int kUserModeOnly = 1;  // UFFD_USER_MODE_ONLY of newer kernel headers
}

WriteFreeze::WriteFreeze() {
  long fd = syscall(SYS_userfaultfd, O_CLOEXEC);
  if (fd < 0) fd = syscall(SYS_userfaultfd, O_CLOEXEC | kUserModeOnly);
  fd_.reset(static_cast<int>(fd));
  uffdio_api api{};
  api.api = UFFD_API;
  if (fd_.valid() && ioctl(fd_.get(), UFFDIO_API, &api) != 0) fd_.reset();
}

bool WriteFreeze::freeze(uint64_t begin, uint64_t end) {
  if (!fd_.valid()) return false;
  uffdio_register pages{};
  pages.range = {begin, end - begin};
  pages.mode = UFFDIO_REGISTER_MODE_WP;
  if (ioctl(fd_.get(), UFFDIO_REGISTER, &pages) != 0) return false;
  begin_ = begin;
  end_ = end;
  uffdio_writeprotect protect{};
  protect.range = pages.range;
  protect.mode = UFFDIO_WRITEPROTECT_MODE_WP;
  if (ioctl(fd_.get(), UFFDIO_WRITEPROTECT, &protect) == 0) return true;
  release();
  return false;
}

void WriteFreeze::release() {
  if (begin_ == end_) return;
  uffdio_range range{begin_, end_ - begin_};
  begin_ = end_ = 0;
  uffdio_writeprotect protect{};
  protect.range = range;
  (void)ioctl(fd_.get(), UFFDIO_WRITEPROTECT,
              &protect);  // fails when the pages are replaced, as they should be
  (void)ioctl(fd_.get(), UFFDIO_UNREGISTER, &range);
  (void)ioctl(fd_.get(), UFFDIO_WAKE, &range);
}

}  // namespace tube::hook
