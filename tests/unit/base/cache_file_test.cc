// Files that are kept between runs: whole or not at all, and only the user's own.
#include "base/cache_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/env.h"

namespace tube {
namespace {

class CacheFile : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/tube-cache-test-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    parent_ = path;
    use(parent_ + "/a/b");
  }
  void TearDown() override {
    ::unsetenv("TUBE_CACHE");
    env_read_again_for_test();
    std::filesystem::remove_all(parent_);
  }
  void use(const std::string& dir) {
    ::setenv("TUBE_CACHE", dir.c_str(), 1);
    env_read_again_for_test();
  }
  std::string parent_;
};

TEST_F(CacheFile, IsReadAsItWasWritten) {
  EXPECT_EQ(read_cache("one", 100), "");
  EXPECT_TRUE(write_cache("one", "some\0thing").ok());
  EXPECT_TRUE(write_cache("one", "else").ok());
  EXPECT_EQ(read_cache("one", 100), "else");
  EXPECT_EQ(read_cache("one", 3), "") << "longer than a file of ours";
  struct stat folder;
  ASSERT_EQ(::stat((parent_ + "/a/b").c_str(), &folder), 0);
  EXPECT_EQ(folder.st_mode & 077, 0u);
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(parent_ + "/a/b")) {
    (void)entry;
    ++files;
  }
  EXPECT_EQ(files, 1u) << "nothing else is left there";
}

TEST_F(CacheFile, LinksAndFoldersAreNone) {
  EXPECT_TRUE(write_cache("one", "else").ok());
  ASSERT_EQ(::symlink("one", (parent_ + "/a/b/link").c_str()), 0);
  ASSERT_EQ(::mkdir((parent_ + "/a/b/folder").c_str(), 0700), 0);
  ASSERT_EQ(::mkfifo((parent_ + "/a/b/pipe").c_str(), 0600), 0);
  for (const char* name : {"link", "folder", "pipe"}) EXPECT_EQ(read_cache(name, 100), "") << name;
}

TEST_F(CacheFile, WhereThereIsNoFolderNothingIsKept) {
  use("off");
  EXPECT_EQ(cache_dir(), "");
  EXPECT_TRUE(write_cache("one", "else").ok());
  EXPECT_EQ(read_cache("one", 100), "");
  use("/proc/none");
  EXPECT_FALSE(write_cache("one", "else").ok());
}

}  // namespace
}  // namespace tube
