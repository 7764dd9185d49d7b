// One program on two devices: whose streams, events and modules may be used where.
#include <sys/mman.h>

#include "tests/conformance/gate.h"
#include "tests/conformance/two_gpus.h"

CASES_HOLD_STREAMS;

TWO_DEVICES_CASE(stream_knows_its_device) {
  TwoGpus gpus;
  gpus.use(1);
  CUstream theirs = stream_here();
  gpus.use(0);
  CUcontext context = nullptr;
  SHOW(cuStreamGetCtx(theirs, &context));
  printf("%d\n", context == gpus.context[1]);
  SHOW(cuStreamQuery(theirs));
  SHOW(cuStreamSynchronize(theirs));
  SHOW(cuStreamDestroy(theirs));
}

TWO_DEVICES_CASE(launch_into_a_stream_of_the_other_device) {
  TwoGpus gpus;
  gpus.use(1);
  CUstream theirs = stream_here();
  gpus.use(0);
  Module module("kernels.fatbin");
  DeviceArray<float> a(std::vector<float>(256, 1.0f)), b(std::vector<float>(256, 2.0f)), sum(256);
  SHOW(try_launch(module.function("vector_add"), Dim{1}, Dim{256}, 0u, theirs, a.pointer, b.pointer, sum.pointer, 256));
  SHOW(cuCtxSynchronize());
}

TWO_DEVICES_CASE(launch_with_the_other_context_current) {
  TwoGpus gpus;
  Module module("kernels.fatbin");
  DeviceArray<float> a(std::vector<float>(256, 1.0f)), b(std::vector<float>(256, 2.0f)), sum(256);
  CUstream ours = stream_here();
  gpus.use(1);
  SHOW(try_launch(module.function("vector_add"), Dim{1}, Dim{256}, 0u, static_cast<CUstream>(nullptr), a.pointer, b.pointer, sum.pointer, 256));
  SHOW(try_launch(module.function("vector_add"), Dim{1}, Dim{256}, 0u, ours, a.pointer, b.pointer, sum.pointer, 256));
  SHOW(cuCtxSynchronize());
  gpus.use(0);
  SHOW(cuCtxSynchronize());
}

TWO_DEVICES_CASE(record_an_event_of_the_other_device) {
  TwoGpus gpus;
  gpus.use(1);
  CUstream theirs = stream_here();
  CUevent their_event = event_here();
  gpus.use(0);
  CUstream ours = stream_here();
  CUevent our_event = event_here();
  SHOW(cuEventRecord(their_event, ours));
  SHOW(cuEventRecord(our_event, theirs));
  SHOW(cuEventRecord(their_event, theirs));
  SHOW(cuEventRecord(their_event, nullptr));
  SHOW(cuEventSynchronize(their_event));
  SHOW(cuEventQuery(their_event));
}

TWO_DEVICES_CASE(elapsed_time_across_devices) {
  TwoGpus gpus;
  gpus.use(1);
  CUevent theirs = event_here();
  CU(cuEventRecord(theirs, nullptr));
  CU(cuCtxSynchronize());
  gpus.use(0);
  CUevent ours = event_here();
  CU(cuEventRecord(ours, nullptr));
  CU(cuCtxSynchronize());
  float ms = 0;
  SHOW(cuEventElapsedTime(&ms, ours, theirs));
}

