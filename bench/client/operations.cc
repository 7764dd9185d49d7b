#include "bench/client/operations.h"

#include <algorithm>
#include <cstring>

#include "bench/client/common.h"

namespace bench {
namespace {

constexpr uint32_t kBurst =
    256;  // launches of a burst: a quarter of what fits into a stream's queue
constexpr uint32_t kShort = 16;  // calls per sample of what costs no more than the clock

std::string bytes_wrong(const unsigned char* want, const unsigned char* got, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    if (want[i] != got[i])
      return "byte " + std::to_string(i) + " is " + std::to_string(got[i]) + ", should be " +
             std::to_string(want[i]);
  }
  return "";
}

std::string device_wrong(Lane& lane, const unsigned char* want, size_t bytes) {
  std::vector<unsigned char> got(bytes);
  CU(cuMemcpyDtoH(got.data(), lane.data, bytes));
  return bytes_wrong(want, got.data(), bytes);
}

void add_launches(std::vector<Operation>& list) {
  list.push_back({.name = "launch", .body = [](Lane& l) { l.launch(); }, .burst = kBurst});
  // Nobody waits in between: how fast kernels go through, and what the caller feels when the queue
  // is full.
  list.push_back({.name = "launch_flood", .body = [](Lane& l) { l.launch(); }});
  list.push_back(
      {.name = "launch_packed", .body = [](Lane& l) { l.launch_packed(); }, .burst = kBurst});
  list.push_back({.name = "launch_sync",
                  .body =
                      [](Lane& l) {
                        l.launch();
                        l.sync();
                      },
                  .cost = 3});
  list.push_back({.name = "launch_1000_sync",
                  .body =
                      [](Lane& l) {
                        for (int i = 0; i < 1000; ++i) l.launch();
                        l.sync();
                      },
                  .cost = 250});
  list.push_back({.name = "graph_100_launch",
                  .body = [](Lane& l) { l.launch_graph(); },
                  .burst = 4,
                  .cost = 20});
  list.push_back({.name = "graph_100_launch_sync",
                  .body =
                      [](Lane& l) {
                        l.launch_graph();
                        l.sync();
                      },
                  .cost = 20});
  list.push_back({.name = "graph_update_6_launch_sync",
                  .body =
                      [](Lane& l) {
                        l.update_graph();
                        l.sync();
                      },
                  .cost = 5});
  list.push_back({.name = "launch_host_func",
                  .body =
                      [](Lane& l) {
                        l.launch();
                        l.host_func();
                      },
                  .cost = 6});
  // What a jitted step of JAX does around its work.
  list.push_back({.name = "graph_update_6_host_func",
                  .body =
                      [](Lane& l) {
                        l.update_graph();
                        l.host_func();
                      },
                  .cost = 8});
}

std::string check_events(Lane& lane) {
  if (cuEventQuery(lane.end) != CUDA_SUCCESS)
    return "the event is not complete after a synchronise";
  float ms = -1;
  CU(cuEventElapsedTime(&ms, lane.begin, lane.end));
  return ms >= 0 ? lane.check_counter() : "the events lie " + std::to_string(ms) + " ms apart";
}

void record_both(Lane& lane) {
  CU(cuEventRecord(lane.begin, lane.stream));
  lane.launch();
  CU(cuEventRecord(lane.end, lane.stream));
  lane.sync();
}

void query_done(Lane& lane) {
  for (uint32_t i = 0; i < kShort; ++i) CU(cuEventQuery(lane.end));
}

void query_stream(Lane& lane) {
  for (uint32_t i = 0; i < kShort; ++i) CU(cuStreamQuery(lane.stream));
}

void add_events(std::vector<Operation>& list) {
  list.push_back({.name = "event_record",
                  .body = [](Lane& l) { CU(cuEventRecord(l.end, l.stream)); },
                  .burst = kBurst,
                  .verify = check_events,
                  .prepare = record_both});
  list.push_back({.name = "event_query",
                  .body = query_done,
                  .per_sample = kShort,
                  .verify = check_events,
                  .prepare = record_both});
  list.push_back({.name = "event_elapsed",
                  .body =
                      [](Lane& l) {
                        float ms;
                        CU(cuEventElapsedTime(&ms, l.begin, l.end));
                      },
                  .cost = 2,
                  .verify = check_events,
                  .prepare = record_both});
  list.push_back({.name = "event_record_synchronize",
                  .body =
                      [](Lane& l) {
                        CU(cuEventRecord(l.end, l.stream));
                        CU(cuEventSynchronize(l.end));
                      },
                  .cost = 2,
                  .verify = check_events,
                  .prepare = record_both});
  list.push_back({.name = "launch_event_synchronize",
                  .body =
                      [](Lane& l) {
                        l.launch();
                        CU(cuEventRecord(l.end, l.stream));
                        CU(cuEventSynchronize(l.end));
                      },
                  .cost = 3,
                  .verify = check_events,
                  .prepare = record_both});
  list.push_back({.name = "stream_wait_event",
                  .body = [](Lane& l) { CU(cuStreamWaitEvent(l.stream, l.end, 0)); },
                  .burst = kBurst,
                  .verify = check_events,
                  .prepare = record_both});
  list.push_back({.name = "stream_query", .body = query_stream, .per_sample = kShort});
  list.push_back({.name = "stream_synchronize_idle", .body = [](Lane& l) { l.sync(); }});
}

std::string size_name(size_t bytes) {
  return bytes < 1024      ? std::to_string(bytes) + "b"
         : bytes < 1 << 20 ? std::to_string(bytes >> 10) + "k"
                           : std::to_string(bytes >> 20) + "m";
}

// One copy of `bytes`; the synchronous form is the one without a stream.
Operation copy(size_t bytes, bool to_device, bool pinned, bool async) {
  const auto host = [pinned](Lane& lane) { return pinned ? lane.pinned : lane.pageable.data(); };
  Operation op;
  op.name = std::string(to_device ? "h2d_" : "d2h_") + size_name(bytes) +
            (pinned ? "_pinned" : "_pageable") + (async ? "_async" : "");
  op.prepare = [](Lane& lane) { lane.refill(); };
  if (to_device && async)
    op.body = [=](Lane& l) { CU(cuMemcpyHtoDAsync(l.data, host(l), bytes, l.stream)); };
  if (to_device && !async) op.body = [=](Lane& l) { CU(cuMemcpyHtoD(l.data, host(l), bytes)); };
  if (!to_device && async)
    op.body = [=](Lane& l) { CU(cuMemcpyDtoHAsync(host(l), l.data, bytes, l.stream)); };
  if (!to_device && !async) op.body = [=](Lane& l) { CU(cuMemcpyDtoH(host(l), l.data, bytes)); };
  op.verify = [=](Lane& lane) { return device_wrong(lane, host(lane), bytes); };
  op.burst = 32;  // also the synchronous ones: small uploads from pageable memory return before
                  // they are done
  op.cost = bytes >= 1 << 20 ? 40 : bytes >= 65536 ? 8 : 4;
  return op;
}

void add_copies(std::vector<Operation>& list) {
  list.push_back({.name = "memset_async",
                  .body = [](Lane& l) { CU(cuMemsetD8Async(l.data, 0xa5, 4096, l.stream)); },
                  .burst = kBurst,
                  .verify =
                      [](Lane& l) {
                        return device_wrong(l, std::vector<unsigned char>(4096, 0xa5).data(), 4096);
                      },
                  .prepare = [](Lane& l) { l.refill(); }});
  for (size_t bytes : {64ul, 1024ul, 4096ul, 16384ul, 65536ul, 1048576ul}) {
    for (bool to_device : {true, false}) {
      for (bool pinned : {true, false}) {
        for (bool async : {false, true}) list.push_back(copy(bytes, to_device, pinned, async));
      }
    }
  }
}

// Memory just allocated holds what is written to it.
std::string check_fresh(Lane& lane) {
  CUdeviceptr fresh;
  CU(cuMemAlloc(&fresh, 2 << 20));
  CU(cuMemsetD8(fresh, 0x3c, 4096));
  CU(cuMemcpyDtoD(lane.data, fresh, 4096));
  CU(cuMemFree(fresh));
  return device_wrong(lane, std::vector<unsigned char>(4096, 0x3c).data(), 4096);
}

std::string check_attribute(Lane& lane) {
  CUmemorytype type{};
  CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, lane.data));
  return type == CU_MEMORYTYPE_DEVICE ? ""
                                      : "the device buffer has memory type " + std::to_string(type);
}

