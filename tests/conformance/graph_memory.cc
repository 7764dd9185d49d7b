// Memory that graphs allocate: nodes, captured allocations, who frees it, and what the device says
// of it.
#include "tests/conformance/graph.h"

namespace {

CUDA_MEM_ALLOC_NODE_PARAMS alloc_params(size_t bytes) {
  CUDA_MEM_ALLOC_NODE_PARAMS p{};
  p.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  p.bytesize = bytes;
  return p;
}

struct AllocGraph : GraphGpu {
  CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params(4096);
  CUgraphNode alloc = nullptr, fill = nullptr;
  AllocGraph() {
    CU(cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &params));
    const auto p = fill_params(params.dptr, 33, 64);
    CU(cuGraphAddMemsetNode(&fill, graph, &alloc, 1, &p, context));
  }
};

std::vector<uint32_t> read(CUdeviceptr pointer) {
  std::vector<uint32_t> values(64);
  CU(cuMemcpyDtoH(values.data(), pointer, 256));
  return values;
}

}  // namespace

CASE(alloc_used_and_freed) {
  AllocGraph g;
  DeviceArray<uint32_t> out(std::vector<uint32_t>(64, 0));
  const auto copy = copy_params(CU_MEMORYTYPE_DEVICE, out.pointer, CU_MEMORYTYPE_DEVICE, g.params.dptr, 256);
  CUgraphNode copied = nullptr, freed = nullptr;
  SHOW(cuGraphAddMemcpyNode(&copied, g.graph, &g.fill, 1, &copy, g.context));
  SHOW(cuGraphAddMemFreeNode(&freed, g.graph, &copied, 1, g.params.dptr));
  printf("types %s, %s\n", type_of(g.alloc), type_of(freed));
  CUgraphExec exec = g.instantiate();
  for (int i = 0; i < 3; ++i) g.run(exec);
  print_values("out", out.read(), 1);
}

CASE(alloc_parameters) {
  AllocGraph g;
  CUDA_MEM_ALLOC_NODE_PARAMS got{};
  SHOW(cuGraphMemAllocNodeGetParams(g.alloc, &got));
  printf("bytes %zu, location %d of device %d, address the same %d\n", got.bytesize, static_cast<int>(got.poolProps.location.type), got.poolProps.location.id,
         got.dptr == g.params.dptr);
  CUgraphNode freed = nullptr;
  CUdeviceptr pointer = 0;
  CU(cuGraphAddMemFreeNode(&freed, g.graph, &g.fill, 1, g.params.dptr));
  SHOW(cuGraphMemFreeNodeGetParams(freed, &pointer));
  printf("address the same %d\n", pointer == g.params.dptr);
  SHOW(cuGraphMemAllocNodeGetParams(g.alloc, nullptr));
  SHOW(cuGraphMemFreeNodeGetParams(freed, nullptr));
}

CASE(alloc_bad_parameters) {
  GraphGpu gpu;
  CUgraphNode node = nullptr;
  SHOW(cuGraphAddMemAllocNode(&node, gpu.graph, nullptr, 0, nullptr));
  auto p = alloc_params(0);
  SHOW(cuGraphAddMemAllocNode(&node, gpu.graph, nullptr, 0, &p));
  p = alloc_params(64);
  p.poolProps.location.id = 99;
  SHOW(cuGraphAddMemAllocNode(&node, gpu.graph, nullptr, 0, &p));
  p = alloc_params(64);
  p.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
  SHOW(cuGraphAddMemAllocNode(&node, gpu.graph, nullptr, 0, &p));
}

CASE(free_bad_address) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(64);
  CUgraphNode node = nullptr;
  SHOW(cuGraphAddMemFreeNode(&node, gpu.graph, nullptr, 0, 0));
  SHOW(cuGraphAddMemFreeNode(&node, gpu.graph, nullptr, 0, data.pointer));
}

CASE(free_twice_in_the_graph) {
  AllocGraph g;
  CUgraphNode freed = nullptr, again = nullptr;
  SHOW(cuGraphAddMemFreeNode(&freed, g.graph, &g.fill, 1, g.params.dptr));
  SHOW(cuGraphAddMemFreeNode(&again, g.graph, &freed, 1, g.params.dptr));
}

CASE(freed_by_the_program_in_a_stream) {
  AllocGraph g;
  CUgraphExec exec = g.instantiate();
  g.run(exec);
  print_values("memory", read(g.params.dptr), 1);
  SHOW(cuMemFreeAsync(g.params.dptr, g.stream));
  SHOW(cuStreamSynchronize(g.stream));
  g.run(exec);
  print_values("again", read(g.params.dptr), 1);
  SHOW(cuMemFreeAsync(g.params.dptr, g.stream));
  SHOW(cuStreamSynchronize(g.stream));
}

CASE(freed_by_the_program_at_once) {
  AllocGraph g;
  g.run(g.instantiate());
  print_values("memory", read(g.params.dptr), 1);
  SHOW(cuMemFree(g.params.dptr));
}

