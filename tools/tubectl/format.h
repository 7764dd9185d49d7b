// Text for people: aligned tables, sizes and ages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tube::ctl {

// Rows of cells under a heading, columns as wide as their widest cell; columns named in `right` are
// right-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> heading, std::string right = "");
  void add(std::vector<std::string> row);
  std::string str() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::string right_;  // one character a column: 'r' or 'l'; missing ones are 'l'
};

inline constexpr size_t kColumns = 80;  // what output for people fits

// `text` at most `most` characters long: the end of a longer one is cut off, and .. says so.
std::string shortened(const std::string& text, size_t most);
// Each line of `text` broken at spaces before `columns`; what goes on is indented by `indent`. A
// word that is longer stays whole. Ends with a newline.
std::string wrapped(const std::string& text, size_t columns, size_t indent);

std::string human_bytes(uint64_t bytes);  // 512 B, 1.5 KiB, 24.0 GiB
std::string human_age(uint64_t seconds);  // 12s, 3m20s, 5h02m, 3d04h

}  // namespace tube::ctl
