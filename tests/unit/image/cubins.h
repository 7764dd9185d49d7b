// Cubins that nvcc made for these tests, and a look at the bytes of any image.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

namespace tube::image {

using Bytes = std::vector<char>;

// Empty when it is not there.
inline Bytes load_cubin(const std::string& set, const std::string& kind) {
  const char* folder = std::getenv("TUBE_TEST_IMAGES");
  std::ifstream in(
      std::string(folder != nullptr ? folder : ".") + "/" + set + "_" + kind + ".cubin",
      std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::span<const std::byte> view(const Bytes& bytes) {
  return std::as_bytes(std::span(bytes));
}
inline std::span<const std::byte> view(const std::string& bytes) {
  return std::as_bytes(std::span(bytes));
}

}  // namespace tube::image