CASE(launched_again_before_the_free) {
  AllocGraph g;
  CUgraphExec exec = g.instantiate();
  SHOW(cuGraphLaunch(exec, g.stream));
  SHOW(cuGraphLaunch(exec, g.stream));
  SHOW(cuMemFreeAsync(g.params.dptr, g.stream));
  SHOW(cuGraphLaunch(exec, g.stream));
  SHOW(cuMemFreeAsync(g.params.dptr, g.stream));
  SHOW(cuStreamSynchronize(g.stream));
}

CASE(freed_by_the_next_launch) {
  AllocGraph g;
  CUgraphExec exec = nullptr;
  SHOW(cuGraphInstantiateWithFlags(&exec, g.graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
  for (int i = 0; i < 3; ++i) SHOW(cuGraphLaunch(exec, g.stream));
  SHOW(cuStreamSynchronize(g.stream));
  print_values("memory", read(g.params.dptr), 1);
  SHOW(cuMemFreeAsync(g.params.dptr, g.stream));
  SHOW(cuStreamSynchronize(g.stream));
}

CASE(freed_by_another_graph) {
  AllocGraph g;
  CUgraph other = nullptr;
  CU(cuGraphCreate(&other, 0));
  CUgraphNode freed = nullptr;
  SHOW(cuGraphAddMemFreeNode(&freed, other, nullptr, 0, g.params.dptr));
  g.run(g.instantiate());
  g.run(g.instantiate(other));
}

CASE(restrictions) {
  AllocGraph g;
  CUgraph clone = nullptr, parent = nullptr;
  SHOW(cuGraphClone(&clone, g.graph));
  SHOW(cuGraphDestroyNode(g.alloc));
  SHOW(cuGraphRemoveDependencies(g.graph, &g.alloc, &g.fill, nullptr, 1));
  CU(cuGraphCreate(&parent, 0));
  CUgraphNode node = nullptr;
  SHOW(cuGraphAddChildGraphNode(&node, parent, nullptr, 0, g.graph));
  CUgraphExec first = nullptr, second = nullptr;
  SHOW(cuGraphInstantiateWithFlags(&first, g.graph, 0));
  SHOW(cuGraphInstantiateWithFlags(&second, g.graph, 0));
  SHOW(cuGraphExecDestroy(first));
  SHOW(cuGraphInstantiateWithFlags(&second, g.graph, 0));
}

CASE(captured_allocation) {
  GraphGpu gpu;
  DeviceArray<uint32_t> out(std::vector<uint32_t>(64, 0));
  CUdeviceptr pointer = 0;
  gpu.begin();
  SHOW(cuMemAllocAsync(&pointer, 4096, gpu.stream));
  CU(cuMemsetD32Async(pointer, 21, 64, gpu.stream));
  CU(cuMemcpyDtoDAsync(out.pointer, pointer, 256, gpu.stream));
  SHOW(cuMemFreeAsync(pointer, gpu.stream));
  CUgraph graph = gpu.end();
  print_types("captured", graph);
  CUgraphExec exec = gpu.instantiate(graph);
  for (int i = 0; i < 3; ++i) gpu.run(exec);
  print_values("out", out.read(), 1);
}

CASE(captured_allocation_freed_later) {
  GraphGpu gpu;
  CUdeviceptr pointer = 0;
  gpu.begin();
  CU(cuMemAllocAsync(&pointer, 4096, gpu.stream));
  CU(cuMemsetD32Async(pointer, 22, 64, gpu.stream));
  CUgraphExec exec = gpu.instantiate(gpu.end());
  gpu.run(exec);
  print_values("memory", read(pointer), 1);
  SHOW(cuMemFreeAsync(pointer, gpu.stream));
  SHOW(cuStreamSynchronize(gpu.stream));
}

CASE(captured_allocation_used_by_a_kernel) {
  GraphGpu gpu;
  Module module("kernels.fatbin");
  std::vector<uint32_t> host(64, 0);
  CUdeviceptr pointer = 0;
  gpu.begin();
  CU(cuMemAllocAsync(&pointer, 256, gpu.stream));
  CU(cuMemsetD32Async(pointer, 2, 64, gpu.stream));
  LAUNCH(module.function("step"), {1}, {64}, 0, gpu.stream, pointer, 10u, 1u, 64);
  CU(cuMemcpyDtoHAsync(host.data(), pointer, 256, gpu.stream));
  CU(cuMemFreeAsync(pointer, gpu.stream));
  CUgraphExec exec = gpu.instantiate(gpu.end());
  gpu.run(exec);
  gpu.run(exec);
  print_values("host", host, 1);
}

CASE(captured_allocation_copied_to_pinned_memory) {
  GraphGpu gpu;
  uint32_t* host = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&host), 256, 0));
  CUdeviceptr pointer = 0;
  gpu.begin();
  CU(cuMemAllocAsync(&pointer, 256, gpu.stream));
  CU(cuMemsetD32Async(pointer, 23, 64, gpu.stream));
  SHOW(cuMemcpyDtoHAsync(host, pointer, 256, gpu.stream));
  CU(cuMemFreeAsync(pointer, gpu.stream));
  CUgraphExec exec = gpu.instantiate(gpu.end());
  gpu.run(exec);
  gpu.run(exec);
  print_values("host", std::vector<uint32_t>(host, host + 64), 1);
  CU(cuMemFreeHost(host));
}

