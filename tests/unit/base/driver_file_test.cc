// The search for the real driver: by name and place, never a library that carries Tube's note,
// whatever it is called.
#include "base/driver_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/tube_note.h"

TUBE_IDENTITY_NOTE();  // makes this test program a file of Tube's

namespace tube {
namespace {

namespace fs = std::filesystem;

// A foreign library: any ELF file that is not ours.
fs::path foreign() { return fs::canonical("/bin/sh"); }

class Search : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("drivers" + std::to_string(getpid()));
    fs::create_directories(root_);
  }
  void TearDown() override {
    fs::remove_all(root_);
    unsetenv("LD_LIBRARY_PATH");
  }
  std::string place(const fs::path& source, const char* folder) {
    fs::create_directories(root_ / folder);
    const fs::path target = root_ / folder / "libcuda.so.1";
    fs::copy_file(source, target);
    return fs::canonical(target).string();
  }
  std::string path_of(const char* folder) { return (root_ / folder).string(); }
  fs::path root_;
};

TEST_F(Search, OursIsPassedOverAndTheNextOneTaken) {
  place("/proc/self/exe", "a");
  const std::string real = place(foreign(), "b");
  setenv("LD_LIBRARY_PATH", (path_of("a") + "::" + path_of("none") + ":" + path_of("b")).c_str(),
         1);
  const DriverSearch search = search_driver(nullptr);
  ASSERT_FALSE(search.found.empty());
  EXPECT_EQ(search.found.front(), real);
  EXPECT_EQ(search.looked_in.front(), path_of("none") + "/libcuda.so.1");
}

TEST_F(Search, AnotherLibraryIsLookedForInTheSamePlaces) {
  place(foreign(), "a");
  fs::create_directories(root_ / "b");
  fs::copy_file(foreign(), root_ / "b" / "libnvidia-ml.so.1");
  setenv("LD_LIBRARY_PATH", (path_of("a") + ":" + path_of("b")).c_str(), 1);
  const DriverSearch search = search_library("libnvidia-ml.so.1", nullptr);
  ASSERT_FALSE(search.found.empty());
  EXPECT_EQ(search.found.front(), fs::canonical(root_ / "b" / "libnvidia-ml.so.1").string());
}

TEST_F(Search, WhatIsNoLibraryIsNoDriver) {
  fs::create_directories(root_ / "text");
  std::ofstream(root_ / "text" / "libcuda.so.1") << "not a library";
  const std::string stub = place(foreign(), "stubs");
  setenv("LD_LIBRARY_PATH", (path_of("text") + ":" + path_of("stubs")).c_str(), 1);
  for (const std::string& found : search_driver(nullptr).found) {
    EXPECT_NE(found, stub);
    EXPECT_NE(found, (root_ / "text" / "libcuda.so.1").string());
  }
}

TEST_F(Search, TheNamedOneIsTheOnlyOne) {
  const std::string named = place(foreign(), "named");
  place(foreign(), "other");
  setenv("LD_LIBRARY_PATH", path_of("other").c_str(), 1);
  EXPECT_EQ(search_driver(named.c_str()).found, std::vector<std::string>{named});
  EXPECT_TRUE(search_driver("/no/such/file").found.empty());
}

TEST_F(Search, TruncatedFilesAreReadWithoutHarm) {
  std::ifstream self("/proc/self/exe", std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(self)), {});
  const std::string part = (root_ / "part").string();
  for (size_t size = 1; size < whole.size(); size += whole.size() / 16) {
    std::ofstream(part, std::ios::binary).write(whole.data(), static_cast<std::streamsize>(size));
    (void)is_no_foreign_library(part);
  }
  EXPECT_TRUE(is_no_foreign_library("/proc/self/exe"));
  EXPECT_FALSE(is_no_foreign_library(foreign()));
}

}  // namespace
}  // namespace tube
