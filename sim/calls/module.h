// From an image to functions with addresses: finding PTX, compiling, and placing variables in a
// context.
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

// Gives the code's variables memory in the context and makes its functions. With the lock held.
CUresult instantiate(State& s, Context* context, Code code, Module** module);
void destroy_module(State& s, Module* module);

// Of a kernel of a library in a context (nullptr: none): the driver loads it, and waits until the
// context is idle. With the lock held, but not all along.
void first_use(Lock& lock, Context* context, Function* kernel);
// The module of a library in a context, made on first use; waits then until the context is idle, as
// the driver does. With the lock held.
CUresult library_module(Lock& lock, Context* context, Library* library, Module** module);

bool read_whole_file(const char* path, std::string* bytes);

}  // namespace tube::sim
