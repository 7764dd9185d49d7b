// The door of all copies: each copy call of a client passes it once, as what it is, and goes to the
// driver as one call.
#include <array>
#include <string>
#include <vector>

#include "tests/unit/proxy/session_fixture.h"

namespace tube::proxy {
namespace {

using wire::SideKind;

class CopiesTest : public SessionTest {
 protected:
  CopiesTest() {
    driver.cuMemcpyDtoHAsync_v2 = [](void*, CUdeviceptr, size_t, CUstream) {
      test::fake().calls.push_back("download");
      return test::fake().next_launch;
    };
    driver.cuMemcpy3DPeerAsync = [](const CUDA_MEMCPY3D_PEER*, CUstream) {
      test::fake().calls.push_back("copy 3D peer");
      return CUDA_SUCCESS;
    };
    driver.cuMemcpyBatchAsync_v2 = [](CUdeviceptr*, CUdeviceptr*, size_t*, size_t count,
                                      CUmemcpyAttributes*, size_t*, size_t, CUstream) {
      test::fake().calls.push_back("batch of " + std::to_string(count));
      return CUDA_SUCCESS;
    };
    create_stream(kStream, CU_STREAM_NON_BLOCKING);
    device = allocate(1 << 20);
    wire::tubePinnedAlloc alloc{};
    alloc.bytes = 1 << 20;
    wire::tubePinnedAlloc_reply reply{};
    EXPECT_EQ(call(alloc, &reply), CUDA_SUCCESS);
    pinned = reply.address;
    before = counts();
  }
  ~CopiesTest() override { session.reset(); }

  using Counts = std::array<uint64_t, static_cast<size_t>(CopyKind::kCount)>;
  Counts counts() {
    Counts all{};
    for (size_t i = 0; i < all.size(); ++i)
      all[i] = session->copies().count(static_cast<CopyKind>(i));
    return all;
  }
  // The record makes one copy of this kind, with these driver calls.
  template <class X>
  void expect_one(CopyKind kind, const X& record, const std::vector<std::string>& calls,
                  uint64_t bytes) {
    const uint64_t bytes_before = session->stats().copy_bytes.load();
    test::fake().calls.clear();
    post(record);
    EXPECT_EQ(async_error(), 0u);
    std::vector<std::string> made;
    for (const std::string& one : test::fake().calls) made.push_back(one.substr(0, one.find(" s")));
    EXPECT_EQ(made, calls);
    ++before[static_cast<size_t>(kind)];
    EXPECT_EQ(counts(), before);
    EXPECT_EQ(session->stats().copy_bytes.load() - bytes_before, bytes);
  }
  wire::tubeCopy plain(uint64_t dst, uint64_t src, uint64_t bytes) {
    wire::tubeCopy copy{};
    copy.stream = kStream;
    copy.dst = dst;
    copy.src = src;
    copy.bytes = bytes;
    return copy;
  }
  // 2 rows of 16 bytes, with a pitch of 64.
  wire::tubeCopy3D rows(SideKind dst_kind, uint64_t dst, SideKind src_kind, uint64_t src) {
    wire::tubeCopy3D copy{};
    copy.stream = kStream;
    copy.dst = dst;
    copy.src = src;
    copy.dst_pitch = copy.src_pitch = 64;
    copy.dst_height = copy.src_height = 2;
    copy.extent[0] = 16;
    copy.extent[1] = 2;
    copy.extent[2] = 1;
    copy.release_chunk = CopyCompletion::kNoChunk;
    copy.dst_kind = dst_kind;
    copy.src_kind = src_kind;
    return copy;
  }

