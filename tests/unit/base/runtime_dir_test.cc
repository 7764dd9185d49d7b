// The runtime folder: made closed, refused when it is open, foreign, a link or a file.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "base/env.h"
#include "base/runtime_dir.h"

namespace tube {
namespace {

class RuntimeDir : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/tube-dir-test-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    parent_ = path;
    use(parent_ + "/run");
  }
  void TearDown() override {
    ::unsetenv("TUBE_DIR");
    env_read_again_for_test();
    ::rmdir((parent_ + "/run").c_str());
    ::unlink((parent_ + "/run").c_str());
    ::rmdir(parent_.c_str());
  }
  void use(const std::string& dir) {
    ::setenv("TUBE_DIR", dir.c_str(), 1);
    env_read_again_for_test();
  }
  std::string parent_;
};

TEST_F(RuntimeDir, IsMadeClosedToOthers) {
  EXPECT_EQ(find_runtime_dir().error().code, ENOENT);
  Result<std::string> dir = make_runtime_dir();
  ASSERT_TRUE(dir) << dir.error().message;
  struct stat info;
  ASSERT_EQ(::stat(dir->c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
  EXPECT_TRUE(make_runtime_dir());  // again is fine
  EXPECT_TRUE(find_runtime_dir());
}

TEST_F(RuntimeDir, OpenToOthersIsRefusedAndTheMessageSaysHowToCloseIt) {
  const std::string dir = parent_ + "/run";
  ASSERT_EQ(::mkdir(dir.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(dir.c_str(), 0755), 0);
  Result<std::string> found = make_runtime_dir();
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message.find("chmod 700 " + dir), std::string::npos)
      << found.error().message;
}

TEST_F(RuntimeDir, LinkIsRefused) {
  ASSERT_EQ(::symlink("/tmp", (parent_ + "/run").c_str()), 0);
  EXPECT_EQ(make_runtime_dir().error().code, ENOTDIR);
}

TEST_F(RuntimeDir, AnotherUsersFolderIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to give a folder away";
  const std::string dir = parent_ + "/run";
  ASSERT_EQ(::mkdir(dir.c_str(), 0700), 0);
  ASSERT_EQ(::chown(dir.c_str(), 12345, 12345), 0);
  Result<std::string> found = find_runtime_dir();
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message.find("12345"), std::string::npos);
}

TEST_F(RuntimeDir, MissingParentIsWorded) {
  use(parent_ + "/no/such");
  EXPECT_NE(make_runtime_dir().error().message.find("TUBE_DIR"), std::string::npos);
}

TEST(RuntimeDirName, DefaultsFollowXdgThenTheUser) {
  ::unsetenv("TUBE_DIR");
  env_read_again_for_test();
  const char* xdg = std::getenv("XDG_RUNTIME_DIR");
  const std::string before = xdg != nullptr ? xdg : "";
  ::setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  EXPECT_EQ(runtime_dir_path(), "/run/user/7/tube");
  ::unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(runtime_dir_path(),
            ::geteuid() == 0 ? "/run/tube" : "/tmp/tube-" + std::to_string(::geteuid()));
  if (!before.empty()) ::setenv("XDG_RUNTIME_DIR", before.c_str(), 1);
}

TEST(WorkflowName, StaysInsideItsFolder) {
  EXPECT_TRUE(valid_workflow_name("Photos_2.v-1"));
  EXPECT_TRUE(valid_workflow_name(std::string(64, 'a')));
  for (const std::string& bad :
       {std::string(), std::string("."), std::string(".."), std::string("a/b"), std::string("a b"),
        std::string(65, 'a'), std::string("a\0b", 3)}) {
    EXPECT_FALSE(valid_workflow_name(bad)) << bad;
  }
  EXPECT_EQ(data_socket_path("/run/tube", "w"), "/run/tube/w.sock");
  EXPECT_EQ(control_socket_path("/run/tube", "w"), "/run/tube/w.ctl");
}

}  // namespace
}  // namespace tube
