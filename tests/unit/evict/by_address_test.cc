// Memory that is backed when a record names its address: what names, what reaches everything, and
// what ends it.
#include <random>
#include <vector>

#include <nlohmann/json.hpp>

#include "proxy/evict/certificate_file.h"
#include "sharedmem/chunks.h"
#include "tests/support/units.h"
#include "tests/unit/proxy/session_fixture.h"

namespace tube::proxy {
namespace {

class ByAddressTest : public SessionTest {
 protected:
  ByAddressTest() {
    shared.lazy_backing = true;
    restart();
    lazy().set_by_address(true);
    // As small ones are made before the next work, it counts in no test.
    small = allocate(4096);
    set(small);
    made_before = test::fake().taken();
  }
  ~ByAddressTest() override {
    session.reset();
    EXPECT_EQ(map.blocks(), 0u);
    EXPECT_EQ(map.regions(), 0u);
    EXPECT_EQ(map.promised().bytes(0), 0u);
    EXPECT_EQ(map.budgets().charged_bytes(0), 0u);
    EXPECT_EQ(test::fake().live_memory, 0);
  }
  LazyBlocks& lazy() { return session->residency().lazy(); }
  uint64_t made() const { return test::fake().taken() - made_before; }
  void free(CUdeviceptr address) {
    wire::tubeMemFree record{};
    record.dptr = address;
    post(record);
  }
  void set(CUdeviceptr address) {
    wire::tubeMemset record{};
    record.dst = address;
    record.element_bytes = 1;
    record.width = 16;
    record.height = 1;
    post(record);
  }
  void upload(uint64_t value, CUdeviceptr to) {
    wire::tubeCopyInline record{};
    record.dst = to;
    post(with(record, &wire::tubeCopyInline::data,
              std::string(reinterpret_cast<const char*>(&value), sizeof value)));
  }
  void upload_chunk(CUdeviceptr to, uint32_t bytes) {
    wire::tubeCopyChunk record{};
    record.becomes = wire::ChunkBecomes::kFree;
    record.dptr = to;
    record.bytes = bytes;
    post(record);
  }
  uint64_t pinned(uint64_t bytes) {
    wire::tubePinnedAlloc record{};
    record.bytes = bytes;
    wire::tubePinnedAlloc_reply reply{};
    EXPECT_EQ(call(record, &reply), CUDA_SUCCESS);
    return reply.address;
  }
  void copy(CUdeviceptr to, uint64_t from, uint64_t bytes) {
    wire::tubeCopy record{};
    record.dst = to;
    record.src = from;
    record.bytes = bytes;
    post(record);
  }
  void reaches_everything() {
    wire::cuCtxResetPersistingL2Cache_reply none{};
    (void)call(wire::cuCtxResetPersistingL2Cache{}, &none);
  }