CASE(captured_allocation_copied_by_way_of_other_memory) {
  GraphGpu gpu;
  DeviceArray<uint32_t> other(64);
  std::vector<uint32_t> in(64, 24), out(64, 0);
  CUdeviceptr pointer = 0;
  gpu.begin();
  CU(cuMemAllocAsync(&pointer, 256, gpu.stream));
  SHOW(cuMemcpyHtoDAsync(other.pointer, in.data(), 256, gpu.stream));
  CU(cuMemcpyDtoDAsync(pointer, other.pointer, 256, gpu.stream));
  CU(cuMemsetD32Async(pointer, 25, 32, gpu.stream));
  CU(cuMemcpyDtoDAsync(other.pointer, pointer, 256, gpu.stream));
  SHOW(cuMemcpyDtoHAsync(out.data(), other.pointer, 256, gpu.stream));
  CU(cuMemFreeAsync(pointer, gpu.stream));
  CUgraphExec exec = gpu.instantiate(gpu.end());
  gpu.run(exec);
  gpu.run(exec);
  print_values("parts", std::vector<uint32_t>{out[0], out[31], out[32], out[63]});
}

CASE(captured_allocation_from_a_pool) {
  GraphGpu gpu;
  CUmemoryPool pool = nullptr;
  CU(cuDeviceGetDefaultMemPool(&pool, gpu.device));
  CUdeviceptr pointer = 0;
  gpu.begin();
  SHOW(cuMemAllocFromPoolAsync(&pointer, 256, pool, gpu.stream));
  SHOW(cuMemFreeAsync(pointer, gpu.stream));
  print_types("captured", gpu.end());
}

CASE(captured_free_of_ordinary_memory) {
  GraphGpu gpu;
  CUdeviceptr pointer = 0;
  CU(cuMemAllocAsync(&pointer, 256, gpu.stream));
  CU(cuStreamSynchronize(gpu.stream));
  gpu.begin();
  SHOW(cuMemFreeAsync(pointer, gpu.stream));
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(gpu.stream, &graph));
}

CASE(zero_bytes_in_a_capture) {
  GraphGpu gpu;
  CUdeviceptr pointer = 0;
  gpu.begin();
  SHOW(cuMemAllocAsync(&pointer, 0, gpu.stream));
  SHOW(cuMemAllocAsync(nullptr, 16, gpu.stream));
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(gpu.stream, &graph));
}

CASE(pointer_attributes) {
  AllocGraph g;
  g.run(g.instantiate());
  CUmemorytype type{};
  CUcontext context = nullptr;
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, g.params.dptr));
  printf("type %d\n", static_cast<int>(type));
  SHOW(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, g.params.dptr));
  CU(cuMemFree(g.params.dptr));
}

CASE(device_attributes) {
  Gpu gpu;
  for (int attr = 0; attr < 4; ++attr) {
    cuuint64_t value = 99;
    SHOW(cuDeviceGetGraphMemAttribute(gpu.device, static_cast<CUgraphMem_attribute>(attr), &value));
    printf("  %llu\n", static_cast<unsigned long long>(value));
  }
  cuuint64_t zero = 0, one = 1;
  SHOW(cuDeviceSetGraphMemAttribute(gpu.device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
  SHOW(cuDeviceSetGraphMemAttribute(gpu.device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero));
  SHOW(cuDeviceSetGraphMemAttribute(gpu.device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &one));
  SHOW(cuDeviceSetGraphMemAttribute(gpu.device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &zero));
  SHOW(cuDeviceGetGraphMemAttribute(gpu.device, static_cast<CUgraphMem_attribute>(9), &zero));
  SHOW(cuDeviceGetGraphMemAttribute(gpu.device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, nullptr));
  SHOW(cuDeviceGetGraphMemAttribute(99, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
  SHOW(cuDeviceSetGraphMemAttribute(gpu.device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, nullptr));
}

CASE(trim) {
  Gpu gpu;
  SHOW(cuDeviceGraphMemTrim(gpu.device));
  SHOW(cuDeviceGraphMemTrim(99));
}

CASE(typed_allocation) {
  GraphGpu gpu;
  CUgraphNodeParams p{};
  p.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  p.alloc.poolProps = alloc_params(1).poolProps;
  p.alloc.bytesize = 512;
  CUgraphNode node = nullptr, freed = nullptr;
  SHOW(cuGraphAddNode(&node, gpu.graph, nullptr, nullptr, 0, &p));
  printf("address %d\n", p.alloc.dptr != 0);
  CUgraphNodeParams f{};
  f.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  f.free.dptr = p.alloc.dptr;
  SHOW(cuGraphAddNode(&freed, gpu.graph, &node, nullptr, 1, &f));
  gpu.run(gpu.instantiate());
}
