// What the proxy knows of a record by its number (properties.gen.h), against lists written down
// here: a property that changes in a description changes what the proxy does with every such
// record, so it is changed here too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/properties.gen.h"
#include "protocol/visit.gen.h"
#include "protocol/wire.gen.h"

namespace tube::wire {
namespace {

constexpr uint32_t number(Call call) { return static_cast<uint32_t>(call); }

template <class Holds>
std::set<std::string> calls_where(const Holds& holds) {
  std::set<std::string> names;
  for (uint32_t call = 0; call < kCallCount; ++call) {
    if (call_info(call) != nullptr && holds(properties_of(call))) names.insert(call_name(call));
  }
  return names;
}

std::set<std::string> calls_that_name(bool (*is_one)(const NamedField&)) {
  return calls_where([&](const CallProperties& p) {
    const auto fields = p.named_fields();
    return std::any_of(fields.begin(), fields.end(), is_one);
  });
}

std::set<std::string> calls_with(Orders orders) {
  return calls_where([&](const CallProperties& p) { return p.orders == orders; });
}

TEST(Properties, TheseRecordsEndOnlyTheRunsOfTheStreamThatTheyName) {
  EXPECT_EQ(
      calls_with(Orders::kStream),
      (std::set<std::string>{"tubeLaunch", "tubeSignal", "tubeEventRecord", "tubeStreamWaitEvent",
                             "tubeHostFunc", "tubeCopy", "tubeCopyInline", "tubeCopyChunk",
                             "tubeMemset", "tubeStoreSealBehind", "tubeStoreOrder",
                             "tubeStoreReleaseBehind", "tubeStoreFetch"}));
}

TEST(Properties, TheseRecordsEndNoRuns) {
  EXPECT_EQ(calls_with(Orders::kNone),
            (std::set<std::string>{
                "tubeEventCreate",  "tubeEventDestroy", "tubeMemCut",      "tubeMemLeaseEnd",
                "tubeMayCopy",      "tubeMemTake",      "tubeMoreChunks",  "tubeStoreClaim",
                "tubeStoreDelete",  "tubeStoreExport",  "tubeStoreImport", "tubeStoreImported",
                "tubeStoreLook",    "tubeStoreOpen",    "tubeStoreQueue",  "tubeStoreReady",
                "tubeStoreRelease", "tubeStoreReserve", "tubeStoreSeal",   "tubeStoreWaiting"}));
}

TEST(Properties, EveryOtherRecordAndEveryUnknownNumberEndsAllRuns) {
  const size_t known = calls_with(Orders::kStream).size() + calls_with(Orders::kNone).size();
  size_t calls = 0;
  for (uint32_t call = 0; call < kCallCount; ++call) calls += call_info(call) != nullptr;
  EXPECT_EQ(calls_with(Orders::kAll).size(), calls - known);
  for (const char* name : {"tubeStreamDestroy", "cuGraphLaunch", "tubeMemFree", "tubeUnload",
                           "tubeCopy3D", "cuStreamSetAttribute", "tubeContextDestroy"})
    EXPECT_TRUE(calls_with(Orders::kAll).contains(name)) << name;
  for (uint32_t untrusted : {0u, kCallCount, 0xffffffffu}) {
    EXPECT_EQ(properties_of(untrusted).orders, Orders::kAll);
    EXPECT_TRUE(properties_of(untrusted).needs_gpu);
    EXPECT_EQ(properties_of(untrusted).completes.what, Completes::kNothing);
    EXPECT_TRUE(named_fields(untrusted).empty());
    EXPECT_EQ(properties_of(untrusted).behind, Behind::kAll);
  }
}

TEST(Properties, OnlyOutputIsHadFromAGpuThatHasFailed) {
  for (uint32_t call = 0; call < kCallCount; ++call)
    EXPECT_EQ(properties_of(call).needs_gpu, call != number(Call::tubeCollectOutput)) << call;
}

TEST(Properties, TheseRecordsCompleteAWordOrAChunk) {
  const auto expect = [](Call call, Completes what, size_t index_at, size_t value_at) {
    SCOPED_TRACE(call_name(number(call)));
    const Completion& completes = properties_of(number(call)).completes;
    EXPECT_EQ(completes.what, what);
    EXPECT_EQ(completes.index_at, index_at);
    EXPECT_EQ(completes.value_at, value_at);
  };
  expect(Call::tubeSignal, Completes::kWord, offsetof(tubeSignal, word),
         offsetof(tubeSignal, value));
  expect(Call::tubeEventRecord, Completes::kWord, offsetof(tubeEventRecord, word),
         offsetof(tubeEventRecord, value));
  expect(Call::tubeHostFunc, Completes::kWord, offsetof(tubeHostFunc, reached),
         offsetof(tubeHostFunc, value));
  expect(Call::tubeCopyChunk, Completes::kChunk, offsetof(tubeCopyChunk, chunk),
         offsetof(tubeCopyChunk, becomes));
  expect(Call::tubeCopy3D, Completes::kChunk, offsetof(tubeCopy3D, release_chunk),
         offsetof(tubeCopy3D, becomes));
  size_t count = 0;
  for (uint32_t call = 0; call < kCallCount; ++call)
    count += properties_of(call).completes.what != Completes::kNothing;
  EXPECT_EQ(count, 5u);
}

std::vector<uint16_t> streams_of(Call call) {
  std::vector<uint16_t> offsets;
  for (const NamedField& field : named_fields(number(call))) {
    if (field.kind != NamedKind::kStream) continue;
    offsets.push_back(field.at);
  }
  return offsets;
}

TEST(Properties, StreamFieldsAreWhereTheRecordNamesStreams) {
  using Offsets = std::vector<uint16_t>;
  EXPECT_EQ(streams_of(Call::tubeLaunch), Offsets{offsetof(tubeLaunch, stream)});
  EXPECT_EQ(streams_of(Call::tubeEventRecord), Offsets{offsetof(tubeEventRecord, stream)});
  EXPECT_EQ(streams_of(Call::cuGraphLaunch), Offsets{offsetof(cuGraphLaunch, hStream)});
  EXPECT_EQ(streams_of(Call::tubeExternalSemaphores),
            Offsets{offsetof(tubeExternalSemaphores, stream)});
  EXPECT_EQ(streams_of(Call::cuStreamCopyAttributes),
            (Offsets{offsetof(cuStreamCopyAttributes, dstStream),
                     offsetof(cuStreamCopyAttributes, srcStream)}));
  EXPECT_EQ(streams_of(Call::tubeMemAlloc), Offsets{});
  EXPECT_EQ(streams_of(Call::tubeEventCreate), Offsets{});
}

// What ends or moves something that a record may use without naming it.
TEST(Properties, TheseRecordsStayBehindAllThatAreKeptBack) {
  EXPECT_EQ(calls_where([](const CallProperties& p) { return p.behind == Behind::kAll; }),
            (std::set<std::string>{
                "tubeStoreRelease", "tubeStoreSeal", "tubeUnload", "tubeMemFree", "tubePinnedFree",
                "tubeContextDestroy", "tubePrimaryReset", "tubeHostUnregister", "tubeIpcCloseMem",
                "tubeGraphFree", "tubeExternalFree", "tubeDestroyExternal", "cuMemRelease",
                "cuMemUnmap", "cuFlushGPUDirectRDMAWrites", "cuCtxResetPersistingL2Cache"}));
}

TEST(Properties, TheseRecordsStayBehindTheEndsThatAreKeptBack) {
  EXPECT_EQ(calls_where([](const CallProperties& p) { return p.behind == Behind::kEnds; }),
            (std::set<std::string>{"tubeStoreReserve"}));
}

// What may need the memory that kept records give back, or ends what they may use and is answered
// before.
TEST(Properties, TheseRecordsAreTriedBeforeTheyStay) {
  EXPECT_EQ(calls_where([](const CallProperties& p) { return p.behind == Behind::kTried; }),
            (std::set<std::string>{"tubeLoadImage",
                                   "tubeGetKernel",
                                   "tubeMemAlloc",
                                   "tubePinnedAlloc",
                                   "tubeHostRegister",
                                   "tubeGraphMemory",
                                   "tubeMemGetInfo",
                                   "tubeContextLimit",
                                   "tubeGreenContextCreate",
                                   "tubeImportHandle",
                                   "tubeIpcOpenMem",
                                   "cuArrayCreate_v2",
                                   "cuArray3DCreate_v2",
                                   "cuArrayGetPlane",
                                   "cuMipmappedArrayCreate",
                                   "cuMipmappedArrayGetLevel",
                                   "cuMemAddressReserve",
                                   "cuMemCreate",
                                   "tubeImportExternalMemory",
                                   "tubeImportExternalSemaphore",
                                   "tubeExternalArray",
                                   "tubeExternalBuffer",
                                   "cuMemSetAccess",
                                   "cuArrayDestroy",
                                   "cuMipmappedArrayDestroy",
                                   "cuTexObjectCreate",
                                   "cuSurfObjectCreate",
                                   "cuTexObjectDestroy",
                                   "cuSurfObjectDestroy"}));
}

// Beside the streams that they name.
TEST(Properties, TheseRecordsChangeAnEventAKernelOrAnInstance) {
  const auto changes = [](const NamedField& field) {
    return field.kind != NamedKind::kStream && field.changes;
  };
  EXPECT_EQ(calls_that_name(changes),
            (std::set<std::string>{
                "tubeEventCreate", "tubeEventDestroy", "tubeEventRecord", "tubeGetKernel",
                "tubeKernelSetCacheConfig", "tubeGraphKernelNode", "tubeGraphCopyNode",
                "tubeGraphMemsetNode", "tubeGraphNode", "tubeGraphExecUpdate", "cuGraphExecDestroy",
                "cuGraphLaunch", "cuGraphNodeSetEnabled"}));
}

TEST(Properties, TheseRecordsMakeOrEndAStream) {
  const auto makes_or_ends = [](const NamedField& field) {
    return field.kind == NamedKind::kStream && field.changes;
  };
  EXPECT_EQ(calls_that_name(makes_or_ends),
            (std::set<std::string>{"tubeStreamCreate", "tubeStreamDestroy"}));
}

// Nobody need wait for a kernel to be made: when that is kept back, who uses it is, too.
TEST(Properties, TheseRecordsUseAKernel) {
  const auto kernels = [](const NamedField& field) { return field.kind == NamedKind::kKernel; };
  EXPECT_EQ(calls_that_name(kernels),
            (std::set<std::string>{"tubeGetKernel", "tubeKernelSetAttribute",
                                   "tubeKernelGetAttribute", "tubeKernelSetCacheConfig",
                                   "tubeLaunch", "tubeOccupancy", "tubeGraphKernelNode"}));
}

TEST(Properties, TheseRecordsPutNoWorkIntoTheirStream) {
  EXPECT_EQ(calls_where([](const CallProperties& p) { return p.marks; }),
            (std::set<std::string>{"tubeSignal", "tubeStreamProbe"}));
}

// Fields of ids that are called streams.
struct Streams {
  const std::byte* base;
  std::vector<uint16_t> offsets;

  template <class T>
  void number(const char* name, const T& value, FieldKind kind) {
    const std::string_view text(name);
    const bool is_stream = text.find("stream") != text.npos || text.find("Stream") != text.npos;
    if (kind != FieldKind::kId || !is_stream) return;
    offsets.push_back(static_cast<uint16_t>(reinterpret_cast<const std::byte*>(&value) - base));
  }
  template <class T>
  void choice(const char*, const T&) {}
  template <class T>
  void array(const char*, const T&) {}
  template <class T>
  void opaque(const char*, const T&) {}
  void blob(const char*, const BlobRef&, uint32_t, uint32_t) {}
  void name(const char*, const BlobRef&) {}
};

template <class X>
void expect_all_streams() {
  const X message{};
  Streams found{reinterpret_cast<const std::byte*>(&message), {}};
  visit(message, found);
  EXPECT_EQ(found.offsets, streams_of(X::kCall)) << call_name(number(X::kCall));
}

TEST(Properties, NoFieldThatIsCalledAStreamIsMissing) {
#define TUBE_EXPECT(call) expect_all_streams<call>();
  TUBE_FOR_EACH_CALL(TUBE_EXPECT)
#undef TUBE_EXPECT
}

}  // namespace
}  // namespace tube::wire
