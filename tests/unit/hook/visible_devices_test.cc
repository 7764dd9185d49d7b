#include "hook/process/visible_devices.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace tube::hook {
namespace {

class VisibleDevices : public testing::Test {
 protected:
  static constexpr uint32_t kCount = 4;
  VisibleDevices() {
    for (uint32_t i = 0; i < kCount; ++i) {
      for (int b = 0; b < 16; ++b) devices_[i].uuid[b] = static_cast<uint8_t>(0x10 * (i + 1) + b);
    }
  }
  std::vector<uint32_t> choose(const char* text, const char* order = nullptr) {
    uint32_t chosen[info::kMaxDevices];
    const uint32_t n = choose_visible_devices(text, order, devices_.get(), kCount, chosen);
    return {chosen, chosen + n};
  }
  std::unique_ptr<info::DeviceInfo[]> devices_ = std::make_unique<info::DeviceInfo[]>(kCount);
};
using List = std::vector<uint32_t>;

TEST_F(VisibleDevices, UnsetShowsAll) { EXPECT_EQ(choose(nullptr), (List{0, 1, 2, 3})); }
TEST_F(VisibleDevices, EmptyShowsNone) { EXPECT_EQ(choose(""), List{}); }
TEST_F(VisibleDevices, OrderIsTheLists) { EXPECT_EQ(choose("2, 0"), (List{2, 0})); }
TEST_F(VisibleDevices, ListEndsBeforeTheFirstUnknownEntry) {
  EXPECT_EQ(choose("1,7,0"), (List{1}));
  EXPECT_EQ(choose("-1,0"), List{});
  EXPECT_EQ(choose("0,x"), (List{0}));
  EXPECT_EQ(choose("NoDevFiles"), List{});
}
TEST_F(VisibleDevices, OrderMayFollowTheBus) {
  const char* const bus[] = {"0000:3B:00.0", "0000:AF:00.0", "0000:18:00.0", "0000:86:00.0"};
  for (uint32_t i = 0; i < kCount; ++i)
    snprintf(devices_[i].pci_bus_id, sizeof devices_[i].pci_bus_id, "%s", bus[i]);
  EXPECT_EQ(choose(nullptr, "PCI_BUS_ID"), (List{2, 0, 3, 1}));
  EXPECT_EQ(choose("3,0", "PCI_BUS_ID"), (List{1, 2}));
  EXPECT_EQ(choose("3,0", "FASTEST_FIRST"), (List{3, 0}));
}
TEST_F(VisibleDevices, MigInstancesAreNotThere) {
  EXPECT_EQ(choose("MIG-GPU-10111213-1415-1617-1819-1a1b1c1d1e1f/1/0"), List{});
  EXPECT_EQ(choose("2,MIG-10111213-1415-1617-1819-1a1b1c1d1e1f,0"), (List{2}));
  EXPECT_EQ(choose("MIG-10111213-1415-1617-1819-1a1b1c1d1e1f"),
            (List{0}));  // an undivided GPU goes by this name too
}
TEST_F(VisibleDevices, GpuNamedTwiceIsAnError) {
  uint32_t chosen[info::kMaxDevices];
  EXPECT_EQ(choose_visible_devices("1,1", nullptr, devices_.get(), kCount, chosen),
            kBadVisibleDevices);
  EXPECT_EQ(choose_visible_devices("GPU-10,GPU-10", nullptr, devices_.get(), kCount, chosen),
            kBadVisibleDevices);
}
TEST_F(VisibleDevices, UnknownOrderIsAnError) {
  uint32_t chosen[info::kMaxDevices];
  EXPECT_EQ(choose_visible_devices("0", "", devices_.get(), kCount, chosen), kBadVisibleDevices);
  EXPECT_EQ(choose_visible_devices(nullptr, "pci_bus_id", devices_.get(), kCount, chosen),
            kBadVisibleDevices);
}
TEST_F(VisibleDevices, ListIsOfOneKind) {
  EXPECT_EQ(choose("0,GPU-20"), (List{0}));
  EXPECT_EQ(choose("GPU-20,0"), (List{1}));
}
TEST_F(VisibleDevices, UuidMayBeShortenedAndInAnyCase) {
  char uuid[41];
  format_uuid(devices_[1].uuid, uuid);
  EXPECT_EQ(std::string(uuid), "GPU-20212223-2425-2627-2829-2a2b2c2d2e2f");
  EXPECT_EQ(choose(uuid), (List{1}));
  EXPECT_EQ(choose("GPU-2021,GPU-40"), (List{1, 3}));
  EXPECT_EQ(choose("GPU-20212223-2425-2627-2829-2A2B2C2D2E2F"), (List{1}));
}
TEST_F(VisibleDevices, AmbiguousUuidNamesNone) {
  devices_[2].uuid[0] = devices_[1].uuid[0];
  EXPECT_EQ(choose("GPU-20"), List{});
}

}  // namespace
}  // namespace tube::hook
