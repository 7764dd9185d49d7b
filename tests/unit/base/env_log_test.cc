// The table of TUBE_* variables, and log lines: one write per event, silent below the level.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "base/env.h"
#include "base/log.h"
#include "base/log_limits.h"
#include "base/memory_room.h"
#include "tests/support/units.h"

namespace tube {
namespace {

// What `body` writes to stderr in a process of its own (log settings are read once per process).
std::string stderr_of(const std::function<void()>& body) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], 2);
    reset_log_for_test();
    body();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return text;
}

void set(const char* name, const char* value) {
  ::setenv(name, value, 1);
  env_read_again_for_test();
}

TEST(Log, IsSilentBelowWarnByDefault) {
  EXPECT_EQ(stderr_of([] {
              log_info("nothing");
              log_warn("value %d", 7);
              log_error("bad");
            }),
            "tube: warn: value 7\ntube: error: bad\n");
}

TEST(Log, LevelComesFromTheEnvironment) {
  EXPECT_EQ(stderr_of([] {
              set("TUBE_LOG", "debug");
              log_debug("seen");
              log_trace("not seen");
            }),
            "tube: debug: seen\n");
}

TEST(Log, AProgramsOwnLevelWins) {
  EXPECT_EQ(stderr_of([] {
              set("TUBE_LOG", "trace");
              set_log_level(LogLevel::kError);
              log_warn("not seen");
            }),
            "");
}

TEST(Log, OneEventIsOneLineWhateverItContains) {
  EXPECT_EQ(stderr_of([] { log_warn("%s", "two\nlines"); }), "tube: warn: two lines\n");
  const std::string line = stderr_of([] { log_warn("%s", std::string(5000, 'x').c_str()); });
  EXPECT_EQ(line.size(), 1024u - 1);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST(Log, GoesToTheNamedFile) {
  char path[] = "/tmp/tube-log-test-XXXXXX";
  const int fd = ::mkstemp(path);
  EXPECT_EQ(stderr_of([&path] {
              set("TUBE_LOG_FILE", path);
              log_warn("to the file");
            }),
            "");
  char buffer[100];
  const ssize_t n = ::read(fd, buffer, sizeof(buffer));
  EXPECT_EQ(std::string(buffer, static_cast<size_t>(n > 0 ? n : 0)), "tube: warn: to the file\n");
  ::close(fd);
  ::unlink(path);
}

TEST(Log, KeepsErrno) {
  (void)stderr_of([] {
    errno = ENOENT;
    log_warn("x");
    if (errno != ENOENT) ::abort();
  });
}

TEST(Log, OnceIsOnce) {
  static Once once;
  EXPECT_TRUE(once.first());
  EXPECT_FALSE(once.first());
}

TEST(LogBudget, ABurstAndThenSoManyASecond) {
  LogBudget budget(3, 2);
  uint64_t now = 5 * kSecond;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(budget.take(now));
  EXPECT_FALSE(budget.take(now));
  EXPECT_TRUE(budget.take(now + kSecond / 2));
  EXPECT_FALSE(budget.take(now + kSecond / 2));
  EXPECT_EQ(budget.take_left_out(), 2u);
  EXPECT_EQ(budget.take_left_out(), 0u);
  now += 100 * kSecond;  // not more than the burst
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(budget.take(now));
  EXPECT_FALSE(budget.take(now));
}

TEST(LogBudget, CountsAgainstThatOfAll) {
  LogBudget all(3, 1), one(2, 1, &all), other(5, 1, &all);
  EXPECT_TRUE(one.take(kSecond));
  EXPECT_TRUE(one.take(kSecond));
  EXPECT_FALSE(one.take(kSecond));
  EXPECT_TRUE(other.take(kSecond));
  EXPECT_FALSE(other.take(kSecond)) << "all have had three";
}

TEST(LogBudget, SaysHowManyLinesAreLeftOut) {
  EXPECT_EQ(
      stderr_of([] {
        static LogBudget own(2, 1), mine(1, 1);
        bound_log(&own);
        log_warn("one");
        log_within(&mine);
        log_warn("two");
        for (int i = 0; i < 4; ++i) log_warn("too many");
        log_within(nullptr);
        log_warn("three");
        mine.leave_out();
        set_log_level(LogLevel::kDebug);  // asked for: not counted, and the thread's own is told
        log_within(&mine);
        log_warn("four");
      }),
      "tube: warn: one\ntube: warn: two\ntube: warn: three\n"
      "tube: warn: (5 lines left out) four\n");
}

TEST(Log, WaitsForNobodyWhoReads) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const int room = ::fcntl(ends[1], F_SETPIPE_SZ, 4096);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], 2);
    reset_log_for_test();
    log_without_waiting();
    for (int i = 0; i < 2000; ++i) log_warn("line %d", i);
    ::_exit(::fcntl(2, F_GETFL) & O_NONBLOCK ? 1 : 0);  // others' descriptors are as they were
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::string text(static_cast<size_t>(room), 0);
  EXPECT_GT(::read(ends[0], text.data(), text.size()), 100);
  EXPECT_EQ(text.rfind("tube: warn: line 0\n", 0), 0u);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Log, BeginsAFileAnewThatHasGrown) {
  char folder[] = "/tmp/tube-log-test-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/w.log", other = path + ".1";
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 2);
    reset_log_for_test();
    begin_log_anew(folder, 1000);
    for (int i = 0; i < 100; ++i) log_warn("line %d", i);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  struct stat now, last;
  ASSERT_EQ(::stat(path.c_str(), &now), 0);
  ASSERT_EQ(::stat(other.c_str(), &last), 0);
  EXPECT_LT(now.st_size, 1100);
  EXPECT_LT(last.st_size, 1100);
  EXPECT_GT(now.st_size + last.st_size, 1000);
  ::unlink(path.c_str());
  ::unlink(other.c_str());
  ::rmdir(folder);
}

