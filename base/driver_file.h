// Where the real driver's libcuda.so.1 is: one search for hook, proxy and tubectl, so that all
// three agree.
//
// TUBE_REAL_DRIVER alone when it is set; else LD_LIBRARY_PATH, the loader's cache, and folders
// where drivers are mounted or installed without being in that cache. Never the toolkit's stub,
// never one of Tube's own libraries, whatever they are called or linked to (tube_note.h). Files are
// looked at, nothing is loaded. Any thread.
#pragma once

#include <string>
#include <vector>

namespace tube {

struct DriverSearch {
  std::vector<std::string> found;      // resolved paths, in order, each once
  std::vector<std::string> looked_in;  // as tried, for messages
};
DriverSearch search_driver();
// The same with `named` for the value of TUBE_REAL_DRIVER (null: not set).
DriverSearch search_driver(const char* named);
// The same places for another library of the driver's ("libnvidia-ml.so.1").
DriverSearch search_library(const char* file, const char* named);
// Paths of such a library in the real driver's folders.
std::vector<std::string> beside_driver(const char* file);

// True for a file that carries Tube's note, and for what is no readable 64-bit ELF file at all.
bool is_no_foreign_library(const std::string& path);

}  // namespace tube
