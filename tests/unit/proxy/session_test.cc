// A session fed through its real ring, over a driver that does nothing: what it accepts, refuses
// and gives back.
#include <algorithm>
#include <new>
#include <random>
#include <stdexcept>
#include <thread>

#include "proxy/copy/copy_engine.h"
#include "proxy/memory/pinned_pools.h"
#include "tests/unit/proxy/session_fixture.h"

namespace tube::proxy {
namespace {

TEST_F(SessionTest, AnswersAndCounts) {
  EXPECT_NE(allocate(1000), 0u);
  EXPECT_EQ(session->stats().records.load(), 1u);
  EXPECT_EQ(session->stats().round_trips.load(), 1u);
  EXPECT_EQ(session->stats().calls[static_cast<uint32_t>(wire::Call::tubeMemAlloc)].load(), 1u);
}

TEST_F(SessionTest, AFailedPostedCallLeavesItsErrorAndTheFirstOneWins) {
  wire::tubeStreamDestroy destroy{};
  destroy.stream = make_id(5, 1);
  post(destroy);
  wire::tubeMemFree free{};
  free.dptr = 0x1234;
  post(free);
  const shared::AsyncError error = shared::client_takes_async_error(client_segment.header());
  EXPECT_EQ(error.error, static_cast<uint32_t>(CUDA_ERROR_INVALID_HANDLE));
  EXPECT_EQ(error.call, static_cast<uint32_t>(wire::Call::tubeStreamDestroy));
  EXPECT_EQ(error.sequence, 1u);
  EXPECT_FALSE(session->poisoned());
}

TEST_F(SessionTest, AnExceptionCostsTheCallOnly) {
  driver.cuStreamCreateWithPriority = [](CUstream*, unsigned, int) -> CUresult {
    throw std::bad_alloc();
  };
  const auto works = driver.cuMemCreate;
  driver.cuMemCreate = [](CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*,
                          unsigned long long) -> CUresult { throw std::length_error("long"); };
  wire::tubeStreamCreate create{};
  create.stream = make_id(5, 1);
  post(create);
  EXPECT_EQ(async_error(), static_cast<uint32_t>(CUDA_ERROR_OUT_OF_MEMORY));
  wire::tubeMemAlloc alloc{};
  alloc.bytes = 1000;
  wire::tubeMemAlloc_reply reply{};
  EXPECT_EQ(call(alloc, &reply), CUDA_ERROR_OUT_OF_MEMORY);
  driver.cuMemCreate = works;
  EXPECT_FALSE(session->poisoned());
  EXPECT_NE(allocate(1000), 0u);
}

TEST_F(SessionTest, AnExceptionAtTheEndLeavesTheRestToTheNextProxy) {
  wire::tubeStreamCreate create{};
  create.stream = make_id(5, 1);
  post(create);
  driver.cuStreamDestroy_v2 = [](CUstream) -> CUresult { throw std::bad_alloc(); };
  session->teardown_for_test();
  EXPECT_TRUE(session->abandoned());
}

TEST_F(SessionTest, CopiesStayInsideWhatTheClientOwns) {
  const uint64_t a = allocate(4096);
  wire::tubeCopy copy{};
  copy.dst = a;
  copy.src = a + 2048;
  copy.bytes = 2048;
  post(copy);
  EXPECT_EQ(async_error(), 0u);
  for (auto [dst, src, bytes] : {std::array<uint64_t, 3>{a, a + 2048, 2049},
                                 {0x1000, a, 16},
                                 {a, 0x7fff0000, 16},
                                 {a, a, ~0ull}}) {
    copy.dst = dst;
    copy.src = src;
    copy.bytes = bytes;
    post(copy);
    EXPECT_EQ(async_error(), static_cast<uint32_t>(CUDA_ERROR_INVALID_VALUE));
  }
}

TEST_F(SessionTest, HostileRegionsDoNotOverflow) {
  const uint64_t a = allocate(1 << 20);
  wire::tubeCopy3D copy{};
  copy.src = copy.dst = a;
  copy.release_chunk = 0xffffffffu;
  for (uint64_t big : {~0ull, 1ull << 63, 1ull << 59, 1ull << 32}) {
    for (uint64_t* field : {&copy.src_pitch, &copy.src_height, &copy.src_origin[2], &copy.extent[0],
                            &copy.extent[1], &copy.extent[2]}) {
      copy.extent[0] = copy.extent[1] = copy.extent[2] = 2;
      copy.src_pitch = copy.dst_pitch = 2;
      copy.src_height = copy.dst_height = 2;
      copy.src_origin[2] = 0;
      *field = big;
      post(copy);
      EXPECT_NE(async_error(), 0u);
    }
  }
  wire::tubeMemset set{};
  set.dst = a;
  set.element_bytes = 4;
  set.width = 1ull << 62;
  set.height = 1ull << 62;
  post(set);
  EXPECT_EQ(async_error(), static_cast<uint32_t>(CUDA_ERROR_INVALID_VALUE));
}

// 512 slices of 2^59 rows of 2^60 bytes are nothing modulo 2^128.
TEST_F(SessionTest, ARegionWhoseProductsWrapIsRefused) {
  const uint64_t a = allocate(1 << 20);
  for (const bool source : {true, false}) {
    wire::tubeCopy3D copy{};
    copy.src = copy.dst = a;
    copy.release_chunk = 0xffffffffu;
    copy.extent[0] = 64;
    copy.extent[1] = 1;
    copy.extent[2] = 2;
    copy.src_pitch = copy.dst_pitch = 64;
    copy.src_height = copy.dst_height = 1;
    (source ? copy.src_pitch : copy.dst_pitch) = 1ull << 60;
    (source ? copy.src_height : copy.dst_height) = 1ull << 59;
    (source ? copy.src_origin : copy.dst_origin)[2] = 511;
    post(copy);
    EXPECT_EQ(async_error(), static_cast<uint32_t>(CUDA_ERROR_INVALID_VALUE));
  }
}

TEST_F(SessionTest, AChunkComesBackWhenItsCopyCannotBeIssued) {
  client_segment.chunk_state(3) = abi::kChunkClaimed;
  wire::tubeCopyChunk copy{};
  copy.chunk = 3;
  copy.bytes = 64;
  copy.dptr = 0x1000;
  post(copy);
  EXPECT_EQ(async_error(), static_cast<uint32_t>(CUDA_ERROR_INVALID_VALUE));
  EXPECT_EQ(shared::load_word(client_segment.chunk_state(3)), abi::kChunkFree);
}

TEST_F(SessionTest, WordAndChunkIndicesAreChecked) {
  wire::tubeSignal signal{};
  signal.word = abi::kWordCount;
  post(signal);
  EXPECT_EQ(async_error(), static_cast<uint32_t>(CUDA_ERROR_INVALID_VALUE));
  wire::tubeCopyChunk copy{};
  copy.chunk = abi::kChunkCount;
  post(copy);
  EXPECT_EQ(async_error(), static_cast<uint32_t>(CUDA_ERROR_INVALID_VALUE));
}

TEST_F(SessionTest, LaterChunksAreRefusedUntilAskedFor) {
  const uint64_t device = allocate(4096);
  wire::tubeCopyChunk copy{};
  copy.chunk = abi::kFirstChunks;
  copy.bytes = 16;
  copy.dptr = device;
  post(copy);
  EXPECT_EQ(async_error(), static_cast<uint32_t>(CUDA_ERROR_INVALID_VALUE));
  EXPECT_EQ(ask_for_chunks(), CUDA_ERROR_NOT_READY);
  session->copies().more_chunks().finish();
  EXPECT_EQ(ask_for_chunks(), CUDA_SUCCESS);
  EXPECT_EQ(ask_for_chunks(), CUDA_SUCCESS);
  EXPECT_EQ(session->copies().chunks(), abi::kChunkCount);
  post(copy);
  EXPECT_EQ(async_error(), 0u);
  copy.bytes = abi::kLaterChunkBytes + 1;
  post(copy);
  EXPECT_EQ(async_error(), static_cast<uint32_t>(CUDA_ERROR_INVALID_VALUE));
}

TEST_F(SessionTest, LaterChunksThatTheDriverRefusesStayRefused) {
  driver.cuMemHostRegister_v2 = [](void*, size_t, unsigned) { return CUDA_ERROR_OUT_OF_MEMORY; };
  EXPECT_EQ(ask_for_chunks(), CUDA_ERROR_NOT_READY);
  session->copies().more_chunks().finish();
  EXPECT_EQ(ask_for_chunks(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(ask_for_chunks(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(session->copies().chunks(), abi::kFirstChunks);
}

// The end of a copy is marked when the session has nothing else to do.
TEST_F(SessionTest, AMarkForWhichThereIsNoMemoryEndsItsSessionAlone) {
  CopyEngine engine(driver, gpus,
                    {.use = policies::LaneUse::kAuto, .links_path = "", .workflow = ""});
  shared.copies = &engine;
  restart();
  driver.cuMemcpyDtoHAsync_v2 = [](void*, CUdeviceptr, size_t, CUstream) { return CUDA_SUCCESS; };
  driver.cuEventRecord = [](CUevent, CUstream) -> CUresult { throw std::bad_alloc(); };
  wire::tubeCopyChunk download{};
  download.bytes = 8;
  download.dptr = allocate(64);
  download.stream = wire::kLegacyStream;
  download.becomes = wire::ChunkBecomes::kFilled;
  post(download);
  ASSERT_TRUE(session->copies().unmarked());
  ASSERT_TRUE(session->start().ok());
  while (!session->poisoned()) std::this_thread::yield();
  session.reset();
  shared.copies = nullptr;
}

// A small synchronous upload's call returns before the GPU has the bytes, so later work of every
// stream waits for them, once.
TEST_F(SessionTest, OtherStreamsWaitForAnUploadOnTheLegacyStreamOnce) {
  create_stream(make_id(1, 1), CU_STREAM_NON_BLOCKING);
  create_stream(make_id(2, 1));
  const uint64_t a = allocate(64);
  wire::tubeCopyChunk upload{};
  upload.bytes = 8;
  upload.dptr = a;
  upload.stream = wire::kLegacyStream;
  upload.left = 1;
  wire::tubeCopy copy{};
  copy.dst = copy.src = a;
  copy.bytes = 8;
  const auto calls_of = [&](uint64_t stream) {
    test::fake().calls.clear();
    copy.stream = stream;
    post(copy);
    std::string all;
    for (const std::string& call : test::fake().calls) all += call.substr(0, 4);
    return all;
  };
  EXPECT_EQ(calls_of(make_id(1, 1)), "copy");
  post(upload);
  post(upload);
  EXPECT_EQ(calls_of(make_id(1, 1)), "waitcopy");
  EXPECT_EQ(calls_of(make_id(1, 1)), "copy");
  EXPECT_EQ(calls_of(make_id(2, 1)),
            "recowaitcopy");  // a blocking one is ordered behind the legacy stream anyway
  EXPECT_EQ(calls_of(wire::kLegacyStream), "recowaitcopy");
  EXPECT_EQ(calls_of(make_id(1, 1)), "copy");
  upload.stream = make_id(2, 1);  // its order is the program's business
  post(upload);
  EXPECT_EQ(calls_of(make_id(1, 1)), "copy");
  upload.stream = wire::kLegacyStream;
  upload.left = 0;  // of an asynchronous call, or of one that waits
  post(upload);
  EXPECT_EQ(calls_of(make_id(1, 1)), "copy");
  EXPECT_EQ(async_error(), 0u);
}

// It may be another context's than the memory's, whose streams the client has waited for.
TEST_F(SessionTest, AFreeWaitsForAnUploadOnTheLegacyStreamOnce) {
  wire::tubeCopyChunk upload{};
  upload.bytes = 8;
  upload.stream = wire::kLegacyStream;
  const auto waits_of_free = [&](uint64_t address) {
    test::fake().calls.clear();
    wire::tubeMemFree free{};
    free.dptr = address;
    post(free);
    return std::count(test::fake().calls.begin(), test::fake().calls.end(), "event waited for");
  };
  const uint64_t a = allocate(64), b = allocate(64), c = allocate(64);
  upload.dptr = a;
  post(upload);
  EXPECT_EQ(waits_of_free(a), 0) << "its call waits";
  upload.dptr = b;
  upload.left = 1;
  post(upload);
  EXPECT_EQ(waits_of_free(b), 1);
  EXPECT_EQ(waits_of_free(c), 0);
  EXPECT_EQ(async_error(), 0u);
}

// A thread of the program waits for work from before the capture: its looks must not break it.
TEST_F(SessionTest, AStreamThatCapturesIsNotAsked) {
  const uint64_t id = make_id(1, 1);
  create_stream(id);
  wire::tubeStreamProbe probe{};
  probe.stream = id;
  wire::tubeStreamProbe_reply reply{};
  EXPECT_EQ(call(probe, &reply), CUDA_SUCCESS);
  test::fake().capturing = session->objects().find(Kind::kStream, id)->handle<CUstream>();
  session->contexts().capture_started();
  EXPECT_EQ(call(probe, &reply), CUDA_ERROR_NOT_READY);
  session->contexts().capture_ended();
  test::fake().capturing = nullptr;
  EXPECT_EQ(call(probe, &reply), CUDA_SUCCESS);
}

TEST_F(SessionTest, AnUnknownCallEndsTheSession) {
  post_bytes(0xfffff, nullptr, 0);
  EXPECT_TRUE(session->poisoned());
  EXPECT_EQ(shared::client_load_proxy_state(client_segment.header()), abi::ProxyState::kPoisoned);
}

TEST_F(SessionTest, ATruncatedRecordEndsTheSession) {
  const uint64_t half = 0;
  post_bytes(static_cast<uint32_t>(wire::Call::tubeCopy), &half, sizeof(half));
  EXPECT_TRUE(session->poisoned());
}

TEST_F(SessionTest, AnUnknownContextIsRefused) {
  const wire::tubeMemFree free{};
  post_bytes(static_cast<uint32_t>(wire::Call::tubeMemFree), &free, sizeof(free), 77);
  EXPECT_EQ(async_error(), static_cast<uint32_t>(CUDA_ERROR_INVALID_CONTEXT));
}

TEST_F(SessionTest, LegacyWorkWaitsForBlockingStreamsOfTheSameContextOnly) {
  create_stream(make_id(1, 1));
  const uint64_t a = allocate(64);
  wire::tubeCopy copy{};
  copy.dst = copy.src = a;
  copy.bytes = 8;
  copy.stream = make_id(1, 1);
  post(copy);
  test::fake().calls.clear();
  copy.stream = wire::kLegacyStream;
  post(copy);
  ASSERT_EQ(test::fake().calls.size(), 3u);
  EXPECT_EQ(test::fake().calls[0].substr(0, 6), "record");
  EXPECT_EQ(test::fake().calls[1].substr(0, 4), "wait");
  EXPECT_EQ(test::fake().calls[2].substr(0, 4), "copy");
}

TEST_F(SessionTest, DestroyingAContextFreesWhatWasMadeInIt) {
  make_stream_in_a_created_context();
  EXPECT_EQ(session->object_count(Kind::kStream), 1u);
  wire::tubeContextDestroy destroy{};
  destroy.number = wire::kFirstCreatedContext;
  post(destroy);
  EXPECT_EQ(async_error(), 0u);
  EXPECT_EQ(session->object_count(Kind::kStream), 0u);
  EXPECT_EQ(test::fake().live_streams, 0);
}

// What the streams of a context did when it was freed may still write to the memory when the client
// is gone, and no stream is left that would tell.
TEST_F(SessionTest, PinnedMemoryThatLostWorkMayUseServesNoOther) {
  PinnedPools pools(driver, gpus, {256u << 20}, {});
  shared.pinned = &pools;
  shared.ended = [](uint64_t) {};
  shared.teardown_ms = 1;
  for (const bool lost : {false, true}) {
    restart();
    make_stream_in_a_created_context();
    wire::tubePinnedAlloc pinned{};
    pinned.bytes = 1u << 20;
    wire::tubePinnedAlloc_reply reply{};
    ASSERT_EQ(call(pinned, &reply), CUDA_SUCCESS);
    test::fake().stream_busy = lost;
    wire::tubeContextDestroy destroy{};
    destroy.number = wire::kFirstCreatedContext;
    post(destroy);
    test::fake().stream_busy = false;
    session->end();
    const std::shared_ptr<PinnedPool> left = session->take_pinned_remains();
    ASSERT_NE(left, nullptr);
    EXPECT_EQ(left->reusable(), !lost);
    pools.remove(*left);
    left->close();
  }
  session.reset();
}

TEST_F(SessionTest, TheEndGivesEverythingBack) {
  for (uint32_t i = 1; i <= 10; ++i) {
    create_stream(make_id(i, 1), i & 1);
    wire::tubeEventCreate event{};
    event.event = make_id(i, 1);
    post(event);
    allocate(uint64_t{i} << 18);
    wire::tubePinnedAlloc pinned{};
    pinned.bytes = uint64_t{i} << 14;
    wire::tubePinnedAlloc_reply reply{};
    ASSERT_EQ(call(pinned, &reply), CUDA_SUCCESS);
    std::memset(reinterpret_cast<void*>(reply.address), 1, pinned.bytes);
    wire::tubeSignal signal{};  // makes the legacy stand-in
    post(signal);
  }
  EXPECT_EQ(async_error(), 0u);
  session.reset();
  client_socket.reset();
  client_segment = shared::Segment();
  EXPECT_EQ(test::fake().live_streams, 0);
  EXPECT_EQ(test::fake().live_events, 0);
  EXPECT_EQ(test::fake().live_memory, 0);
  EXPECT_EQ(test::fake().registered, 0);
  EXPECT_EQ(map.blocks(), 0u);
  EXPECT_EQ(open_fds(), fds_before);
}

TEST_F(SessionTest, AWaitForAHostFunctionEndsWithItsClient) {
  wire::tubeHostFunc host{};
  host.reached = 1;
  host.done = 2;
  host.value = 41;
  post(host);
  session->teardown_for_test();
  // Stream waits compare cyclically: what is written must count as reached.
  EXPECT_GE(static_cast<int64_t>(shared::load_word(client_segment.word(2)) - 41), 0);
}

TEST_F(SessionTest, ADeadContextAnswersItsErrorForGood) {
  gpus[0].failed = CUDA_ERROR_ILLEGAL_ADDRESS;
  wire::tubeMemFree free{};
  post(free);
  EXPECT_EQ(async_error(), static_cast<uint32_t>(CUDA_ERROR_ILLEGAL_ADDRESS));
  session->store_sticky(CUDA_ERROR_ILLEGAL_ADDRESS, "why");
  EXPECT_EQ(shared::client_load_sticky_error(client_segment.header()),
            static_cast<uint32_t>(CUDA_ERROR_ILLEGAL_ADDRESS));
}

// Every call with random payloads: whatever a client writes, the session answers, refuses or ends,
// and leaves nothing.
TEST_F(SessionTest, RandomPayloadsOfEveryCallLeaveNothingBehind) {
  set_log_level(LogLevel::kError);
  std::mt19937_64 random(20);
  std::vector<uint64_t> payload(64);
  for (uint32_t number = 1; number < wire::kCallCount; ++number) {
    const wire::CallInfo* info = wire::call_info(number);
    if (info == nullptr) continue;
    for (int round = 0; round < 3; ++round) {
      if (session->poisoned()) restart();
      for (uint64_t& word : payload) {
        const uint64_t choice = random();
        word = choice % 4 == 0   ? random()
               : choice % 4 == 1 ? choice >> 60
               : choice % 4 == 2 ? make_id(choice >> 61, 1)
                                 : 0;
      }
      // Ids as sizes are gigabytes, which could be granted and would all be touched.
      if (number == static_cast<uint32_t>(wire::Call::tubePinnedAlloc) && payload[0] >> 40 == 0)
        payload[0] %= 4u << 20;
      const uint32_t bytes = round == 1 && number % 8 == 0
                                 ? 0
                                 : std::min<uint32_t>(info->fixed_bytes + 8 * (round % 3), 512);
      const bool waits = info->lane != wire::Lane::kPost;
      if (waits) shared::client_opens_reply(client_segment.reply(1));
      post_bytes(number, payload.data(), bytes, 1, waits ? 1 : abi::kNoReply);
    }
  }
  session.reset();
  EXPECT_EQ(test::fake().live_streams, 0);
  EXPECT_EQ(test::fake().live_events, 0);
  EXPECT_EQ(test::fake().live_memory, 0);
  EXPECT_EQ(test::fake().registered, 0);
  EXPECT_EQ(map.blocks(), 0u);
}

// What is kept back for a stream of its own, which the test holds.
class HeldSessionTest : public SessionTest {
 protected:
  HeldSessionTest() { hold(); }
  void hold() {
    keys.add(ParkKeys::object(wire::NamedKind::kStream, make_id(90, 1)), true);
    session->parked().hold(keys);
  }
  void let_go() {
    session->parked().let_go(keys);
    session->ask_for_work();  // a nudge
    session->drain_for_test();
  }
  // Posts it with a reply slot, and says whether it was answered.
  template <class X>
  bool answers(const X& x, CUresult* result = nullptr) {
    abi::ReplyHeader& slot = client_segment.reply(1);
    shared::client_opens_reply(slot);
    post_bytes(static_cast<uint32_t>(X::kCall), &x, X::kFixedBytes, 1, 1);
    return was_answered(result);
  }
  bool was_answered(CUresult* result = nullptr) {
    abi::ReplyHeader& slot = client_segment.reply(1);
    if (!shared::client_sees_reply(slot)) return false;
    if (result != nullptr) *result = static_cast<CUresult>(slot.result);
    shared::client_frees_reply(slot);
    return true;
  }
  ParkKeys keys;
};

TEST_F(HeldSessionTest, AnAllocationWaitsForFreesThatAreKeptOnlyWhereItFindsNoMemory) {
  constexpr uint64_t kHalf = 600u << 20;  // of 1 GiB
  const uint64_t first = allocate(kHalf);
  wire::tubeMemFree free{};
  free.dptr = first;
  post(free);
  EXPECT_EQ(session->parked().count(), 1u);
  EXPECT_NE(allocate(4096), 0u);
  EXPECT_NE(allocate(4u << 20), 0u);
  wire::tubeMemAlloc large{};
  large.bytes = kHalf;
  EXPECT_FALSE(answers(large));
  EXPECT_EQ(session->parked().count(), 2u);
  let_go();
  CUresult result = CUDA_ERROR_UNKNOWN;
  EXPECT_TRUE(was_answered(&result));
  EXPECT_EQ(result, CUDA_SUCCESS);
  EXPECT_EQ(session->parked().count(), 0u);
}

TEST_F(HeldSessionTest, MemoryThatCannotComeBackIsRefusedAtOnce) {
  wire::tubeMemAlloc larger{};
  larger.bytes = 2ull << 30;
  CUresult result = CUDA_SUCCESS;
  EXPECT_TRUE(answers(larger, &result));
  EXPECT_EQ(result, CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(HeldSessionTest, WhatIsFreedInKeptRecordsCountsAsFree) {
  constexpr uint64_t kBytes = 64u << 20;
  const uint64_t memory = allocate(kBytes);
  wire::tubeMemGetInfo_reply before{}, after{};
  EXPECT_EQ(call(wire::tubeMemGetInfo{}, &before), CUDA_SUCCESS);
  wire::tubeMemFree free{};
  free.dptr = memory;
  post(free);
  EXPECT_EQ(call(wire::tubeMemGetInfo{}, &after), CUDA_SUCCESS);
  EXPECT_EQ(after.free, before.free + kBytes);
}

TEST_F(HeldSessionTest, AnArrayEndsBehindWhatIsKeptAndItsClientGoesOn) {
  driver.cuArrayCreate_v2 = [](CUarray* array, const CUDA_ARRAY_DESCRIPTOR*) {
    static uintptr_t made = 0;
    *array = reinterpret_cast<CUarray>(made += 16);
    return CUDA_SUCCESS;
  };
  driver.cuArrayDestroy = [](CUarray) { return CUDA_SUCCESS; };
  wire::cuArrayCreate_v2 make{};
  make.pHandle = make_id(4, 1);
  const CUDA_ARRAY_DESCRIPTOR shape{16, 16, CU_AD_FORMAT_FLOAT, 1};
  std::memcpy(make.pAllocateArray, &shape, sizeof(shape));
  wire::cuArrayCreate_v2_reply made{};
  ASSERT_EQ(call(make, &made), CUDA_SUCCESS);
  wire::cuArrayDestroy end{};
  end.hArray = make.pHandle;
  wire::cuArrayDestroy_reply ended{};
  EXPECT_EQ(call(end, &ended), CUDA_SUCCESS);
  EXPECT_EQ(session->object_count(Kind::kArray), 1u);
  make.pHandle = make_id(4, 2);  // its index is the client's again
  EXPECT_EQ(call(make, &made), CUDA_SUCCESS);
  let_go();
  EXPECT_EQ(session->object_count(Kind::kArray), 1u);
  EXPECT_EQ(call(end, &ended), CUDA_ERROR_INVALID_HANDLE);
}

}  // namespace
}  // namespace tube::proxy