TEST(MemoryRoom, ReadsLinesOfEitherKind) {
  EXPECT_EQ(bytes_of_line("MemTotal:  5 kB\nMemAvailable:   1024 kB\n", "MemAvailable"), 1u << 20);
  EXPECT_EQ(bytes_of_line("inactive_file_x 3\ninactive_file 4096\n", "inactive_file"), 4096u);
  EXPECT_EQ(bytes_of_line("anon 1\n", "inactive_file"), 0u);
  EXPECT_GT(available_memory_bytes(), 0u);
}

TEST(Env, EmptyCountsAsUnset) {
  set("TUBE_WORKFLOW", "");
  EXPECT_EQ(env_text(Env::kWorkflow), nullptr);
  set("TUBE_WORKFLOW", "photos");
  EXPECT_STREQ(env_text(Env::kWorkflow), "photos");
}

TEST(Env, IsReadOnceSoALaterChangeIsNotSeen) {
  set("TUBE_WORKFLOW", "first");
  const char* text = env_text(Env::kWorkflow);
  ::setenv("TUBE_WORKFLOW", "second", 1);
  EXPECT_EQ(env_text(Env::kWorkflow), text);
  EXPECT_STREQ(text, "first");
}

TEST(Env, FlagsAreOffForTheUsualWords) {
  for (const char* off : {"0", "false", "No", "OFF", ""}) {
    set("TUBE_OFF", off);
    EXPECT_FALSE(env_flag(Env::kOff)) << off;
    EXPECT_EQ(env_flag(Env::kOff, true), *off == '\0') << "only what is said counts";
  }
  set("TUBE_OFF", "1");
  EXPECT_TRUE(env_flag(Env::kOff));
}

TEST(Env, NumbersThatAreNoneAreReportedOnceAndIgnored) {
  set("TUBE_SPIN_US", "25");
  EXPECT_EQ(env_number(Env::kSpinUs), 25u);
  set("TUBE_SPIN_US", "-3");
  EXPECT_EQ(stderr_of([] {
              EXPECT_FALSE(env_number(Env::kSpinUs));
              EXPECT_FALSE(env_number(Env::kSpinUs));
            }),
            "tube: warn: TUBE_SPIN_US=-3 is not a number, ignored\n");
}

TEST(Env, ManualNamesEveryVariable) {
  const std::string page = env_manual_section();
  for (uint32_t i = 0; i < static_cast<uint32_t>(Env::kCount); ++i) {
    const EnvEntry& entry = env_entry(static_cast<Env>(i));
    EXPECT_NE(page.find(std::string(".B ") + entry.name + "\n"), std::string::npos) << entry.name;
    EXPECT_NE(entry.meaning[0], '\0');
  }
}

}  // namespace
}  // namespace tube
