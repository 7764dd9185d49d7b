// What orders work without being asked: the legacy stream, per-thread and blocking streams,
// synchronous copies, memsets, frees.
#include "tests/conformance/streams.h"

CASES_HOLD_STREAMS;

// ---- the legacy stream ----

CASE(legacy_waits_for_a_blocking_stream) {
  Order o;
  Blocking a;
  o.hold(a);
  o.first(a);
  o.second(nullptr);
  SHOW(cuStreamQuery(a));
  SHOW(cuStreamQuery(nullptr));
  o.finish();
}
CASE(blocking_stream_waits_for_legacy) {
  Order o;
  Blocking a;
  o.hold(nullptr);
  o.first(nullptr);
  o.second(a);
  SHOW(cuStreamQuery(a));
  o.finish();
}
CASE(legacy_joins_two_blocking_streams) {
  Order o;
  Blocking a, b;
  o.hold(a);
  o.first(a);
  o.second(nullptr);
  o.third(b);
  SHOW(cuStreamQuery(b));
  o.finish();
}
CASE(blocking_streams_do_not_wait_for_each_other) {
  Order o;
  Blocking a, b;
  o.hold(a);
  o.first(b);
  SHOW(cuStreamSynchronize(b));
  SHOW(cuStreamQuery(a));
  o.second(a);
  o.finish();
}
CASE(legacy_does_not_wait_for_a_non_blocking_stream) {
  Order o;
  Apart a;
  o.hold(a);
  o.second(a);
  o.first(nullptr);
  SHOW(cuStreamSynchronize(nullptr));
  SHOW(cuStreamQuery(a));
  o.finish();
}
CASE(non_blocking_stream_does_not_wait_for_legacy) {
  Order o;
  Apart a;
  o.hold(nullptr);
  o.second(nullptr);
  o.first(a);
  SHOW(cuStreamSynchronize(a));
  SHOW(cuStreamQuery(nullptr));
  o.finish();
}
// The upload is taken and stands behind the gate; who launches elsewhere does not.
CASE(non_blocking_stream_does_not_wait_for_an_asynchronous_upload_to_legacy) {
  Order o;
  Apart a;
  DeviceArray<uint32_t> target(1);
  uint32_t bytes = 7;
  o.hold(nullptr);
  SHOW(cuMemcpyHtoDAsync(target.pointer, &bytes, 4, nullptr));
  bytes = 0;
  o.first(a);
  SHOW(cuStreamSynchronize(a));
  SHOW(cuStreamQuery(nullptr));
  o.second(nullptr);
  o.finish();
  printf("%u\n", target.read()[0]);
}
CASE(legacy_by_its_handle) {
  Order o;
  Blocking a;
  o.hold(a);
  o.first(a);
  o.second(CU_STREAM_LEGACY);
  SHOW(cuStreamQuery(CU_STREAM_LEGACY));
  SHOW(cuStreamQuery(nullptr));
  o.finish();
}
CASE(legacy_query_counts_blocking_streams) {
  Order o;
  Blocking a;
  CU(cuCtxSynchronize());
  SHOW(cuStreamQuery(nullptr));
  o.hold(a);
  SHOW(cuStreamQuery(nullptr));
  o.gate.open();
  CU(cuStreamSynchronize(a));
  SHOW(cuStreamQuery(nullptr));
}
CASE(legacy_query_ignores_non_blocking_streams) {
  Order o;
  Apart a;
  CU(cuCtxSynchronize());
  o.hold(a);
  SHOW(cuStreamQuery(nullptr));
  o.finish();
}
CASE(legacy_synchronize_waits_for_blocking_streams) {
  Order o;
  Blocking a;
  o.hold(a);
  o.first(a);
  wait_while_opened(o, [] { SHOW(cuStreamSynchronize(nullptr)); });
  SHOW(cuStreamQuery(a));
  o.finish();
}
CASE(legacy_orders_many_times) {
  Order o;
  Blocking a, b;
  for (uint32_t i = 0; i < 20; ++i) {
    o.step(a, 3, i);
    o.step(nullptr, 5, i);
    o.step(b, 7, i);
    o.step(nullptr, 11, i);
  }
  o.finish();
}
CASE(stream_created_after_legacy_work_waits_for_it) {
  Order o;
  o.hold(nullptr);
  o.first(nullptr);
  Blocking late;
  o.second(late);
  SHOW(cuStreamQuery(late));
  o.finish();
}
CASE(destroyed_blocking_stream_still_counts_for_legacy) {
  Order o;
  {
    Blocking a;
    o.hold(a);
    o.first(a);
  }
  o.second(nullptr);
  SHOW(cuStreamQuery(nullptr));
  o.finish();
}
CASE(destroyed_non_blocking_stream_finishes_its_work) {
  Order o;
  {
    Apart a;
    o.hold(a);
    o.first(a);
  }
  SHOW(cuStreamQuery(nullptr));
  o.finish();
}