std::string check_context(Lane&) {
  CUcontext current = nullptr;
  CUdevice device = -1;
  CU(cuCtxGetCurrent(&current));
  CU(cuCtxGetDevice(&device));
  return current != nullptr && device == 0 ? "" : "the current context is not the first device's";
}

void add_objects(std::vector<Operation>& list) {
  list.push_back({.name = "alloc_free_2m",
                  .body =
                      [](Lane&) {
                        CUdeviceptr p;
                        CU(cuMemAlloc(&p, 2 << 20));
                        CU(cuMemFree(p));
                      },
                  .cost = 25,
                  .verify = check_fresh});
  list.push_back({.name = "alloc_free_async_2m",
                  .body =
                      [](Lane& l) {
                        CUdeviceptr p;
                        CU(cuMemAllocAsync(&p, 2 << 20, l.stream));
                        CU(cuMemFreeAsync(p, l.stream));
                      },
                  .burst = 32,
                  .cost = 4,
                  .verify = check_fresh});
  list.push_back({.name = "stream_create_destroy",
                  .body =
                      [](Lane&) {
                        CUstream s;
                        CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
                        CU(cuStreamDestroy(s));
                      },
                  .cost = 10});
  list.push_back({.name = "event_create_destroy", .body = [](Lane&) {
                    CUevent e;
                    CU(cuEventCreate(&e, 0));
                    CU(cuEventDestroy(e));
                  }});
}