TWO_DEVICES_CASE(stream_waits_for_the_other_device) {
  TwoGpus gpus;
  const CUdeviceptr flag = gpus.allocate(1, 4096, 0), there = gpus.allocate(1, 4096, 1), here = gpus.allocate(0, 4096, 0);
  gpus.use(1);
  CUstream theirs = stream_here(), writer = stream_here();
  CUevent event = event_here(CU_EVENT_DISABLE_TIMING);
  CU(cuStreamWaitValue32(theirs, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  CU(cuMemsetD32Async(there, 8, 1024, theirs));
  CU(cuEventRecord(event, theirs));
  gpus.use(0);
  CUstream ours = stream_here();
  SHOW(cuStreamWaitEvent(ours, event, 0));
  SHOW(cuMemcpyPeerAsync(here, gpus.context[0], there, gpus.context[1], 4096, ours));
  SHOW(cuStreamQuery(ours));
  gpus.use(1);
  CU(cuStreamWriteValue32(writer, flag, 1, 0));
  gpus.use(0);
  SHOW(cuStreamSynchronize(ours));
  printf("%u\n", word_at(here));
}

TWO_DEVICES_CASE(default_streams_are_per_device) {
  TwoGpus gpus;
  const CUdeviceptr flag = gpus.allocate(1, 4096, 0), here = gpus.allocate(0, 4096, 0);
  gpus.use(1);
  CUstream writer = stream_here();
  CU(cuStreamWaitValue32(nullptr, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  gpus.use(0);
  CU(cuMemsetD32Async(here, 3, 16, nullptr));
  SHOW(cuStreamSynchronize(nullptr));
  SHOW(cuCtxSynchronize());
  gpus.use(1);
  SHOW(cuStreamQuery(nullptr));
  CU(cuStreamWriteValue32(writer, flag, 1, 0));
  SHOW(cuStreamSynchronize(nullptr));
}

TWO_DEVICES_CASE(memset_into_a_stream_of_the_other_device) {
  TwoGpus gpus;
  const CUdeviceptr here = gpus.allocate(0, 4096, 0);
  gpus.use(1);
  CUstream theirs = stream_here();
  gpus.use(0);
  SHOW(cuMemcpyDtoDAsync(here, here + 2048, 1024, theirs));
  SHOW(cuStreamSynchronize(theirs));
}

TWO_DEVICES_CASE(contexts_and_devices) {
  TwoGpus gpus;
  CUdevice device = -1;
  gpus.use(1);
  SHOW(cuCtxGetDevice(&device));
  printf("%d\n", device);
  CU(cuCtxPushCurrent(gpus.context[0]));
  SHOW(cuCtxGetDevice(&device));
  printf("%d\n", device);
  CUcontext popped = nullptr;
  SHOW(cuCtxPopCurrent(&popped));
  printf("%d\n", popped == gpus.context[0]);
  unsigned flags = 0;
  int active = 0;
  SHOW(cuDevicePrimaryCtxGetState(1, &flags, &active));
  printf("active %d\n", active);
}

TWO_DEVICES_CASE(modules_are_per_context) {
  TwoGpus gpus;
  CUdeviceptr here = 0, there = 0;
  size_t bytes = 0;
  Module ours("globals.fatbin");
  gpus.use(1);
  Module theirs("globals.fatbin");
  SHOW(cuModuleGetGlobal(&there, &bytes, theirs.handle, "counter"));
  SHOW(cuModuleGetGlobal(&here, &bytes, ours.handle, "counter"));
  printf("apart %d\n", here != there);
}

// Each device has its own variables of the library.
TWO_DEVICES_CASE(the_same_launches_of_a_library_on_one_device_then_on_the_other) {
  TwoGpus gpus;
  std::vector<char> image = read_beside("globals.fatbin");
  CUlibrary library;
  CUkernel bump;
  CU(cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CU(cuLibraryGetKernel(&bump, library, "bump"));
  for (int gpu = 0; gpu < 2; ++gpu) {
    gpus.use(gpu);
    CUstream stream = stream_here();
    for (int i = 0; i < 400; ++i) {
      LAUNCH(reinterpret_cast<CUfunction>(bump), Dim{1}, Dim{32}, 0, stream, 1);
      if (i % 40 == 39) CU(cuStreamSynchronize(stream));
    }
    CU(cuStreamDestroy(stream));
  }
  for (int gpu = 0; gpu < 2; ++gpu) {
    gpus.use(gpu);
    CUdeviceptr address = 0;
    size_t bytes = 0;
    CU(cuLibraryGetGlobal(&address, &bytes, library, "counter"));
    printf("%u\n", word_at(address));
  }
  SHOW(cuLibraryUnload(library));
}

TWO_DEVICES_CASE(library_on_both_devices) {
  TwoGpus gpus;
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CU(cuLibraryLoadData(&library, read_beside("kernels.fatbin").data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CU(cuLibraryGetKernel(&kernel, library, "vector_add"));
  for (int gpu = 0; gpu < 2; ++gpu) {
    gpus.use(gpu);
    DeviceArray<float> a(std::vector<float>(256, 1.0f)), b(std::vector<float>(256, 2.0f)), sum(256);
    LAUNCH(reinterpret_cast<CUfunction>(kernel), Dim{1}, Dim{256}, 0u, static_cast<CUstream>(nullptr), a.pointer, b.pointer, sum.pointer, 256);
    printf("%g\n", static_cast<double>(sum.read()[255]));
  }
  SHOW(cuLibraryUnload(library));
}

// The last argument says whose the attribute is, whatever is current.
TWO_DEVICES_CASE(attributes_of_a_kernel_on_both_devices) {
  TwoGpus gpus;
  constexpr auto kLimit = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CU(cuLibraryLoadData(&library, read_beside("kernels.fatbin").data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CU(cuLibraryGetKernel(&kernel, library, "step"));
  const auto show_limits = [&] {
    int limits[2] = {};
    for (int gpu = 0; gpu < 2; ++gpu) CU(cuKernelGetAttribute(&limits[gpu], kLimit, kernel, gpu));
    printf("limits %d and %d\n", limits[0], limits[1]);
  };
  show_limits();
  SHOW(cuKernelSetAttribute(kLimit, 60000, kernel, 1));
  show_limits();
  for (int gpu = 0; gpu < 2; ++gpu) {
    const CUdeviceptr data = gpus.allocate(gpu, 4096, 1);
    CUfunction function = nullptr;
    int limit = 0;
    CU(cuKernelGetFunction(&function, kernel));
    SHOW(cuFuncGetAttribute(&limit, kLimit, function));
    printf("limit %d\n", limit);
    SHOW(try_launch(function, Dim{1}, Dim{64}, 60000u, static_cast<CUstream>(nullptr), data, 3u, 1u, 64));
    SHOW(cuCtxSynchronize());
    printf("%u\n", word_at(data));
  }
  SHOW(cuLibraryUnload(library));
}

// Each device numbers its objects for itself.
TWO_DEVICES_CASE(texture_objects_on_both_devices) {
  TwoGpus gpus;
  CUdeviceptr data[2];
  CUtexObject made[2][2];
  for (int gpu = 0; gpu < 2; ++gpu) {
    data[gpu] = gpus.allocate(gpu, 4096, 1);
    for (CUtexObject& texture : made[gpu]) {
      CUDA_RESOURCE_DESC resource{};
      resource.resType = CU_RESOURCE_TYPE_LINEAR;
      resource.res.linear.devPtr = data[gpu];
      resource.res.linear.format = CU_AD_FORMAT_FLOAT;
      resource.res.linear.numChannels = 1;
      resource.res.linear.sizeInBytes = 4096;
      const CUDA_TEXTURE_DESC plain{};
      SHOW(cuTexObjectCreate(&texture, &resource, &plain, nullptr));
    }
  }
  for (int gpu : {1, 0}) {
    gpus.use(gpu);
    for (CUtexObject texture : made[gpu]) {
      CUDA_RESOURCE_DESC resource{};
      SHOW(cuTexObjectGetResourceDesc(&resource, texture));
      printf("its memory: %d\n", resource.res.linear.devPtr == data[gpu]);
      SHOW(cuTexObjectDestroy(texture));
    }
  }
}

// A thread that feeds one GPU may wait for another GPU's thread: freeing waits for its own device
// only.
TWO_DEVICES_CASE(free_does_not_wait_for_the_other_device) {
  TwoGpus gpus;
  const CUdeviceptr flag = gpus.allocate(0, 4096, 0);
  CUstream held = stream_here(), writer = stream_here();
  CU(cuStreamWaitValue32(held, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  const CUdeviceptr small = gpus.allocate(1, 4096, 1), large = gpus.allocate(1, 64 << 20, 1);
  SHOW(cuMemFree(small));
  SHOW(cuMemFree(large));
  gpus.use(0);
  SHOW(cuStreamQuery(held));
  CU(cuStreamWriteValue32(writer, flag, 1, 0));
  SHOW(cuStreamSynchronize(held));
  SHOW(cuMemFree(flag));
}

// The same for host memory, whichever device is current.
TWO_DEVICES_CASE(free_of_host_memory_does_not_wait_for_the_other_device) {
  TwoGpus gpus;
  const CUdeviceptr flag = gpus.allocate(0, 4096, 0);
  CUstream held = stream_here(), writer = stream_here();
  gpus.use(1);
  void *pinned = nullptr, *other = nullptr;
  CU(cuMemHostAlloc(&pinned, 1 << 20, 0));
  CU(cuMemHostAlloc(&other, 1 << 20, CU_MEMHOSTALLOC_PORTABLE));
  CUdeviceptr managed = 0;
  CU(cuMemAllocManaged(&managed, 1 << 16, CU_MEM_ATTACH_GLOBAL));
  // Not of the heap: under a sanitizer it lies at the same addresses in the proxy.
  void* own = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CU(cuMemHostRegister(own, 8192, 0));
  gpus.use(0);
  CU(cuStreamWaitValue32(held, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  SHOW(cuMemFreeHost(other));
  gpus.use(1);
  SHOW(cuMemFreeHost(pinned));
  SHOW(cuMemFree(managed));
  SHOW(cuMemHostUnregister(own));
  gpus.use(0);
  SHOW(cuStreamQuery(held));
  CU(cuStreamWriteValue32(writer, flag, 1, 0));
  SHOW(cuStreamSynchronize(held));
  munmap(own, 8192);
}

// It returns at once, also beside a stream of either GPU that waits for what the thread does next.
TWO_DEVICES_CASE(memcpy_peer_beside_streams_that_wait) {
  TwoGpus gpus;
  const CUdeviceptr here = gpus.allocate(0, 4096, 1), there = gpus.allocate(1, 4096, 2);
  for (int held_on = 0; held_on < 2; ++held_on) {
    gpus.use(held_on);
    Gate gate;
    CUstream held = stream_here();
    gate.stop(held);
    gpus.use(0);
    SHOW(cuMemcpyPeer(there, gpus.context[1], here, gpus.context[0], 4096));
    SHOW(cuStreamQuery(held));
    gate.open();
    for (int gpu = 0; gpu < 2; ++gpu) {
      gpus.use(gpu);
      SHOW(cuCtxSynchronize());
    }
    printf("%u\n", word_at(there));
    CU(cuMemsetD32(there, 2, 1024));
    CU(cuCtxSynchronize());
  }
}

// ---- the other device's things, with ours current ----

TWO_DEVICES_CASE(memory_of_the_other_device) {
  TwoGpus gpus;
  const CUdeviceptr theirs = gpus.allocate(1, 4096, 7);
  gpus.use(0);
  unsigned word = 9;
  int ordinal = -1;
  SHOW(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, theirs));
  printf("%d\n", ordinal);
  SHOW(cuMemGetAddressRange(nullptr, nullptr, theirs));
  SHOW(cuMemcpyDtoH(&word, theirs, 4));
  printf("%u\n", word);
  word = 8;
  SHOW(cuMemcpyHtoD(theirs, &word, 4));
  SHOW(cuMemsetD32(theirs + 4, 6, 1));
  SHOW(cuCtxSynchronize());
  gpus.use(1);
  SHOW(cuCtxSynchronize());
  printf("%u %u\n", word_at(theirs), word_at(theirs + 4));
  gpus.use(0);
  SHOW(cuMemFree(theirs));
}

TWO_DEVICES_CASE(module_of_the_other_device) {
  TwoGpus gpus;
  gpus.use(1);
  CUmodule module = nullptr;
  CU(cuModuleLoadData(&module, read_beside("globals.fatbin").data()));
  CUmodule kernels = nullptr;
  CU(cuModuleLoadData(&kernels, read_beside("kernels.fatbin").data()));
  CUfunction step = nullptr;
  CU(cuModuleGetFunction(&step, kernels, "step"));
  gpus.use(0);
  CUdeviceptr pointer = 0;
  size_t bytes = 0;
  int value = 0, ordinal = -1;
  CUfunction found = nullptr;
  SHOW(cuModuleGetGlobal(&pointer, &bytes, module, "table"));
  CU(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer));
  printf("on %d\n", ordinal);
  SHOW(cuModuleGetFunction(&found, kernels, "fill"));
  SHOW(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, step));
  SHOW(cuFuncSetAttribute(step, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50));
  SHOW(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, step, 64, 0));
  SHOW(cuModuleUnload(kernels));
  SHOW(cuModuleUnload(module));
}

TWO_DEVICES_CASE(pool_of_the_other_device) {
  TwoGpus gpus;
  gpus.use(0);
  const CUstream ours = stream_here();
  CUmemoryPool pool = nullptr;
  CU(cuDeviceGetDefaultMemPool(&pool, 1));
  CUdeviceptr memory = 0;
  SHOW(cuMemAllocFromPoolAsync(&memory, 4096, pool, ours));
  if (memory != 0) {
    int ordinal = -1;
    CU(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory));
    printf("on %d\n", ordinal);
    SHOW(cuMemFreeAsync(memory, ours));
  }
  SHOW(cuStreamSynchronize(ours));
  SHOW(cuDeviceSetMemPool(0, pool));
}

TWO_DEVICES_CASE(graph_of_the_other_device) {
  TwoGpus gpus;
  const CUdeviceptr there = gpus.allocate(1, 4096, 1);
  CUmodule module = nullptr;
  CU(cuModuleLoadData(&module, read_beside("kernels.fatbin").data()));
  CUfunction step = nullptr;
  CU(cuModuleGetFunction(&step, module, "step"));
  const CUstream theirs = stream_here();
  gpus.use(0);
  const CUstream ours = stream_here();
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CU(cuGraphCreate(&graph, 0));
  CUdeviceptr data = there;
  uint32_t factor = 3, addend = 1;
  int count = 32;
  void* arguments[] = {&data, &factor, &addend, &count};
  CUDA_KERNEL_NODE_PARAMS p{};
  p.func = step;
  p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimY = p.blockDimZ = 1;
  p.blockDimX = 32;
  p.kernelParams = arguments;
  p.ctx = gpus.context[1];
  SHOW(cuGraphAddKernelNode(&node, graph, nullptr, 0, &p));
  if (node == nullptr) return;
  CUgraphExec exec = nullptr;
  SHOW(cuGraphInstantiateWithFlags(&exec, graph, 0));
  if (exec == nullptr) return;
  SHOW(cuGraphLaunch(exec, theirs));
  SHOW(cuStreamSynchronize(theirs));
  SHOW(cuGraphLaunch(exec, ours));
  SHOW(cuStreamSynchronize(ours));
  gpus.use(1);
  printf("%u\n", word_at(there));
}

// What a node is says where it is: made again from that, it runs there.
TWO_DEVICES_CASE(parameters_of_a_node_of_the_other_device) {
  TwoGpus gpus;
  const CUdeviceptr there = gpus.allocate(1, 4096, 1);
  gpus.use(0);
  std::vector<char> image = read_beside("globals.fatbin");
  CUlibrary library;
  CUkernel bump;
  CU(cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CU(cuLibraryGetKernel(&bump, library, "bump"));
  CUgraph first, second;
  CUgraphNode node;
  CUgraphExec exec;
  CU(cuGraphCreate(&first, 0));
  CU(cuGraphCreate(&second, 0));
  int by = 5;
  void* arguments[] = {&by};
  CUDA_KERNEL_NODE_PARAMS kernel{}, same_kernel{};
  kernel.kern = bump;
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.blockDimX = 32;
  kernel.kernelParams = arguments;
  kernel.ctx = gpus.context[1];
  CU(cuGraphAddKernelNode(&node, first, nullptr, 0, &kernel));
  SHOW(cuGraphKernelNodeGetParams(node, &same_kernel));
  printf("its context: %d\n", same_kernel.ctx == gpus.context[1]);
  CU(cuGraphAddKernelNode(&node, second, nullptr, 0, &same_kernel));
  CUstreamBatchMemOpParams op{};
  op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  op.writeValue.address = there;
  op.writeValue.value = 7;
  CUDA_BATCH_MEM_OP_NODE_PARAMS write{gpus.context[1], 1, &op, 0}, same_write{};
  CU(cuGraphAddBatchMemOpNode(&node, second, nullptr, 0, &write));
  SHOW(cuGraphBatchMemOpNodeGetParams(node, &same_write));
  printf("its context: %d\n", same_write.ctx == gpus.context[1]);
  CUstream stream = stream_here();
  CU(cuGraphInstantiateWithFlags(&exec, second, 0));
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  for (int gpu = 0; gpu < 2; ++gpu) {
    gpus.use(gpu);
    CUdeviceptr address = 0;
    size_t bytes = 0;
    CU(cuLibraryGetGlobal(&address, &bytes, library, "counter"));
    printf("%u\n", word_at(address));
  }
  printf("%u\n", word_at(there));
  SHOW(cuLibraryUnload(library));
}

TWO_DEVICES_CASE(capture_on_the_other_device) {
  TwoGpus gpus;
  const CUdeviceptr there = gpus.allocate(1, 4096, 1);
  const CUstream theirs = stream_here();
  gpus.use(0);
  CUgraph graph = nullptr;
  SHOW(cuStreamBeginCapture(theirs, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  SHOW(cuMemsetD32Async(there, 5, 16, theirs));
  SHOW(cuStreamEndCapture(theirs, &graph));
  CUgraphExec exec = nullptr;
  SHOW(cuGraphInstantiateWithFlags(&exec, graph, 0));
  SHOW(cuGraphLaunch(exec, theirs));
  SHOW(cuStreamSynchronize(theirs));
  gpus.use(1);
  printf("%u\n", word_at(there));
}

// One capture that goes from our stream to theirs and back.
TWO_DEVICES_CASE(capture_across_devices) {
  TwoGpus gpus;
  const CUdeviceptr there = gpus.allocate(1, 4096, 1), here = gpus.allocate(0, 4096, 1);
  gpus.use(1);
  const CUstream theirs = stream_here();
  const CUevent back = event_here(CU_EVENT_DISABLE_TIMING);
  gpus.use(0);
  const CUstream ours = stream_here();
  const CUevent go = event_here(CU_EVENT_DISABLE_TIMING);
  CUgraph graph = nullptr;
  SHOW(cuStreamBeginCapture(ours, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  SHOW(cuMemsetD32Async(here, 2, 16, ours));
  SHOW(cuEventRecord(go, ours));
  gpus.use(1);
  SHOW(cuStreamWaitEvent(theirs, go, 0));
  SHOW(cuMemsetD32Async(there, 3, 16, theirs));
  SHOW(cuEventRecord(back, theirs));
  gpus.use(0);
  SHOW(cuStreamWaitEvent(ours, back, 0));
  SHOW(cuStreamEndCapture(ours, &graph));
  size_t count = 0;
  CU(cuGraphGetNodes(graph, nullptr, &count));
  printf("%zu nodes\n", count);
  CUgraphExec exec = nullptr;
  SHOW(cuGraphInstantiateWithFlags(&exec, graph, 0));
  SHOW(cuGraphLaunch(exec, ours));
  SHOW(cuStreamSynchronize(ours));
  printf("%u\n", word_at(here));
  gpus.use(1);
  printf("%u\n", word_at(there));
}

TWO_DEVICES_CASE(array_of_the_other_device) {
  TwoGpus gpus;
  gpus.use(1);
  CUarray array = nullptr;
  const CUDA_ARRAY_DESCRIPTOR shape{64, 1, CU_AD_FORMAT_UNSIGNED_INT32, 1};
  CU(cuArrayCreate(&array, &shape));
  gpus.use(0);
  std::vector<uint32_t> up(64, 3), down(64, 0);
  SHOW(cuMemcpyHtoA(array, 0, up.data(), 256));
  SHOW(cuMemcpyAtoH(down.data(), array, 0, 256));
  printf("equal %d\n", up == down);
  CUDA_ARRAY_DESCRIPTOR got{};
  SHOW(cuArrayGetDescriptor(&got, array));
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC texture{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  CUtexObject object = 0;
  SHOW(cuTexObjectCreate(&object, &resource, &texture, nullptr));
  if (object != 0) SHOW(cuTexObjectDestroy(object));
  SHOW(cuArrayDestroy(array));
}
