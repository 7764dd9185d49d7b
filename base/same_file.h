// Whether two descriptors are of one file.
#pragma once

#include <sys/stat.h>

namespace tube {

inline bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

inline bool same_file(int a, int b) {
  struct stat one, other;
  return ::fstat(a, &one) == 0 && ::fstat(b, &other) == 0 && same_file(one, other);
}

}  // namespace tube
