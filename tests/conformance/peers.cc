// Several GPUs in one program: what reaches what, the codes of peer access, work on a peer's
// memory, copies between devices and contexts.
#include "tests/conformance/two_gpus.h"
#include "tests/conformance/two_processes.h"

// ---- what reaches what ----

CASE(can_access_peer_bad_arguments) {
  Gpu gpu;
  int able = 7;
  SHOW(cuDeviceCanAccessPeer(&able, 0, 0));
  printf("%d\n", able);
  SHOW(cuDeviceCanAccessPeer(nullptr, 0, 0));
  SHOW(cuDeviceCanAccessPeer(&able, 0, 1000));
  SHOW(cuDeviceCanAccessPeer(&able, -1, 0));
}

CASE(can_access_peer_before_init) {
  int able = 7;
  SHOW(cuDeviceCanAccessPeer(&able, 0, 0));
}

CASE(p2p_attribute_bad_arguments) {
  Gpu gpu;
  int value = 7;
  SHOW(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
  SHOW(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1000));
  SHOW(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, -1, 0));
  SHOW(cuDeviceGetP2PAttribute(nullptr, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
}

TWO_DEVICES_CASE(can_access_peer) {
  TwoGpus gpus;
  int there = 7, back = 7;
  SHOW(cuDeviceCanAccessPeer(&there, 0, 1));
  SHOW(cuDeviceCanAccessPeer(&back, 1, 0));
  printf("both ways alike %d\n", there == back);
  SHOW(cuDeviceCanAccessPeer(&there, 1, 1));
  printf("itself %d\n", there);
}

TWO_DEVICES_CASE(p2p_attributes) {
  TwoGpus gpus;
  int able = 0, value = 7;
  CU(cuDeviceCanAccessPeer(&able, 0, 1));
  SHOW(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
  printf("as can_access_peer %d\n", value == able);
  for (int attribute : {1, 3, 4}) SHOW(cuDeviceGetP2PAttribute(&value, static_cast<CUdevice_P2PAttribute>(attribute), 0, 1));
  SHOW(cuDeviceGetP2PAttribute(&value, static_cast<CUdevice_P2PAttribute>(0), 0, 1));
  SHOW(cuDeviceGetP2PAttribute(&value, static_cast<CUdevice_P2PAttribute>(99), 0, 1));
  SHOW(cuDeviceGetP2PAttribute(nullptr, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
  SHOW(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1, 1));
}

// ---- switching it on and off ----

CASE(enable_of_itself) {
  Gpu gpu;
  SHOW(cuCtxEnablePeerAccess(gpu.context, 0));
  SHOW(cuCtxDisablePeerAccess(gpu.context));
}

CASE(enable_of_another_context_of_the_device) {
  Gpu gpu;
  CUcontext other = nullptr;
  CU(cuCtxCreate(&other, nullptr, 0, gpu.device));
  SHOW(cuCtxEnablePeerAccess(gpu.context, 0));
  SHOW(cuCtxDisablePeerAccess(gpu.context));
  CU(cuCtxDestroy(other));
}

CASE(enable_bad_arguments) {
  Gpu gpu;
  SHOW(cuCtxEnablePeerAccess(nullptr, 0));
  SHOW(cuCtxEnablePeerAccess(nullptr, 1));
  SHOW(cuCtxDisablePeerAccess(nullptr));
}

CASE(enable_without_context) {
  CU(cuInit(0));
  SHOW(cuCtxEnablePeerAccess(nullptr, 0));
  SHOW(cuCtxDisablePeerAccess(nullptr));
}

TWO_DEVICES_CASE(enable_and_disable) {
  TwoGpus gpus;
  if (!gpus.reach()) SKIP("the two GPUs do not reach each other");
  SHOW(cuCtxDisablePeerAccess(gpus.context[1]));
  SHOW(cuCtxEnablePeerAccess(gpus.context[1], 1));
  SHOW(cuCtxEnablePeerAccess(gpus.context[1], 0));
  SHOW(cuCtxEnablePeerAccess(gpus.context[1], 0));
  gpus.use(1);
  SHOW(cuCtxDisablePeerAccess(gpus.context[0]));
  SHOW(cuCtxEnablePeerAccess(gpus.context[0], 0));
  SHOW(cuCtxDisablePeerAccess(gpus.context[0]));
  gpus.use(0);
  SHOW(cuCtxDisablePeerAccess(gpus.context[1]));
  SHOW(cuCtxDisablePeerAccess(gpus.context[1]));
  SHOW(cuCtxEnablePeerAccess(gpus.context[1], 0));
}

TWO_DEVICES_CASE(enabling_is_per_context) {
  TwoGpus gpus;
  gpus.enable_both();
  CUcontext own = nullptr;
  CU(cuCtxCreate(&own, nullptr, 0, 0));
  SHOW(cuCtxDisablePeerAccess(gpus.context[1]));
  SHOW(cuCtxEnablePeerAccess(gpus.context[1], 0));
  SHOW(cuCtxEnablePeerAccess(gpus.context[1], 0));
  CU(cuCtxDestroy(own));
  gpus.use(0);
  SHOW(cuCtxEnablePeerAccess(gpus.context[1], 0));
}

TWO_DEVICES_CASE(enable_of_a_destroyed_context) {
  TwoGpus gpus;
  CUcontext other = nullptr;
  CU(cuCtxCreate(&other, nullptr, 0, 1));
  CU(cuCtxDestroy(other));
  gpus.use(0);
  SHOW(cuCtxDisablePeerAccess(gpus.context[1]));
}

TWO_DEVICES_CASE(reset_forgets_peers) {
  TwoGpus gpus;
  gpus.enable_both();
  SHOW(cuDevicePrimaryCtxReset(1));
  gpus.use(0);
  SHOW(cuCtxDisablePeerAccess(gpus.context[1]));
}

// ---- work on a peer's memory ----

static void add(CUfunction function, CUdeviceptr a, CUdeviceptr b, CUdeviceptr sum, unsigned count, CUstream stream = nullptr) {
  LAUNCH(function, Dim{(count + 255) / 256}, Dim{256}, 0u, stream, a, b, sum, static_cast<int>(count));
}

TWO_DEVICES_CASE(kernel_reads_and_writes_a_peer) {
  TwoGpus gpus;
  gpus.enable_both();
  const size_t count = 1000;
  const std::vector<float> a = Random(1).floats(count), b = Random(2).floats(count);
  gpus.use(1);
  DeviceArray<float> there(b), sum(count);
  gpus.use(0);
  Module module("kernels.fatbin");
  DeviceArray<float> here(a);
  add(module.function("vector_add"), here.pointer, there.pointer, sum.pointer, count);
  CU(cuCtxSynchronize());
  print_hash("sum on the peer", sum.read());
  add(module.function("vector_add"), sum.pointer, sum.pointer, here.pointer, count);
  CU(cuCtxSynchronize());
  print_hash("doubled here", here.read());
}

TWO_DEVICES_CASE(memset_and_copies_on_a_peer) {
  TwoGpus gpus;
  gpus.enable_both();
  const CUdeviceptr there = gpus.allocate(1, 4096, 1);
  gpus.use(0);
  SHOW(cuMemsetD32(there, 2, 16));
  CU(cuCtxSynchronize());
  printf("%u\n", word_at(there));
  const unsigned word = 3;
  SHOW(cuMemcpyHtoD(there, &word, sizeof(word)));
  printf("%u\n", word_at(there));
}

TWO_DEVICES_CASE(pointer_attributes_of_a_peer_s_memory) {
  TwoGpus gpus;
  const CUdeviceptr there = gpus.allocate(1, 4096, 1);
  gpus.use(0);
  int ordinal = -1;
  CUcontext context = nullptr;
  unsigned type = 0;
  SHOW(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, there));
  SHOW(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, there));
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, there));
  printf("device %d, its context %d, type %u\n", ordinal, context == gpus.context[1], type);
}

