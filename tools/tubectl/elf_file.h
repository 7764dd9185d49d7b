// Just enough ELF to tell what a library exports and how a program will be loaded.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace tube::ctl {

struct ElfFile {
  bool has_interpreter = false;  // false for a program: static, nothing can be preloaded into it
  std::string soname;
  std::string rpath;  // DT_RPATH: comes before LD_LIBRARY_PATH, unlike DT_RUNPATH
  std::vector<std::string> needed;
  std::vector<std::string> exported;  // defined global functions and objects of .dynsym
  bool cuda_runtime = false;          // has libcudart in it, or needs it
};

// Reads a 64-bit little-endian ELF file. Fails on anything else; sizes and offsets in the file are
// not trusted.
Result<ElfFile> read_elf(const std::string& path);

}  // namespace tube::ctl
