// From an image to code: finding PTX and compiling it.
#pragma once

#include <memory>
#include <string>
#include "sim/machine/state.h"

namespace tube::sim {

// JIT options the simulator acts on: the two log buffers and the verbose flag. Sizes are written
// back through `values`.
struct JitOptions {
  char* info = nullptr;
  char* error = nullptr;
  size_t info_size = 0, error_size = 0;
  void** info_size_out = nullptr;
  void** error_size_out = nullptr;
};
CUresult parse_jit_options(unsigned count, CUjit_option* options, void** values, JitOptions* out);
// Writes one line to the error log and sets the written sizes.
void report_jit(const JitOptions& options, const std::string& error);

// Parses, checks and compiles an image: PTX, fatbin (with or without wrapper), or what
// cuLinkComplete made. `size` is 0 when unknown. Slow; call without the lock.
CUresult compile_image(const void* image, size_t size, int sm, Code* code, std::string* error);

// Number of bytes of an image that comes as a pointer alone.
size_t image_size(const void* image);

bool read_whole_file(const char* path, std::string* bytes);

}  // namespace tube::sim
