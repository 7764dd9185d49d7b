#include "proxy/common/layout.h"

#include <sys/personality.h>
#include <unistd.h>

#include <climits>
#include <vector>

#include "base/sanitizer.h"

namespace tube::proxy {
namespace {

constexpr unsigned long kAsk = 0xffff'ffff;

bool has_layout() {
  const int now = personality(kAsk);
  return now != -1 && (now & ADDR_COMPAT_LAYOUT) != 0;
}

}  // namespace

void move_out_of_the_way(int argc, char** argv) {
  if (kThreadSanitizer || has_layout()) return;  // ThreadSanitizer knows no such addresses
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  const int before = personality(kAsk);
  if (length <= 0 || before == -1 ||
      personality(static_cast<unsigned long>(before) | ADDR_COMPAT_LAYOUT) == -1 || !has_layout())
    return;
  path[length] = '\0';
  std::vector<char*> arguments(argv, argv + argc);
  char moved[] = "--moved";
  arguments.insert(arguments.end(), {moved, nullptr});
  execv(path, arguments.data());
  personality(static_cast<unsigned long>(before));
}

}  // namespace tube::proxy