TWO_DEVICES_CASE(free_from_the_other_context) {
  TwoGpus gpus;
  const CUdeviceptr there = gpus.allocate(1, 4096, 1);
  gpus.use(0);
  SHOW(cuMemFree(there));
  SHOW(cuMemFree(there));
}

TWO_DEVICES_CASE(pinned_memory_of_both) {
  TwoGpus gpus;
  void* host = nullptr;
  CU(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_PORTABLE));
  for (int gpu = 0; gpu < 2; ++gpu) {
    gpus.use(gpu);
    CUdeviceptr pointer = 0;
    SHOW(cuMemHostGetDevicePointer(&pointer, host, 0));
    CU(cuMemsetD32(pointer, 7 + static_cast<unsigned>(gpu), 16));
    CU(cuCtxSynchronize());
    printf("%u\n", *static_cast<unsigned*>(host));
  }
  SHOW(cuMemFreeHost(host));
}

// ---- copies ----

TWO_DEVICES_CASE(copy_between_devices) {
  TwoGpus gpus;
  const CUdeviceptr here = gpus.allocate(0, 1 << 20, 1), there = gpus.allocate(1, 1 << 20, 2);
  gpus.use(0);
  SHOW(cuMemcpyDtoD(here, there, 1 << 20));
  CU(cuCtxSynchronize());
  printf("%u\n", word_at(here + (1 << 20) - 4));
  CU(cuMemsetD32(here, 3, 1 << 18));
  SHOW(cuMemcpy(there, here, 1 << 20));
  CU(cuCtxSynchronize());
  printf("%u\n", word_at(there));
}

