// A simulated GPU is never taken where a real one may be meant.
#include "proxy/common/backend.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/log.h"
#include "protocol/driver_table.gen.h"

namespace tube::proxy {
namespace {

namespace fs = std::filesystem;

class BackendTest : public ::testing::Test {
 protected:
  BackendTest() : folder(fs::temp_directory_path() / ("tube-dev-" + std::to_string(getpid()))) {
    fs::create_directory(folder);
    set_log_level(LogLevel::kError);
  }
  ~BackendTest() override { fs::remove_all(folder); }
  std::string error(BackendChoice choice) {
    Driver driver;
    const auto loaded = load_backend({choice, "/no/driver", "/no/sim", folder.string()}, driver);
    return loaded.ok() ? "" : loaded.error().message;
  }
  fs::path folder;
};

TEST_F(BackendTest, TheSimulatedGpuIsForMachinesWithoutGpus) {
  EXPECT_NE(error(BackendChoice::kAuto).find("/no/sim"), std::string::npos);
  std::ofstream(folder / "nvidiactl") << "";
  const std::string refused = error(BackendChoice::kAuto);
  EXPECT_EQ(refused.find("/no/sim"), std::string::npos);
  EXPECT_NE(refused.find("nvidiactl"), std::string::npos);
  EXPECT_NE(refused.find("--backend sim"), std::string::npos);
}

TEST_F(BackendTest, WhatWasAskedForIsTaken) {
  std::ofstream(folder / "nvidia0") << "";
  EXPECT_NE(error(BackendChoice::kSim).find("/no/sim"), std::string::npos);
  EXPECT_NE(error(BackendChoice::kDriver).find("/no/driver"), std::string::npos);
}

}  // namespace
}  // namespace tube::proxy
