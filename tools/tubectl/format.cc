#include "tools/tubectl/format.h"

#include <fmt/core.h>

#include <algorithm>

namespace tube::ctl {

Table::Table(std::vector<std::string> heading, std::string right)
    : rows_{std::move(heading)}, right_(std::move(right)) {}

void Table::add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

std::string Table::str() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      bool right = i < right_.size() && right_[i] == 'r';
      line += right ? fmt::format("{:>{}}", row[i], widths[i])
                    : fmt::format("{:<{}}", row[i], widths[i]);
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string shortened(const std::string& text, size_t most) {
  return text.size() <= most ? text : text.substr(0, most - 2) + "..";
}

namespace {

std::string wrapped_line(std::string line, size_t columns, size_t indent) {
  line.erase(line.find_last_not_of(' ') + 1);
  std::string out;
  size_t begin = 0;  // of the words: never broken in front of them
  while (line.size() > columns) {
    begin = std::max(begin, line.find_first_not_of(' '));
    size_t space = line.rfind(' ', columns);
    if (space == line.npos || space <= begin) space = line.find(' ', columns);
    if (space == line.npos) break;
    out += line.substr(0, space) + "\n";
    line = std::string(indent, ' ') + line.substr(line.find_first_not_of(' ', space));
    begin = indent;
  }
  return out + line + "\n";
}

}  // namespace

std::string wrapped(const std::string& text, size_t columns, size_t indent) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    out += wrapped_line(text.substr(at, end - at), columns, indent);
    at = end + 1;
  }
  return out;
}

std::string human_bytes(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, units[unit]);
}

std::string human_age(uint64_t seconds) {
  if (seconds < 60) return fmt::format("{}s", seconds);
  if (seconds < 3600) return fmt::format("{}m{:02}s", seconds / 60, seconds % 60);
  if (seconds < 86400) return fmt::format("{}h{:02}m", seconds / 3600, seconds / 60 % 60);
  return fmt::format("{}d{:02}h", seconds / 86400, seconds / 3600 % 24);
}

}  // namespace tube::ctl