TWO_DEVICES_CASE(memcpy_peer) {
  TwoGpus gpus;
  const CUdeviceptr here = gpus.allocate(0, 1 << 20, 1), there = gpus.allocate(1, 1 << 20, 2);
  gpus.use(0);
  SHOW(cuMemcpyPeer(here, gpus.context[0], there, gpus.context[1], 1 << 20));
  CU(cuCtxSynchronize());
  printf("%u\n", word_at(here));
  CU(cuMemsetD32(here, 5, 1 << 18));
  SHOW(cuMemcpyPeer(there, gpus.context[1], here, gpus.context[0], 4096));
  CU(cuCtxSynchronize());
  printf("%u %u\n", word_at(there), word_at(there + 4096));
}

CASE(memcpy_peer_bad_arguments) {
  Gpu gpu;
  DeviceArray<unsigned> a(1024), b(1024);
  SHOW(cuMemcpyPeer(a.pointer, nullptr, b.pointer, gpu.context, 16));
  SHOW(cuMemcpyPeer(a.pointer, gpu.context, b.pointer, nullptr, 16));
  SHOW(cuMemcpyPeer(0, gpu.context, b.pointer, gpu.context, 16));
  SHOW(cuMemcpyPeer(a.pointer, gpu.context, 0, gpu.context, 16));
  SHOW(cuMemcpyPeer(a.pointer, gpu.context, b.pointer, gpu.context, 0));
  SHOW(cuMemcpyPeer(a.pointer, gpu.context, b.pointer, gpu.context, 16));
}

CASE(memcpy_peer_within_one_device) {
  Gpu gpu;
  CUcontext other = nullptr;
  CU(cuCtxCreate(&other, nullptr, 0, gpu.device));
  CUdeviceptr there = 0;
  CU(cuMemAlloc(&there, 4096));
  CU(cuMemsetD32(there, 9, 1024));
  CU(cuCtxSynchronize());
  CU(cuCtxSetCurrent(gpu.context));
  DeviceArray<unsigned> here(1024);
  SHOW(cuMemcpyPeer(here.pointer, gpu.context, there, other, 4096));
  CU(cuCtxSynchronize());
  printf("%u\n", word_at(here.pointer));
  CU(cuCtxDestroy(other));
}

