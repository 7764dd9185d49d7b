#include "base/cache_dir.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace tube {
namespace {

class CacheDir : public ::testing::Test {
 protected:
  CacheDir() {
    char name[] = "/tmp/tube-cache-test-XXXXXX";
    folder = mkdtemp(name);
  }
  ~CacheDir() override { std::filesystem::remove_all(folder); }
  std::string folder;
};

TEST_F(CacheDir, AFileIsReplacedWholeAndItsFoldersAreMade) {
  const std::string path = folder + "/a/b/file.json";
  EXPECT_EQ(read_kept_file(path, 100).error().code, ENOENT);
  ASSERT_TRUE(write_kept_file(path, "one").ok());
  ASSERT_TRUE(write_kept_file(path, "two").ok());
  const auto read = read_kept_file(path, 3);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, "two");
  size_t files = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator(folder + "/a/b"))
    ++files;
  EXPECT_EQ(files, 1u);
}

TEST_F(CacheDir, WhatOthersCanWriteOrIsTooLargeIsNotRead) {
  const std::string path = folder + "/file";
  ASSERT_TRUE(write_kept_file(path, "12345").ok());
  EXPECT_EQ(read_kept_file(path, 4).error().code, EFBIG);
  ASSERT_EQ(chmod(path.c_str(), 0620), 0);
  EXPECT_EQ(read_kept_file(path, 100).error().code, EPERM);
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  ASSERT_EQ(symlink(path.c_str(), (folder + "/link").c_str()), 0);
  EXPECT_EQ(read_kept_file(folder + "/link", 100).error().code, ELOOP);
  ASSERT_EQ(mkfifo((folder + "/pipe").c_str(), 0600), 0);
  EXPECT_EQ(read_kept_file(folder + "/pipe", 100).error().code, EINVAL);
  EXPECT_FALSE(read_kept_file(folder, 100).ok());
}

TEST_F(CacheDir, NamesOfFilesAreTheirOwnAndStayInTheFolder) {
  EXPECT_NE(kept_file_name("a/b"), kept_file_name("a_b"));
  EXPECT_EQ(kept_file_name("../../etc").find('/'), std::string::npos);
  EXPECT_EQ(kept_file_name("").find('/'), std::string::npos);
  EXPECT_LT(kept_file_name(std::string(500, 'x')).size(), 100u);
}

}  // namespace
}  // namespace tube
