#include "proxy/common/restart.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <span>
#include <string_view>

namespace tube::proxy {
namespace {

constexpr unsigned kFirstInherited = 3;  // standard input, output and error stay

constexpr uint32_t kCounts = 3;  // so many descriptors come before the count of restarts

bool is_open(int fd, mode_t type) {
  struct stat info;
  return fd >= 0 && ::fstat(fd, &info) == 0 && (info.st_mode & S_IFMT) == type;
}

void set_close_on_exec(int fd, bool close) { ::fcntl(fd, F_SETFD, close ? FD_CLOEXEC : 0); }

template <class F>
void for_each_fd(const Inheritance& inheritance, F visit) {
  visit(inheritance.data);
  visit(inheritance.control);
  visit(inheritance.owner);
  for (int fd : inheritance.greeting) visit(fd);
}

// False: it is no list of numbers.
template <class F>
bool for_each_number(std::string_view text, F visit) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    int number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 0) return false;
    visit(number);
    if (next == end) return true;
    if (*next != ',') return false;
    at = next + 1;
  }
}

constinit SecondStart second;
constinit std::terminate_handler ends_usually = nullptr;

[[noreturn]] void begin_instead_of_ending() {
  second.begin();
  ends_usually();
  std::abort();
}

__attribute__((constructor(101))) void keep_what_is_inherited(int argc, char** argv) {
  second.keep(argc, argv);
}

}  // namespace

std::string to_text(const Inheritance& inheritance) {
  std::string text = std::to_string(inheritance.data) + "," + std::to_string(inheritance.control) +
                     "," + std::to_string(inheritance.owner) + "," +
                     std::to_string(inheritance.restarts);
  for (int fd : inheritance.greeting) text += "," + std::to_string(fd);
  return text;
}

bool parse_inheritance(const std::string& text, Inheritance* inheritance) {
  std::vector<int> numbers;
  if (!for_each_number(text, [&](int number) { numbers.push_back(number); }) ||
      numbers.size() <= kCounts)
    return false;
  Inheritance parsed{numbers[0],
                     numbers[1],
                     numbers[2],
                     static_cast<uint32_t>(numbers[kCounts]),
                     {numbers.begin() + kCounts + 1, numbers.end()}};
  bool good = true;
  for_each_fd(parsed,
              [&](int fd) { good = good && is_open(fd, fd == parsed.owner ? S_IFREG : S_IFSOCK); });
  if (!good) return false;
  for_each_fd(parsed, [](int fd) { set_close_on_exec(fd, true); });
  *inheritance = std::move(parsed);
  return true;
}

Error restart(const Inheritance& inheritance, std::vector<std::string> arguments) {
  // The driver's descriptors, our files, everything: closed by the exec.
  if (::syscall(SYS_close_range, kFirstInherited, ~0u,
                static_cast<unsigned>(CLOSE_RANGE_CLOEXEC)) != 0) {
    return errno_error(errno, "close_range");
  }
  for_each_fd(inheritance, [](int fd) { set_close_on_exec(fd, false); });
  arguments.insert(arguments.end(), {"--inherit", to_text(inheritance)});
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::execv("/proc/self/exe", argv.data());
  return errno_error(errno, "cannot execute itself");
}

void SecondStart::keep(int argc, char* const* argv) {
  argv_ = argv;
  uint32_t place = 0;
  const auto keep_one = [&](int number) {
    if (place++ == kCounts) return;
    const int copy = count_ < kMost ? ::fcntl(number, F_DUPFD_CLOEXEC, kFirstInherited) : -1;
    if (copy >= 0) kept_[count_++] = {number, copy};
    else whole_ = false;
  };
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string_view(argv[i]) == "--inherit") (void)for_each_number(argv[i + 1], keep_one);
  }
  if (count_ != 0) ends_usually = std::set_terminate(begin_instead_of_ending);
}

void SecondStart::started() {
  if (count_ != 0) std::set_terminate(ends_usually);
  while (count_ != 0) ::close(kept_[--count_].copy);
}

void SecondStart::begin() {
  constexpr int kPauseMs = 100;
  if (!whole_ || count_ < kCounts) return;
  ::poll(nullptr, 0, kPauseMs);
  (void)::syscall(SYS_close_range, kFirstInherited, ~0u,
                  static_cast<unsigned>(CLOSE_RANGE_CLOEXEC));
  for (const Kept& kept : std::span(kept_).first(count_)) ::dup2(kept.copy, kept.number);
  ::execv("/proc/self/exe", argv_);
}

SecondStart& second_start() { return second; }

}  // namespace tube::proxy