  CUdeviceptr small = 0;
  uint64_t made_before = 0;
};

TEST_F(ByAddressTest, OnlyWhatARecordNamesIsMade) {
  const CUdeviceptr one = allocate(8 * kMiB), two = allocate(16 * kMiB);
  set(small);
  EXPECT_EQ(made(), 0u);
  set(two);
  EXPECT_EQ(made(), 16 * kMiB);
  set(one);
  EXPECT_EQ(made(), 24 * kMiB);
  EXPECT_EQ(lazy().counts().named.load(), 2u);
}

// Or a profile would say nothing about a run in which something else lies there.
TEST_F(ByAddressTest, WhatLiesBesideABlockDoesNotNameIt) {
  std::vector<CUdeviceptr> beside;
  for (int i = 0; i < 3; ++i) beside.push_back(allocate(512 << 10));  // up to the slab's end
  const CUdeviceptr block = allocate(8 * kMiB);
  EXPECT_LT(block - beside.back(), 4 * kMiB);
  set(beside.back());
  upload(beside.back() + (512 << 10), small);
  EXPECT_EQ(made(), 0u);
}

TEST_F(ByAddressTest, WorkThatRunsChangesNothing) {
  test::fake().stream_busy = true;
  create_stream(make_id(9, 1));
  const CUdeviceptr address = allocate(8 * kMiB);
  EXPECT_EQ(made(), 0u);
  set(address);
  EXPECT_EQ(made(), 8 * kMiB);
  test::fake().stream_busy = false;
}

TEST_F(ByAddressTest, UploadedDataIsLookedAt) {
  const CUdeviceptr one = allocate(4 * kMiB), two = allocate(4 * kMiB), table = allocate(4 * kMiB);
  set(table);
  EXPECT_EQ(made(), 4 * kMiB);
  upload(one + 100, small);
  EXPECT_EQ(made(), 8 * kMiB);
  std::byte* const chunk = client_segment.chunk(0);
  std::memset(chunk, 0, 100'000);
  upload_chunk(table, 100'000);
  EXPECT_EQ(made(), 8 * kMiB);
  std::memcpy(chunk + 80'000, &two, sizeof two);
  upload_chunk(table, 80'000);
  EXPECT_EQ(made(), 8 * kMiB);
  upload_chunk(table, 100'000);
  EXPECT_EQ(made(), 12 * kMiB);
}

TEST_F(ByAddressTest, PinnedDataIsLookedAtUntilTheHostMayWriteItLater) {
  const CUdeviceptr one = allocate(4 * kMiB), two = allocate(4 * kMiB);
  const uint64_t host = pinned(64 << 10);
  auto* const words = reinterpret_cast<uint64_t*>(host);
  copy(small, host, 4096);
  EXPECT_EQ(made(), 0u);
  words[7] = one;
  copy(small, host, 4096);
  EXPECT_EQ(made(), 4 * kMiB);
  wire::tubeHostFunc function{};
  function.value = 1;
  post(function);
  EXPECT_EQ(made(), 4 * kMiB);
  words[7] = 0;
  copy(small, host, 4096);
  EXPECT_EQ(made(), 8 * kMiB) << std::hex << two;
  EXPECT_TRUE(lazy().by_address());
}

TEST_F(ByAddressTest, WhatIsNotInTheListsReachesEverything) {
  allocate(8 * kMiB);
  reaches_everything();
  EXPECT_EQ(made(), 8 * kMiB);
  EXPECT_TRUE(lazy().by_address());
  const CUdeviceptr next = allocate(4 * kMiB);
  set(small);
  EXPECT_EQ(made(), 8 * kMiB);
  set(next);
  EXPECT_EQ(made(), 12 * kMiB);
}

TEST_F(ByAddressTest, SharedMemoryEndsIt) {
  allocate(8 * kMiB);
  wire::tubeIpcGetMem get{};
  get.dptr = small;
  wire::tubeIpcGetMem_reply reply{};
  (void)call(get, &reply);
  EXPECT_EQ(made(), 8 * kMiB);
  EXPECT_FALSE(lazy().by_address());
  EXPECT_EQ(session->residency().counts().departures.load(), 1u);
  allocate(4 * kMiB);
  EXPECT_EQ(made(), 8 * kMiB) << "still a promise, until the next work";
  set(small);
  EXPECT_EQ(made(), 12 * kMiB);
}

TEST_F(ByAddressTest, AlsoWhenNothingWasPromisedThen) {
  wire::tubeIpcGetMem get{};
  get.dptr = small;
  wire::tubeIpcGetMem_reply reply{};
  (void)call(get, &reply);
  EXPECT_FALSE(lazy().by_address());
}

TEST_F(ByAddressTest, AnAddressAgainIsMadeBeforeTheNextWork) {
  const CUdeviceptr first = allocate(8 * kMiB);
  free(first);
  EXPECT_EQ(allocate(8 * kMiB), first);
  EXPECT_EQ(made(), 0u);
  set(small);
  EXPECT_EQ(made(), 8 * kMiB);
  free(first);
  EXPECT_EQ(made(), 0u);
  test::fake().stream_busy = true;  // what runs may know it
  create_stream(make_id(9, 1));
  EXPECT_EQ(allocate(8 * kMiB), first);
  EXPECT_EQ(made(), 8 * kMiB);
  test::fake().stream_busy = false;
}

TEST_F(ByAddressTest, InAProfileNoAddressComesTwice) {
  session->residency().set_profiled();
  policies::AddressSet had;
  for (int i = 0; i < 50; ++i) {
    free(allocate(2 * kMiB));
    const CUdeviceptr address = allocate(8 * kMiB);
    EXPECT_FALSE(had.overlaps(address, 8 * kMiB)) << i;
    had.add(address, 8 * kMiB);
    if (i % 2 == 0) set(address);
    free(address);
  }
  EXPECT_EQ(made(), 0u);
  EXPECT_EQ(lazy().not_tried(), 0u);
}

TEST_F(ByAddressTest, InAProfileWhatIsBackedAtOnceIsCounted) {
  session->residency().set_profiled();
  allocate(1000 * kMiB);
  EXPECT_EQ(lazy().not_tried(), 1u) << "less than the headroom is left";
}

TEST_F(ByAddressTest, WhatTheDriverRefusesAfterAllEndsThisClientAlone) {
  const CUdeviceptr address = allocate(8 * kMiB);
  allocate(4 * kMiB);
  test::fake().next_memory = CUDA_ERROR_OUT_OF_MEMORY;
  set(small);
  EXPECT_EQ(shared::client_load_sticky_error(client_segment.header()), 0u);
  set(address);
  test::fake().next_memory = CUDA_SUCCESS;
  EXPECT_EQ(shared::client_load_sticky_error(client_segment.header()),
            uint32_t{CUDA_ERROR_OUT_OF_MEMORY});
}

// Against a model: a block is there exactly when a record has named it or everything, and when its
// address is not new.
TEST_F(ByAddressTest, RandomProgramsAddUp) {
  std::mt19937 chance(11);
  struct Held {
    CUdeviceptr address;
    uint64_t bytes;
    bool made, known;
  };
  std::vector<Held> held;
  policies::AddressSet had;
  for (int step = 0; step < 20'000; ++step) {
    const unsigned what = chance() % 16;
    bool work = false;
    if (what < 6 && held.size() < 40) {
      const uint64_t bytes = (2 + 2 * (1 + chance() % 6)) * kMiB;
      const CUdeviceptr address = allocate(bytes);
      held.push_back({address, bytes, false, had.overlaps(address, bytes)});
      had.add(address, bytes);
    } else if (what < 11 && !held.empty()) {
      const size_t which = chance() % held.size();
      free(held[which].address);
      held[which] = held.back();
      held.pop_back();
    } else if (what < 14 && !held.empty()) {
      Held& each = held[chance() % held.size()];
      upload(each.address + chance() % each.bytes, small);
      each.made = work = true;
    } else if (what == 14) {
      reaches_everything();
      for (Held& each : held) each.made = true;
    } else if (what == 15) {
      set(small);
      work = true;
    }
    uint64_t there = 0, all = 0;
    for (Held& each : held) {
      each.made |= each.known && work;
      all += each.bytes;
      there += each.made ? each.bytes : 0;
    }
    ASSERT_EQ(made(), there) << step;
    ASSERT_EQ(map.promised().bytes(0), all - there);
  }
  for (const Held& each : held) free(each.address);
}

TEST(CertificateFile, ReadsWhatItWrites) {
  policies::Certificate certificate;
  certificate.function = "f";
  certificate.gpu = "a GPU";
  certificate.images = {{1, 2}, {~0ull, ~0ull}};
  certificate.allocations = {1, 2, ~0ull};
  const auto read = parse_certificate(certificate_json(certificate).dump());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->function, "f");
  EXPECT_EQ(read->gpu, "a GPU");
  EXPECT_EQ(read->images, certificate.images);
  EXPECT_EQ(read->allocations, certificate.allocations);
}

TEST(CertificateFile, AnyOtherTextIsRefusedOrBounded) {
  policies::Certificate certificate;
  certificate.function = "f";
  certificate.images = {{1, 2}, {3, 4}};
  certificate.allocations = {1, 2, 3};
  const std::string good = certificate_json(certificate).dump();
  std::mt19937 chance(5);
  for (int i = 0; i < 20'000; ++i) {
    std::string text = good;
    for (unsigned times = 1 + chance() % 4; times != 0; --times) {
      const size_t at = chance() % text.size();
      switch (chance() % 3) {
        case 0: text[at] = static_cast<char>(chance()); break;
        case 1: text.erase(at, chance() % 20); break;
        default: text.insert(at, 1, "[]{}:,\"0-9"[chance() % 10]); break;
      }
      if (text.empty()) text = "x";
    }
    const auto read = parse_certificate(text);
    if (read.ok()) {
      EXPECT_TRUE(read->fits());
    }
  }
}

}  // namespace
}  // namespace tube::proxy
