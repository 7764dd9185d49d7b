// Which copies of one context keep which others waiting: native, without Tube.
//
//   rules [SECONDS [streams]]   seconds for each row (default 0.3); streams: only what a stream
//                               that has copied can do
//
// One thread keeps copies of one kind in flight on a stream of its own (the bulk); another does one
// copy after the other on a second stream and waits for each (the victim). A victim that has not
// ended when its row's time is over is "starved": the bulk then stops, and the row says how long
// the victim took. What the copy engine (proxy/) is built on is measured here.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bench/copies/samples.h"

namespace {

using bench::now_ns;
using bench::Samples;

constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr size_t kBulkBytes = 256 * kMiB;
double row_seconds = 0.3;

struct Memory {
  CUdeviceptr device = 0;
  std::byte* pinned = nullptr;
  explicit Memory(size_t bytes) {
    CU(cuMemAlloc(&device, bytes));
    void* host = nullptr;
    CU(cuMemAllocHost(&host, bytes));
    std::memset(host, 1, bytes);
    pinned = static_cast<std::byte*>(host);
  }
};

CUcontext context;
Memory* bulk_memory;
Memory* victim_memory;
std::vector<std::byte> pageable(kBulkBytes);

CUstream new_stream() {
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

enum class Way { kUp, kDown, kPageableUp };

void copy(Way way, const Memory& memory, size_t offset, size_t bytes, CUstream stream) {
  const CUdeviceptr device = memory.device + offset;
  std::byte* host = memory.pinned + offset;
  if (way == Way::kUp) CU(cuMemcpyHtoDAsync(device, host, bytes, stream));
  if (way == Way::kDown) CU(cuMemcpyDtoHAsync(host, device, bytes, stream));
  if (way == Way::kPageableUp) CU(cuMemcpyHtoDAsync(device, pageable.data(), bytes, stream));
}

// What the bulk thread does until it is told to stop; returns the bytes that it moved.
using Bulk = std::function<size_t(const std::atomic<bool>& stop)>;

// Pieces of `bytes`, `ahead` of them in flight.
Bulk pieces(Way way, size_t bytes, int ahead) {
  return [=](const std::atomic<bool>& stop) {
    CU(cuCtxSetCurrent(context));
    CUstream stream = new_stream();
    std::vector<CUevent> ends(static_cast<size_t>(ahead));
    for (CUevent& end : ends) CU(cuEventCreate(&end, CU_EVENT_DISABLE_TIMING));
    size_t moved = 0, number = 0;
    while (!stop.load()) {
      CUevent end = ends[number++ % ends.size()];
      CU(cuEventSynchronize(end));  // of an event that was never recorded: at once
      copy(way, *bulk_memory, moved % kBulkBytes, bytes, stream);
      CU(cuEventRecord(end, stream));
      moved += bytes;
    }
    CU(cuStreamSynchronize(stream));
    CU(cuStreamDestroy(stream));
    return moved;
  };
}

// Graphs of `nodes` copies in a chain, two graphs in flight.
Bulk graphs(size_t bytes, int nodes) {
  return [=](const std::atomic<bool>& stop) {
    CU(cuCtxSetCurrent(context));
    CUstream stream = new_stream();
    CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < nodes; ++i) copy(Way::kUp, *bulk_memory, i * bytes, bytes, stream);
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CU(cuStreamEndCapture(stream, &graph));
    CU(cuGraphInstantiate(&exec, graph, 0));
    CUevent ends[2];
    for (CUevent& end : ends) CU(cuEventCreate(&end, CU_EVENT_DISABLE_TIMING));
    size_t moved = 0, number = 0;
    while (!stop.load()) {
      CUevent end = ends[number++ % 2];
      CU(cuEventSynchronize(end));
      CU(cuGraphLaunch(exec, stream));
      CU(cuEventRecord(end, stream));
      moved += bytes * static_cast<size_t>(nodes);
    }
    CU(cuStreamSynchronize(stream));
    CU(cuGraphExecDestroy(exec));
    CU(cuGraphDestroy(graph));
    CU(cuStreamDestroy(stream));
    return moved;
  };
}

// One row: the victim's times, the bulk's rate, and whether it was starved.
void row(const char* beside, const Bulk& bulk, const char* name, Way way, size_t bytes) {
  std::atomic<bool> stop{false};
  std::atomic<int64_t> moved{0}, spent{1};
  const int64_t begin = now_ns();
  std::thread other;
  if (bulk)
    other = std::thread([&] {
      const size_t all = bulk(stop);
      moved = static_cast<int64_t>(all);
      spent = now_ns() - begin;
    });
  CUstream stream = new_stream();
  CUevent end = nullptr;
  CU(cuEventCreate(&end, CU_EVENT_DISABLE_TIMING));
  while (now_ns() - begin < 20'000'000) std::this_thread::yield();
  Samples samples;
  bool starved = false;
  const auto limit = begin + static_cast<int64_t>(row_seconds * 1e9);
  while (now_ns() < limit) {
    const int64_t at = now_ns();
    copy(way, *victim_memory, 0, bytes, stream);
    CU(cuEventRecord(end, stream));
    while (cuEventQuery(end) == CUDA_ERROR_NOT_READY) {
      if (!starved && now_ns() > limit + 50'000'000) {
        starved = true;
        stop = true;
      }
    }
    samples.add(now_ns() - at);
  }
  stop = true;
  if (other.joinable()) other.join();
  std::printf(
      "%-26s %-16s %7.0f KiB  %6zu times  p50 %8.1f  p99 %8.1f  max %8.1f us  bulk %5.1f GB/s%s\n",
      beside, name, static_cast<double>(bytes) / kKiB, samples.count(), samples.at(0.5),
      samples.at(0.99), samples.at(1),
      static_cast<double>(moved) / static_cast<double>(spent.load()), starved ? "  STARVED" : "");
  std::fflush(stdout);
  CU(cuEventDestroy(end));
  CU(cuStreamDestroy(stream));
}

const char* word(Way way) {
  return way == Way::kUp ? "to the GPU" : way == Way::kDown ? "from the GPU" : "pageable up";
}

void sizes_that_starve() {
  std::printf("# sizes beside two pieces of 4 MiB in flight\n");
  for (Way way : {Way::kUp, Way::kDown, Way::kPageableUp}) {
    const Bulk bulk = pieces(way == Way::kDown ? Way::kDown : Way::kUp, 4 * kMiB, 2);
    for (size_t kib : {1, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64})
      row("2 x 4 MiB", bulk, word(way), way, kib * kKiB);
  }
}

void one_in_flight() {
  std::printf("# beside one piece in flight\n");
  for (size_t mib : {1, 2, 4, 8})
    for (size_t kib : {16, 64, 8192})
      row(("1 x " + std::to_string(mib) + " MiB").c_str(), pieces(Way::kUp, mib * kMiB, 1),
          word(Way::kUp), Way::kUp, kib * kKiB);
}

void copy_nodes() {
  std::printf("# beside copy nodes of graphs\n");
  for (size_t kib : {16, 64, 8192}) {
    row("graph of 64 x 4 MiB", graphs(4 * kMiB, 64), word(Way::kUp), Way::kUp, kib * kKiB);
    row("graph of 1 x 256 MiB", graphs(256 * kMiB, 1), word(Way::kUp), Way::kUp, kib * kKiB);
    row("graph of 1 x 4 MiB", graphs(4 * kMiB, 1), word(Way::kUp), Way::kUp, kib * kKiB);
  }
}

void bulk_of_small_and_pageable() {
  std::printf("# beside many small copies, and pageable ones\n");
  for (size_t kib : {16, 64, 256, 1024}) {
    row(("16 x " + std::to_string(kib) + " KiB").c_str(), pieces(Way::kUp, kib * kKiB, 16),
        word(Way::kUp), Way::kUp, 8 * kMiB);
    row(("2 x " + std::to_string(kib) + " KiB").c_str(), pieces(Way::kUp, kib * kKiB, 2),
        word(Way::kUp), Way::kUp, 8 * kMiB);
  }
  row("pageable 64 MiB", pieces(Way::kPageableUp, 64 * kMiB, 2), word(Way::kUp), Way::kUp,
      8 * kMiB);
}

// What a stream did last, before the bulk began, and waited for.
enum class Last { kNothing, kUp, kDown, kUpThenMemset, kUpThenWrite };
// What is asked of it beside the bulk, with an event behind it.
enum class Asked { kEvent, kWrite, kWait, kMemset, kHostCall };

struct Words {
  CUdeviceptr device = 0;
  Words() {
    void* host = nullptr;
    CU(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    CU(cuMemHostGetDevicePointer(&device, host, 0));
  }
};

CUevent new_event() {
  CUevent event = nullptr;
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  return event;
}

void ask(Asked asked, CUstream stream, CUevent idle, const Words& words) {
  if (asked == Asked::kWrite) CU(cuStreamWriteValue32(stream, words.device, 1, 0));
  if (asked == Asked::kWait) CU(cuStreamWaitEvent(stream, idle, 0));
  if (asked == Asked::kMemset) CU(cuMemsetD32Async(victim_memory->device, 1, 1, stream));
  if (asked == Asked::kHostCall)
    CU(cuLaunchHostFunc(
        stream, [](void*) {}, nullptr));
}

// One row: how long until an event behind what is asked has happened, beside two pieces of 4 MiB in
// flight. At most three samples: each that is kept waiting takes the rest of the row's time.
void stream_row(const char* last_name, Last last, const char* asked_name, Asked asked,
                const Words& words) {
  CUstream stream = new_stream(), other = new_stream();
  CUevent idle = new_event(), end = new_event();
  CU(cuMemsetD32Async(victim_memory->device, 0, 1, other));
  CU(cuEventRecord(idle, other));
  const bool copied = last != Last::kNothing;
  if (copied) copy(last == Last::kDown ? Way::kDown : Way::kUp, *victim_memory, 0, kMiB, stream);
  if (last == Last::kUpThenMemset) ask(Asked::kMemset, stream, idle, words);
  if (last == Last::kUpThenWrite) ask(Asked::kWrite, stream, idle, words);
  CU(cuCtxSynchronize());
  std::atomic<bool> stop{false};
  std::thread bulk([&] { pieces(Way::kUp, 4 * kMiB, 2)(stop); });
  const int64_t begin = now_ns();
  while (now_ns() - begin < 20'000'000) std::this_thread::yield();
  Samples samples;
  bool starved = false;
  for (int i = 0; i < 20 && !starved; ++i) {
    const int64_t at = now_ns();
    ask(asked, stream, idle, words);
    CU(cuEventRecord(end, stream));
    while (cuEventQuery(end) == CUDA_ERROR_NOT_READY) {
      if (!starved && now_ns() - begin > 150'000'000) stop = starved = true;
    }
    samples.add(now_ns() - at);
  }
  stop = true;
  bulk.join();
  std::printf("after %-22s %-12s %4zu times  p50 %10.1f  max %10.1f us%s\n", last_name, asked_name,
              samples.count(), samples.at(0.5), samples.at(1), starved ? "  STARVED" : "");
  std::fflush(stdout);
  for (CUevent event : {idle, end}) CU(cuEventDestroy(event));
  for (CUstream each : {stream, other}) CU(cuStreamDestroy(each));
}

void streams_that_copied() {
  std::printf("# what a stream can do beside two pieces of 4 MiB to the GPU in flight\n");
  const Words words;
  const std::pair<const char*, Last> lasts[] = {{"nothing", Last::kNothing},
                                                {"a copy up", Last::kUp},
                                                {"a copy down", Last::kDown},
                                                {"a copy up, a memset", Last::kUpThenMemset},
                                                {"a copy up, a write", Last::kUpThenWrite}};
  const std::pair<const char*, Asked> all[] = {{"event", Asked::kEvent},
                                               {"write", Asked::kWrite},
                                               {"wait", Asked::kWait},
                                               {"memset", Asked::kMemset},
                                               {"host call", Asked::kHostCall}};
  for (const auto& [last_name, last] : lasts)
    for (const auto& [asked_name, asked] : all)
      stream_row(last_name, last, asked_name, asked, words);
}

// What the end of a copy costs to mark: copy and synchronise, with nothing, an event, a write.
void marks() {
  std::printf("# one copy and cuStreamSynchronize, alone; with a mark in between (us)\n");
  CUstream stream = new_stream();
  CUevent event = nullptr;
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CUdeviceptr word_at = 0;
  void* words = nullptr;
  CU(cuMemHostAlloc(&words, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  CU(cuMemHostGetDevicePointer(&word_at, words, 0));
  for (size_t kib : {4, 16, 64, 256, 1024, 4096, 16384}) {
    double median[4];
    for (int kind = 0; kind < 4; ++kind) {
      Samples samples;
      for (uint32_t i = 0; i < 400; ++i) {
        const int64_t at = now_ns();
        copy(Way::kUp, *victim_memory, 0, kib * kKiB, stream);
        if (kind == 1 || kind == 3) CU(cuEventRecord(event, stream));
        if (kind == 2) CU(cuStreamWriteValue32(stream, word_at, i, 0));
        if (kind == 3) {
          while (cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
          }
        } else {
          CU(cuStreamSynchronize(stream));
        }
        samples.add(now_ns() - at);
      }
      median[kind] = samples.at(0.5);
    }
    std::printf("%6zu KiB  plain %8.2f  event %8.2f  write %8.2f  event polled %8.2f\n", kib,
                median[0], median[1], median[2], median[3]);
  }
}

// A lane: pieces through one stream, `ahead` in flight, ends told by event queries or by words.
void lane() {
  std::printf("# 2 GiB in pieces through one stream, told by events or by words\n");
  CUstream stream = new_stream();
  CUdeviceptr words_at = 0;
  void* words = nullptr;
  CU(cuMemHostAlloc(&words, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  CU(cuMemHostGetDevicePointer(&words_at, words, 0));
  auto* done = static_cast<volatile uint32_t*>(words);
  for (size_t mib : {1, 2, 4, 8})
    for (uint32_t ahead : {1u, 2u, 3u}) {
      *done = 0;
      const int64_t begin = now_ns();
      const auto count = static_cast<uint32_t>(2048 / mib);
      for (uint32_t i = 0; i < count; ++i) {
        while (i - *done >= ahead) {
        }
        copy(Way::kUp, *bulk_memory, (i * mib * kMiB) % kBulkBytes, mib * kMiB, stream);
        CU(cuStreamWriteValue32(stream, words_at, i + 1, 0));
      }
      CU(cuStreamSynchronize(stream));
      std::printf("%zu MiB, %u in flight: %.1f GB/s\n", mib, ahead,
                  2048.0 * kMiB / static_cast<double>(now_ns() - begin));
    }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) row_seconds = std::atof(argv[1]);
  CU(cuInit(0));
  CUdevice device = 0;
  CU(cuDeviceGet(&device, 0));
  CU(cuDevicePrimaryCtxRetain(&context, device));
  CU(cuCtxSetCurrent(context));
  Memory bulk(kBulkBytes), victim(16 * kMiB);
  bulk_memory = &bulk;
  victim_memory = &victim;
  if (argc > 2 && std::strcmp(argv[2], "streams") == 0) {
    streams_that_copied();
    return 0;
  }
  marks();
  lane();
  row("nothing", nullptr, word(Way::kUp), Way::kUp, 8 * kMiB);
  sizes_that_starve();
  one_in_flight();
  copy_nodes();
  bulk_of_small_and_pageable();
  streams_that_copied();
  return 0;
}