  static constexpr uint64_t kStream = make_id(1, 1);
  uint64_t device = 0;
  uint64_t pinned = 0;
  Counts before{};
};

TEST_F(CopiesTest, ACopyBetweenAddressesIsWhatItsRangesSay) {
  expect_one(CopyKind::kUpload, plain(device, pinned, 64), {"copy"}, 64);
  expect_one(CopyKind::kDownload, plain(pinned, device, 65), {"copy"}, 65);
  expect_one(CopyKind::kDevice, plain(device, device + 512, 66), {"copy"}, 66);
  expect_one(CopyKind::kHost, plain(pinned, pinned + 512, 67), {"batch of 1"}, 67);
  expect_one(CopyKind::kHost, rows(SideKind::kAddress, pinned, SideKind::kAddress, pinned + 4096),
             {"batch of 2"}, 32);
}

TEST_F(CopiesTest, TwoGpusMakeAPeerCopy) {
  const Range here{.kind = RangeKind::kDevice, .device = 0};
  const Range there{.kind = RangeKind::kOpened, .device = 1};
  const Range host{.kind = RangeKind::kRegistered, .device = 1};
  EXPECT_EQ(Copies::kind_of(here, there), CopyKind::kPeer);
  EXPECT_EQ(Copies::kind_of(there, there), CopyKind::kDevice);
  EXPECT_EQ(Copies::kind_of(here, host), CopyKind::kUpload);
  EXPECT_EQ(Copies::kind_of(host, here), CopyKind::kDownload);
}

TEST_F(CopiesTest, AnUploadInARecordGoesAtOnce) {
  wire::tubeCopyInline copy{};
  copy.stream = kStream;
  copy.dst = device;
  expect_one(CopyKind::kInline, with(copy, &wire::tubeCopyInline::data, std::string(24, 'x')),
             {"upload"}, 24);
}

TEST_F(CopiesTest, AStagedPieceHandsItsChunkOn) {
  wire::tubeCopyChunk copy{};
  copy.stream = kStream;
  copy.chunk = 2;
  copy.bytes = 100;
  copy.dptr = device;
  expect_one(CopyKind::kStagedUp, copy, {"upload", "write"}, 100);
  copy.becomes = wire::ChunkBecomes::kFilled;
  expect_one(CopyKind::kStagedDown, copy, {"download", "write"}, 100);
}

TEST_F(CopiesTest, ADownloadIsAskedForUntilItsChunkIsFilled) {
  const AskedWord& asked = session->copies().asked();
  wire::tubeCopyChunk copy{};
  copy.stream = kStream;
  copy.chunk = 2;
  copy.bytes = 100;
  copy.dptr = device;
  uint64_t& state = client_segment.chunk_state(2);
  shared::store_word(state, abi::kChunkClaimed);
  post(copy);
  EXPECT_FALSE(asked.outstanding()) << "nobody waits for an upload";
  copy.becomes = wire::ChunkBecomes::kFilled;
  post(copy);
  EXPECT_TRUE(asked.outstanding());
  shared::store_word(state, abi::kChunkFilled);
  EXPECT_FALSE(asked.outstanding());
  shared::store_word(state, abi::kChunkFree);
  EXPECT_FALSE(asked.outstanding());
}

TEST_F(CopiesTest, APieceOfNothingOnlyHandsItsChunkOn) {
  wire::tubeCopyChunk copy{};
  copy.stream = kStream;
  copy.chunk = 2;
  copy.dptr = device;
  test::fake().calls.clear();
  post(copy);
  ASSERT_EQ(test::fake().calls.size(), 1u);
  EXPECT_EQ(test::fake().calls[0].substr(0, 5), "write");
  EXPECT_EQ(counts(), before);
}

TEST_F(CopiesTest, AChunkIsNotHandedOnByTheGpuWhenTheDriverRefusesTheCopy) {
  wire::tubeCopyChunk copy{};
  copy.stream = kStream;
  copy.chunk = 2;
  copy.bytes = 100;
  copy.dptr = device;
  copy.becomes = wire::ChunkBecomes::kFilled;
  test::fake().next_launch = CUDA_ERROR_LAUNCH_FAILED;
  test::fake().calls.clear();
  post(copy);
  EXPECT_EQ(test::fake().calls, std::vector<std::string>{"download"});
  EXPECT_EQ(async_error(), static_cast<uint32_t>(CUDA_ERROR_LAUNCH_FAILED));
  EXPECT_EQ(shared::load_word(client_segment.chunk_state(2)), abi::kChunkFilled);
}

TEST_F(CopiesTest, ARegionIsWhatItsEndsAre) {
  const uint64_t array = make_id(1, 1);
  ASSERT_EQ(session->objects().insert(Kind::kArray, array, reinterpret_cast<CUarray>(0x70), 1),
            CUDA_SUCCESS);
  expect_one(CopyKind::kUpload, rows(SideKind::kAddress, device, SideKind::kAddress, pinned),
             {"copy 3D"}, 32);
  expect_one(CopyKind::kDownload, rows(SideKind::kAddress, pinned, SideKind::kArray, array),
             {"copy 3D"}, 32);
  expect_one(CopyKind::kDevice, rows(SideKind::kArray, array, SideKind::kAddress, device),
             {"copy 3D"}, 32);
  wire::tubeCopy3D staged = rows(SideKind::kArray, array, SideKind::kChunk, 3u << 20);
  staged.release_chunk = 3;
  expect_one(CopyKind::kStagedUp, staged, {"copy 3D", "write"}, 32);
  expect_one(CopyKind::kStagedDown, rows(SideKind::kChunk, 3u << 20, SideKind::kArray, array),
             {"copy 3D"}, 32);
}

TEST_F(CopiesTest, WhatTheClientDoesNotOwnIsNotCopied) {
  test::fake().calls.clear();
  post(plain(device, 0x1000, 64));
  post(rows(SideKind::kAddress, device, SideKind::kAddress, 0x1000));
  wire::tubeCopyInline copy{};
  copy.stream = kStream;
  copy.dst = 0x1000;
  post(with(copy, &wire::tubeCopyInline::data, std::string(24, 'x')));
  EXPECT_EQ(async_error(), static_cast<uint32_t>(CUDA_ERROR_INVALID_VALUE));
  EXPECT_EQ(test::fake().calls, std::vector<std::string>{});
  EXPECT_EQ(counts(), before);
}

}  // namespace
}  // namespace tube::proxy
