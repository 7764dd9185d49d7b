// The table of TUBE_* variables, and log lines: one write per event, silent below the level.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "base/env.h"
#include "base/log.h"

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