void add_queries(std::vector<Operation>& list) {
  list.push_back({.name = "context_get_current",
                  .body =
                      [](Lane&) {
                        for (uint32_t i = 0; i < kShort; ++i) {
                          CUcontext current;
                          CU(cuCtxGetCurrent(&current));
                        }
                      },
                  .per_sample = kShort,
                  .verify = check_context});
  list.push_back({.name = "context_set_current",
                  .body =
                      [](Lane&) {
                        CUcontext current;
                        CU(cuCtxGetCurrent(&current));
                        for (uint32_t i = 0; i < kShort; ++i) CU(cuCtxSetCurrent(current));
                      },
                  .per_sample = kShort,
                  .verify = check_context});
  list.push_back({.name = "mem_get_info",
                  .body =
                      [](Lane&) {
                        size_t free_bytes, total_bytes;
                        CU(cuMemGetInfo(&free_bytes, &total_bytes));
                      },
                  .cost = 4});
  list.push_back(
      {.name = "pointer_get_attribute",
       .body =
           [](Lane& l) {
             for (uint32_t i = 0; i < kShort; ++i) {
               CUmemorytype type;
               CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, l.data));
             }
           },
       .per_sample = kShort,
       .verify = check_attribute});
}

}  // namespace

const std::vector<Operation>& operations() {
  static const std::vector<Operation>* list = [] {
    auto* made = new std::vector<Operation>;
    add_launches(*made);
    add_events(*made);
    add_copies(*made);
    add_objects(*made);
    add_queries(*made);
    return made;
  }();
  return *list;
}

const Operation* find_operation(const std::string& name) {
  const auto& list = operations();
  auto found =
      std::find_if(list.begin(), list.end(), [&](const Operation& op) { return op.name == name; });
  return found == list.end() ? nullptr : &*found;
}

}  // namespace bench