TWO_DEVICES_CASE(memcpy_peer_async) {
  TwoGpus gpus;
  const CUdeviceptr here = gpus.allocate(0, 1 << 20, 1), there = gpus.allocate(1, 1 << 20, 2);
  gpus.use(1);
  CUstream theirs = stream_here();
  gpus.use(0);
  CUstream ours = stream_here();
  SHOW(cuMemcpyPeerAsync(here, gpus.context[0], there, gpus.context[1], 1 << 20, ours));
  SHOW(cuStreamSynchronize(ours));
  printf("%u\n", word_at(here));
  CU(cuMemsetD32Async(here, 4, 1 << 18, ours));
  CU(cuStreamSynchronize(ours));
  SHOW(cuMemcpyPeerAsync(there, gpus.context[1], here, gpus.context[0], 1 << 20, theirs));
  SHOW(cuStreamSynchronize(theirs));
  printf("%u\n", word_at(there));
  SHOW(cuMemcpyPeerAsync(there, gpus.context[1], here, gpus.context[0], 1 << 20, nullptr));
  SHOW(cuCtxSynchronize());
}

static CUDA_MEMCPY3D_PEER box(const TwoGpus& gpus, CUdeviceptr to, int to_gpu, CUdeviceptr from, int from_gpu) {
  CUDA_MEMCPY3D_PEER p{};
  p.srcMemoryType = p.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  p.srcDevice = from;
  p.dstDevice = to;
  p.srcContext = gpus.context[from_gpu];
  p.dstContext = gpus.context[to_gpu];
  p.srcPitch = 64;
  p.srcHeight = 8;
  p.dstPitch = 128;
  p.dstHeight = 4;
  p.srcXInBytes = 8;
  p.srcY = 1;
  p.WidthInBytes = 32;
  p.Height = 3;
  p.Depth = 2;
  return p;
}

TWO_DEVICES_CASE(memcpy_3d_peer) {
  TwoGpus gpus;
  const CUdeviceptr here = gpus.allocate(0, 4096, 0), there = gpus.allocate(1, 4096, 0);
  const std::vector<unsigned char> bytes = Random(3).bytes(4096);
  CU(cuMemcpyHtoD(there, bytes.data(), bytes.size()));
  gpus.use(0);
  CUDA_MEMCPY3D_PEER p = box(gpus, here, 0, there, 1);
  SHOW(cuMemcpy3DPeer(&p));
  CU(cuCtxSynchronize());
  std::vector<unsigned char> out(4096);
  CU(cuMemcpyDtoH(out.data(), here, out.size()));
  print_hash("boxes", out);
}

TWO_DEVICES_CASE(memcpy_3d_peer_async) {
  TwoGpus gpus;
  const CUdeviceptr here = gpus.allocate(0, 4096, 0), there = gpus.allocate(1, 4096, 0);
  const std::vector<unsigned char> bytes = Random(3).bytes(4096);
  CU(cuMemcpyHtoD(there, bytes.data(), bytes.size()));
  gpus.use(0);
  CUstream stream = stream_here();
  CUDA_MEMCPY3D_PEER p = box(gpus, here, 0, there, 1);
  SHOW(cuMemcpy3DPeerAsync(&p, stream));
  SHOW(cuStreamSynchronize(stream));
  std::vector<unsigned char> out(4096);
  CU(cuMemcpyDtoH(out.data(), here, out.size()));
  print_hash("boxes", out);
}

// ---- mapped memory, pools, IPC ----

