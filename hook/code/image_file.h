// Large bytes on their way to the proxy without passing through the ring: as a file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"

namespace tube::hook {

struct FileRange {
  UniqueFd fd;
  uint64_t offset = 0;
};

// The bytes as part of a file: the file itself when the memory is an unwritable mapping of one
// whose pages are all the file's (the usual case for a shared library's fatbins: nothing is
// copied), else a sealed memory file with a copy.
Result<FileRange> as_file(const std::byte* data, uint64_t size_bytes);

}  // namespace tube::hook