// ---- the per-thread stream ----

CASE(per_thread_stream_is_a_blocking_one) {
  Order o;
  o.hold(CU_STREAM_PER_THREAD);
  o.first(CU_STREAM_PER_THREAD);
  o.second(nullptr);
  SHOW(cuStreamQuery(nullptr));
  o.finish();
}
CASE(per_thread_stream_waits_for_legacy) {
  Order o;
  o.hold(nullptr);
  o.first(nullptr);
  o.second(CU_STREAM_PER_THREAD);
  SHOW(cuStreamQuery(CU_STREAM_PER_THREAD));
  o.finish();
}
CASE(per_thread_streams_of_two_threads_are_two) {
  Order o;
  o.hold(CU_STREAM_PER_THREAD);
  std::thread([&] {
    CU(cuCtxSetCurrent(o.gpu.context));
    o.first(CU_STREAM_PER_THREAD);
    SHOW(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  }).join();
  SHOW(cuStreamQuery(CU_STREAM_PER_THREAD));
  o.second(CU_STREAM_PER_THREAD);
  o.finish();
}
CASE(per_thread_stream_ids) {
  Gpu gpu;
  unsigned long long legacy = 0, zero = 0, own = 0, again = 0, other = 0;
  SHOW(cuStreamGetId(CU_STREAM_LEGACY, &legacy));
  SHOW(cuStreamGetId(nullptr, &zero));
  SHOW(cuStreamGetId(CU_STREAM_PER_THREAD, &own));
  SHOW(cuStreamGetId(CU_STREAM_PER_THREAD, &again));
  std::thread([&] {
    CU(cuCtxSetCurrent(gpu.context));
    CU(cuStreamGetId(CU_STREAM_PER_THREAD, &other));
  }).join();
  printf("legacy is 0: %d, own is stable: %d, own is not legacy: %d, another thread's is another: %d\n", legacy == zero, own == again, own != legacy,
         own != other);
}
CASE(per_thread_work_of_an_ended_thread) {
  Order o;
  std::thread([&] {
    CU(cuCtxSetCurrent(o.gpu.context));
    o.hold(CU_STREAM_PER_THREAD);
    o.first(CU_STREAM_PER_THREAD);
  }).join();
  o.second(nullptr);
  o.finish();
}
CASE(default_streams_cannot_be_destroyed) {
  Gpu gpu;
  SHOW(cuStreamDestroy(nullptr));
  SHOW(cuStreamDestroy(CU_STREAM_LEGACY));
  SHOW(cuStreamDestroy(CU_STREAM_PER_THREAD));
}

// ---- synchronising ----

CASE(context_synchronize_waits_for_all_kinds) {
  for (unsigned kind = 0; kind < 3; ++kind) {
    Order o;
    Blocking blocking;
    Apart apart;
    CUstream stream = kind == 0 ? blocking.handle : kind == 1 ? apart.handle : CU_STREAM_PER_THREAD;
    o.hold(stream);
    o.first(stream);
    wait_while_opened(o, [] { SHOW(cuCtxSynchronize()); });
    SHOW(cuStreamQuery(stream));
    o.finish();
  }
}
CASE(context_synchronize_waits_for_streams_of_other_threads) {
  Order o;
  std::thread([&] {
    CU(cuCtxSetCurrent(o.gpu.context));
    o.hold(CU_STREAM_PER_THREAD);
    o.first(CU_STREAM_PER_THREAD);
  }).join();
  wait_while_opened(o, [] { SHOW(cuCtxSynchronize()); });
  o.finish();
}
CASE(context_synchronize_ignores_another_context) {
  Order o;
  Apart held;
  o.hold(held);
  CUcontext other = nullptr;
  CU(cuCtxCreate(&other, nullptr, 0, 0));
  SHOW(cuCtxSynchronize());
  SHOW(cuStreamSynchronize(nullptr));
  SHOW(cuCtxSynchronize_v2(other));
  SHOW(cuStreamQuery(held));
  CU(cuCtxPopCurrent(nullptr));
  o.finish();
  CU(cuCtxDestroy(other));
}
CASE(legacy_streams_of_two_contexts_are_two) {
  Order o;
  o.hold(nullptr);
  CUcontext other = nullptr;
  CU(cuCtxCreate(&other, nullptr, 0, 0));
  CUdeviceptr memory = 0;
  CU(cuMemAlloc(&memory, 4096));
  CU(cuMemsetD32Async(memory, 9, 16, nullptr));
  SHOW(cuStreamSynchronize(nullptr));
  CU(cuCtxPopCurrent(nullptr));
  SHOW(cuStreamQuery(nullptr));
  o.finish();
  CU(cuCtxDestroy(other));
}
CASE(event_synchronize_waits_for_the_record_only) {
  Order o;
  Apart a;
  Event event;
  o.first(a);
  CU(cuEventRecord(event, a));
  o.hold(a);
  o.second(a);
  SHOW(cuEventSynchronize(event));
  SHOW(cuEventQuery(event));
  SHOW(cuStreamQuery(a));
  o.finish();
}
CASE(stream_synchronize_of_an_idle_stream) {
  Gpu gpu;
  Apart a;
  SHOW(cuStreamQuery(a));
  SHOW(cuStreamSynchronize(a));
  SHOW(cuStreamSynchronize(nullptr));
  SHOW(cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

// ---- copies, memsets, allocations ----

CASE(synchronous_download_waits_for_blocking_streams) {
  Order o;
  Blocking a;
  o.hold(a);
  o.first(a);
  uint32_t seen = 0;
  wait_while_opened(o, [&] { CU(cuMemcpyDtoH(&seen, o.value.pointer, 4)); });
  printf("seen %u\n", seen);
  o.finish();
}
CASE(synchronous_download_does_not_wait_for_a_non_blocking_stream) {
  Order o;
  Apart a;
  o.hold(a);
  o.first(a);
  uint32_t seen = 0;
  CU(cuMemcpyDtoH(&seen, o.value.pointer, 4));
  printf("seen %u\n", seen);
  SHOW(cuStreamQuery(a));
  o.finish();
}
CASE(synchronous_upload_waits_for_blocking_streams) {
  Order o;
  Blocking a;
  o.hold(a);
  o.first(a);
  const uint32_t fresh = 100;
  wait_while_opened(o, [&] { CU(cuMemcpyHtoD(o.value.pointer, &fresh, 4)); });
  o.finish();
}
CASE(work_after_a_synchronous_upload_sees_it) {
  Order o;
  Blocking a;
  const uint32_t fresh = 100;
  CU(cuMemcpyHtoD(o.value.pointer, &fresh, 4));
  o.first(a);
  o.finish();
}

static CUDA_MEMCPY2D rows_of(CUdeviceptr dst, CUdeviceptr src) {
  CUDA_MEMCPY2D c{};
  c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  c.srcDevice = src, c.dstDevice = dst;
  c.srcPitch = c.dstPitch = 64;
  c.WidthInBytes = 48, c.Height = 4;
  return c;
}
template <class Copy>
static Copy slices_of(CUdeviceptr dst, CUdeviceptr src) {
  Copy c{};
  c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  c.srcDevice = src, c.dstDevice = dst;
  c.srcPitch = c.dstPitch = 64, c.srcHeight = c.dstHeight = 4;
  c.WidthInBytes = 48, c.Height = 2, c.Depth = 2;
  return c;
}
CASE(pitched_copies_of_sync_memops_memory_wait) {
  Gpu gpu;
  DeviceArray<char> plain(4096), waiting(4 << 20);
  unsigned on = 1;
  CU(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, waiting.pointer));
  const CUdeviceptr a = plain.pointer, b = waiting.pointer;
  const CUDA_MEMCPY2D to_rows = rows_of(b, a), from_rows = rows_of(a, b);
  show_waiting("2D to it", nullptr, [&] { return cuMemcpy2D(&to_rows); });
  show_waiting("2D from it", nullptr, [&] { return cuMemcpy2D(&from_rows); });
  show_waiting("2D unaligned to it", nullptr, [&] { return cuMemcpy2DUnaligned(&to_rows); });
  const auto to = slices_of<CUDA_MEMCPY3D>(b, a), from = slices_of<CUDA_MEMCPY3D>(a, b);
  show_waiting("3D to it", nullptr, [&] { return cuMemcpy3D(&to); });
  show_waiting("3D from it", nullptr, [&] { return cuMemcpy3D(&from); });
  auto peer = slices_of<CUDA_MEMCPY3D_PEER>(b, a);
  peer.srcContext = peer.dstContext = gpu.context;
  show_waiting("3D peer to it", nullptr, [&] { return cuMemcpy3DPeer(&peer); });
}
CASE(batches_wait_as_their_sources_ask) {
  Gpu gpu;
  Apart apart;
  DeviceArray<char> memory(4096), other(4096);
  std::vector<char> pageable(4096, 5);
  void* pinned = nullptr;
  CU(cuMemHostAlloc(&pinned, 4096, 0));
  memset(pinned, 6, 4096);
  CUdeviceptr places[] = {reinterpret_cast<CUdeviceptr>(pinned),
                          reinterpret_cast<CUdeviceptr>(pageable.data()), memory.pointer,
                          other.pointer};
  CUmemcpyAttributes attributes{};
  size_t bytes = 4096, start = 0;
  const auto copy = [&](int to, int from, CUmemcpySrcAccessOrder order) {
    attributes.srcAccessOrder = order;
    return cuMemcpyBatchAsync(&places[to], &places[from], &bytes, 1, &attributes, &start, 1,
                              apart.handle);
  };
  const auto during = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  const auto in_order = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  show_waiting("pinned, during the call", apart, [&] { return copy(2, 0, during); });
  show_waiting("device, during the call", apart, [&] { return copy(3, 2, during); });
  show_waiting("to the host, during the call", apart, [&] { return copy(0, 2, during); });
  show_waiting("pageable, in order", apart, [&] { return copy(2, 1, in_order); });
  Order o;
  o.hold(apart);
  SHOW(copy(2, 1, during));
  SHOW(copy(2, 0, in_order));
  SHOW(copy(3, 2, in_order));
  SHOW(copy(2, 1, CU_MEMCPY_SRC_ACCESS_ORDER_ANY));
  SHOW(copy(2, 0, CU_MEMCPY_SRC_ACCESS_ORDER_ANY));
  SHOW(cuStreamQuery(apart));
  o.finish();
  CU(cuMemFreeHost(pinned));
}
// Asynchronous copies between host memory are synchronous with respect to the host (CUDA's "API
// synchronization behavior"); batches, and managed memory, are not.
CASE(copies_between_host_memory) {
  Gpu gpu;
  Apart apart;
  constexpr size_t kBytes = 4096;
  std::vector<char> memory(kBytes, 5), others(kBytes, 6);
  alignas(4096) static char registered[2 * kBytes];
  CU(cuMemHostRegister(registered, sizeof registered, 0));
  void *first = nullptr, *second = nullptr;
  CU(cuMemHostAlloc(&first, kBytes, 0));
  CU(cuMemHostAlloc(&second, kBytes, 0));
  CUdeviceptr managed = 0, managed_too = 0;
  CU(cuMemAllocManaged(&managed, kBytes, CU_MEM_ATTACH_GLOBAL));
  CU(cuMemAllocManaged(&managed_too, kBytes, CU_MEM_ATTACH_GLOBAL));
  const auto at = [](const void* p) { return reinterpret_cast<CUdeviceptr>(p); };
  const auto show = [&](const char* what, CUdeviceptr to, CUdeviceptr from) {
    show_waiting(what, apart, [&] { return cuMemcpyAsync(to, from, kBytes, apart); });
  };
  show("pinned to pinned", at(first), at(second));
  show("pageable to pinned", at(first), at(memory.data()));
  show("pinned to pageable", at(memory.data()), at(first));
  show("pageable to pageable", at(memory.data()), at(others.data()));
  show("registered to registered", at(registered), at(registered + kBytes));
  show("registered to pinned", at(first), at(registered));
  show("pageable to registered", at(registered), at(memory.data()));
  show("pinned to managed", managed, at(first));
  show("managed to pinned", at(first), managed);
  show("managed to managed", managed, managed_too);
  show("pageable to managed", managed, at(memory.data()));
  show_waiting("pageable to pinned, as to the device", apart, [&] {
    return cuMemcpyHtoDAsync(at(first), memory.data(), kBytes, apart);
  });
  show_waiting("pinned to pageable, as from the device", apart, [&] {
    return cuMemcpyDtoHAsync(memory.data(), at(first), kBytes, apart);
  });
  CUDA_MEMCPY2D rows = rows_of(at(first), at(second));
  rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_HOST;
  rows.srcHost = second, rows.dstHost = first;
  show_waiting("rows, pinned to pinned", apart, [&] { return cuMemcpy2DAsync(&rows, apart); });
  rows.srcHost = memory.data();
  show_waiting("rows, pageable to pinned", apart, [&] { return cuMemcpy2DAsync(&rows, apart); });
  CUDA_MEMCPY2D unified = rows_of(at(first), at(second));
  unified.srcMemoryType = unified.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  show_waiting("rows, by address", apart, [&] { return cuMemcpy2DAsync(&unified, apart); });
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  size_t bytes = kBytes, start = 0;
  const auto batch = [&](const char* what, CUdeviceptr to, CUdeviceptr from) {
    show_waiting(what, apart, [&] {
      return cuMemcpyBatchAsync(&to, &from, &bytes, 1, &attributes, &start, 1, apart);
    });
  };
  batch("pinned to pinned in a batch", at(first), at(second));
  batch("registered to pinned in a batch", at(first), at(registered));
  batch("pinned to registered in a batch", at(registered), at(first));
  for (void* pinned : {first, second}) CU(cuMemFreeHost(pinned));
  for (CUdeviceptr each : {managed, managed_too}) CU(cuMemFree(each));
  CU(cuMemHostUnregister(registered));
}
CASE(copies_of_arrays_and_device_memory_do_not_wait) {
  Order o;
  DeviceArray<char> memory(4096);
  CUDA_ARRAY_DESCRIPTOR shape{64, 4, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  CUarray array = nullptr, other = nullptr;
  CU(cuArrayCreate(&array, &shape));
  CU(cuArrayCreate(&other, &shape));
  CUDA_MEMCPY2D rows = rows_of(memory.pointer, 0);
  rows.srcMemoryType = CU_MEMORYTYPE_ARRAY, rows.srcArray = array;
  o.hold(nullptr);
  SHOW(cuMemcpyAtoD(memory.pointer, array, 0, 64));
  SHOW(cuMemcpyDtoA(array, 0, memory.pointer, 64));
  SHOW(cuMemcpyAtoA(other, 0, array, 0, 64));
  SHOW(cuMemcpy2D(&rows));
  SHOW(cuStreamQuery(nullptr));
  o.finish();
  CU(cuArrayDestroy(array));
  CU(cuArrayDestroy(other));
}
CASE(memset_on_legacy_is_ordered) {
  Order o;
  Blocking a;
  o.hold(a);
  o.first(a);
  CU(cuMemsetD32(o.value.pointer, 50, 1));
  o.second(a);
  SHOW(cuStreamQuery(a));
  o.finish();
}
CASE(device_copy_on_legacy_is_ordered) {
  Order o;
  Blocking a;
  DeviceArray<uint32_t> other(std::vector<uint32_t>(32, 10));
  o.hold(a);
  o.first(a);
  CU(cuMemcpyDtoD(o.value.pointer, other.pointer, 4));
  o.second(a);
  o.finish();
}
CASE(memset_on_a_non_blocking_stream_is_not_ordered_by_legacy) {
  Order o;
  Apart a;
  o.hold(nullptr);
  CU(cuMemsetD32Async(o.value.pointer, 50, 1, a));
  SHOW(cuStreamSynchronize(a));
  o.first(nullptr);
  o.finish();
}
CASE(free_waits_for_the_work_before_it) {
  for (unsigned flags : {CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING}) {
    Order o;
    Stream a(flags);
    CUdeviceptr memory = 0;
    CU(cuMemAlloc(&memory, 4096));
    o.hold(a);
    CU(cuMemsetD32Async(memory, 1, 1024, a));
    wait_while_opened(o, [&] { SHOW(cuMemFree(memory)); });
    SHOW(cuStreamQuery(a));
  }
}
CASE(host_free_waits_for_the_work_before_it) {
  Order o;
  Apart a;
  void* memory = nullptr;
  CU(cuMemHostAlloc(&memory, 4096, 0));
  o.hold(a);
  CU(cuMemcpyDtoHAsync(memory, o.value.pointer, 64, a));
  wait_while_opened(o, [&] { SHOW(cuMemFreeHost(memory)); });
  SHOW(cuStreamQuery(a));
}
CASE(alloc_does_not_wait) {
  Order o;
  Apart a;
  o.hold(a);
  CUdeviceptr memory = 0;
  SHOW(cuMemAlloc(&memory, 4096));
  SHOW(cuStreamQuery(a));
  o.finish();
  CU(cuMemFree(memory));
}
CASE(pinned_download_is_asynchronous) {
  Order o;
  Apart a;
  void* memory = nullptr;
  CU(cuMemHostAlloc(&memory, 4096, 0));
  memset(memory, 0, 4096);
  o.hold(a);
  o.first(a);
  SHOW(cuMemcpyDtoHAsync(memory, o.value.pointer, 4, a));
  printf("at once %u\n", *static_cast<volatile uint32_t*>(memory));
  o.gate.open();
  CU(cuStreamSynchronize(a));
  printf("then %u\n", *static_cast<volatile uint32_t*>(memory));
  CU(cuMemFreeHost(memory));
}
CASE(pageable_upload_takes_the_bytes_at_once) {
  Order o;
  Apart a;
  std::vector<uint32_t> bytes(1 << 12, 21);
  DeviceArray<uint32_t> target(bytes.size());
  CU(cuMemcpyHtoDAsync(target.pointer, bytes.data(), target.bytes(), a));
  std::fill(bytes.begin(), bytes.end(), 0u);
  CU(cuStreamSynchronize(a));
  printf("%u\n", target.read()[4000]);
}