TWO_DEVICES_CASE(mapped_memory_for_both) {
  TwoGpus gpus;
  if (!gpus.reach()) SKIP("the two GPUs do not reach each other");
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  CUmemGenericAllocationHandle memory = 0;
  CU(cuMemCreate(&memory, 2 << 20, &prop, 0));
  CUdeviceptr pointer = 0;
  CU(cuMemAddressReserve(&pointer, 2 << 20, 0, 0, 0));
  CU(cuMemMap(pointer, 2 << 20, 0, memory, 0));
  CUmemAccessDesc access[2] = {{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                               {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
  SHOW(cuMemSetAccess(pointer, 2 << 20, access, 2));
  for (int gpu = 0; gpu < 2; ++gpu) {
    gpus.use(gpu);
    CU(cuMemsetD32(pointer, 10 + static_cast<unsigned>(gpu), 16));
    CU(cuCtxSynchronize());
    printf("%u\n", word_at(pointer));
    unsigned long long flags = 0;
    SHOW(cuMemGetAccess(&flags, &access[gpu].location, pointer));
    printf("%llu\n", flags);
  }
  access[0].flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  SHOW(cuMemSetAccess(pointer, 2 << 20, access, 1));
  unsigned long long flags = 7;
  SHOW(cuMemGetAccess(&flags, &access[0].location, pointer));
  printf("%llu\n", flags);
  CUmemAccessDesc nowhere{{CU_MEM_LOCATION_TYPE_DEVICE, 1000}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  SHOW(cuMemSetAccess(pointer, 2 << 20, &nowhere, 1));
}

TWO_DEVICES_CASE(pool_access) {
  TwoGpus gpus;
  if (!gpus.reach()) SKIP("the two GPUs do not reach each other");
  CUmemoryPool pool = nullptr;
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CU(cuMemPoolCreate(&pool, &props));
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  SHOW(cuMemPoolGetAccess(&flags, pool, &location));
  printf("own %d\n", flags);
  location.id = 1;
  SHOW(cuMemPoolGetAccess(&flags, pool, &location));
  printf("peer %d\n", flags);
  CUmemAccessDesc access{location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  SHOW(cuMemPoolSetAccess(pool, &access, 1));
  SHOW(cuMemPoolGetAccess(&flags, pool, &location));
  printf("peer %d\n", flags);
  CUdeviceptr pointer = 0;
  CU(cuMemAllocFromPoolAsync(&pointer, 4096, pool, nullptr));
  CU(cuStreamSynchronize(nullptr));
  gpus.use(1);
  CU(cuMemsetD32(pointer, 6, 16));
  CU(cuCtxSynchronize());
  printf("%u\n", word_at(pointer));
  gpus.use(0);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  SHOW(cuMemPoolSetAccess(pool, &access, 1));
  SHOW(cuMemPoolGetAccess(&flags, pool, &location));
  printf("peer %d\n", flags);
  access.location.id = 0;
  SHOW(cuMemPoolSetAccess(pool, &access, 1));
  CU(cuMemFreeAsync(pointer, nullptr));
  CU(cuStreamSynchronize(nullptr));
  SHOW(cuMemPoolDestroy(pool));
}

static void opens_on_the_other_device(Link& link) {
  TwoGpus gpus;
  gpus.use(1);
  CUdeviceptr pointer = 0;
  SHOW(cuIpcOpenMemHandle(&pointer, link.receive<CUipcMemHandle>(), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  printf("reads %u\n", word_at(pointer));
  int ordinal = -1;
  SHOW(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer));
  printf("device %d\n", ordinal);
  CU(cuMemsetD32(pointer, 14, 16));
  CU(cuCtxSynchronize());
  SHOW(cuIpcCloseMemHandle(pointer));
  link.done();
}
TWO_DEVICES_CASE(memory_opened_on_the_other_device) {
  Other other(opens_on_the_other_device);
  TwoGpus gpus;
  if (!gpus.reach()) SKIP("the two GPUs do not reach each other");
  const CUdeviceptr pointer = gpus.allocate(0, 8 << 20, 13);
  CUipcMemHandle handle;
  CU(cuIpcGetMemHandle(&handle, pointer));
  other.link().send(handle);
  other.link().wait();
  printf("then %u\n", word_at(pointer));
  other.finish();
}
