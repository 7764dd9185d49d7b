// What the calls of virtual memory cost while copies are in flight, and what they cost the copies,
// natively: making, mapping, opening, unmapping and giving back memory, piece by piece and for
// several pieces with one call. "again": opening the same pieces once more, mapped anew but not
// made anew, which says what of it is the driver's clearing of new memory.
//
//   bench/holds/mapping      some seconds on a GPU; a line for each traffic and piece
//
// docs/decisions/0032-ways-that-overlap.md rests on its answers. The simulated GPU knows no such
// costs.
#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <thread>
#include <vector>

#include "bench/client/common.h"

namespace {

using bench::now_ns;

constexpr uint64_t kMiB = 1u << 20;
constexpr uint64_t kCopyBytes = 4 * kMiB;
constexpr int kRounds = 24;

double us_since(int64_t begin_ns) { return double(now_ns() - begin_ns) / 1e3; }

CUcontext context = nullptr;

// Copies of one direction without pause, so many in flight.
class Traffic {
 public:
  Traffic(bool up, size_t in_flight) : thread_([this, up, in_flight] { run(up, in_flight); }) {}
  ~Traffic() {
    stop_ = true;
    thread_.join();
  }
  uint64_t bytes() const { return bytes_; }

 private:
  void run(bool up, size_t in_flight) {
    CU(cuCtxSetCurrent(context));
    CUstream stream = nullptr;
    void* host = nullptr;
    CUdeviceptr device = 0;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(cuMemHostAlloc(&host, kCopyBytes, 0));
    CU(cuMemAlloc(&device, kCopyBytes));
    std::vector<CUevent> free(in_flight);
    for (CUevent& event : free) CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    std::deque<CUevent> going;
    while (!stop_) {
      while (!free.empty()) {
        CU(up ? cuMemcpyHtoDAsync(device, host, kCopyBytes, stream)
              : cuMemcpyDtoHAsync(host, device, kCopyBytes, stream));
        CU(cuEventRecord(free.back(), stream));
        going.push_back(free.back());
        free.pop_back();
      }
      while (!going.empty() && cuEventQuery(going.front()) != CUDA_ERROR_NOT_READY) {
        bytes_ += kCopyBytes;
        free.push_back(going.front());
        going.pop_front();
      }
    }
    CU(cuStreamSynchronize(stream));
    for (CUevent event : free) CU(cuEventDestroy(event));
    for (CUevent event : going) CU(cuEventDestroy(event));
    CU(cuMemFree(device));
    CU(cuMemFreeHost(host));
    CU(cuStreamDestroy(stream));
  }

  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> bytes_{0};
  std::thread thread_;
};

struct Times {
  std::vector<double> create, map, access, unmap, again, release;
};

double median(std::vector<double>& times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// `pieces` of so many bytes next to each other; opened and unmapped with one call.
void once(CUdeviceptr at, uint64_t bytes, size_t pieces, Times& times) {
  CUmemAllocationProp made{};
  made.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  made.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  made.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;  // as MemoryMap does
  CUmemAccessDesc open{};
  open.location = made.location;
  open.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  std::vector<CUmemGenericAllocationHandle> handles(pieces);
  int64_t begin = now_ns();
  for (auto& handle : handles) CU(cuMemCreate(&handle, bytes, &made, 0));
  times.create.push_back(us_since(begin));
  begin = now_ns();
  for (size_t i = 0; i < pieces; ++i) CU(cuMemMap(at + i * bytes, bytes, 0, handles[i], 0));
  times.map.push_back(us_since(begin));
  begin = now_ns();
  CU(cuMemSetAccess(at, pieces * bytes, &open, 1));
  times.access.push_back(us_since(begin));
  begin = now_ns();
  CU(cuMemUnmap(at, pieces * bytes));
  times.unmap.push_back(us_since(begin));
  for (size_t i = 0; i < pieces; ++i) CU(cuMemMap(at + i * bytes, bytes, 0, handles[i], 0));
  begin = now_ns();
  CU(cuMemSetAccess(at, pieces * bytes, &open, 1));
  times.again.push_back(us_since(begin));
  CU(cuMemUnmap(at, pieces * bytes));
  begin = now_ns();
  for (const auto handle : handles) CU(cuMemRelease(handle));
  times.release.push_back(us_since(begin));
}

using Traffics = std::vector<const Traffic*>;

uint64_t moved(const Traffics& copies) {
  uint64_t bytes = 0;
  for (const Traffic* each : copies) bytes += each->bytes();
  return bytes;
}

// What the copies carry while `work` is done.
template <class Work>
double gb_s(const Traffics& copies, const Work& work) {
  const uint64_t before = moved(copies);
  const int64_t begin = now_ns();
  work();
  return double(moved(copies) - before) / us_since(begin) / 1e3;
}

void row(const char* traffic, const Traffics& copies, CUdeviceptr at, uint64_t bytes,
         size_t pieces) {
  Times times;
  const double rate = gb_s(copies, [&] {
    for (int round = 0; round < kRounds; ++round) once(at, bytes, pieces, times);
  });
  std::printf("%-6s %4zu x %4lu MiB  %8.0f %8.0f %8.0f %8.0f %8.0f %8.0f %8.1f\n", traffic, pieces,
              static_cast<unsigned long>(bytes / kMiB), median(times.create), median(times.map),
              median(times.access), median(times.unmap), median(times.again), median(times.release),
              rate);
}

void rows(const char* traffic, const Traffics& copies, CUdeviceptr at) {
  const auto wait = [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
  wait(50);
  std::printf("%-6s alone %74.1f\n", traffic, gb_s(copies, [&] { wait(200); }));
  for (const uint64_t mib : {2u, 32u, 64u, 128u, 512u}) row(traffic, copies, at, mib * kMiB, 1);
  row(traffic, copies, at, 32 * kMiB, 4);
  row(traffic, copies, at, 32 * kMiB, 16);
}

}  // namespace

int main() {
  CUdevice device = 0;
  context = bench::enter_first_gpu(&device);
  CUdeviceptr at = 0;
  CU(cuMemAddressReserve(&at, 1024 * kMiB, 0, 0, 0));
  std::printf("us, median of %d; GB/s of the copies meanwhile\n", kRounds);
  std::printf(
      "copies  pieces           create      map   access    unmap    again  release     GB/s\n");
  rows("none", {}, at);
  for (const size_t in_flight : {2u, 4u}) {
    std::printf("%zu copies of 4 MiB in flight each way\n", in_flight);
    {
      const Traffic down(false, in_flight);
      rows("down", {&down}, at);
    }
    const Traffic up(true, in_flight);
    rows("up", {&up}, at);
    const Traffic down(false, in_flight);
    rows("both", {&down, &up}, at);
  }
  CU(cuMemAddressFree(at, 1024 * kMiB));
  CU(cuDevicePrimaryCtxRelease(device));
  return 0;
}
