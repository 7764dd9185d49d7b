// Copies and fills in memory that the program mapped itself (cuMemMap), while access to it comes
// and goes: in one mapping, across several, in a graph's nodes, and between two GPUs.
#include "tests/conformance/two_gpus.h"

namespace {

constexpr size_t kBlock = 2 << 20;

// One block of new memory; nobody may touch it yet.
void map_at(CUdeviceptr address, int gpu = 0) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu};
  CUmemGenericAllocationHandle memory = 0;
  CU(cuMemCreate(&memory, kBlock, &prop, 0));
  CU(cuMemMap(address, kBlock, 0, memory, 0));
  CU(cuMemRelease(memory));
}

CUdeviceptr mapped(int pieces, int gpu = 0) {
  CUdeviceptr address = 0;
  CU(cuMemAddressReserve(&address, pieces * kBlock, 0, 0, 0));
  for (int i = 0; i < pieces; ++i) map_at(address + i * kBlock, gpu);
  return address;
}

CUresult allow(CUdeviceptr address, size_t bytes, int gpu = 0, CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
  CUmemAccessDesc desc{{CU_MEM_LOCATION_TYPE_DEVICE, gpu}, flags};
  return cuMemSetAccess(address, bytes, &desc, 1);
}

// Every way to touch 16 bytes, twice: what was right the first time may be wrong the second.
void touch(CUdeviceptr at, CUdeviceptr plain) {
  uint32_t words[4] = {1, 2, 3, 4};
  for (int round = 0; round < 2; ++round) {
    SHOW(cuMemcpyHtoD(at, words, sizeof words));
    SHOW(cuMemsetD32Async(at + 8, 9, 1, nullptr));
    SHOW(cuMemcpyDtoDAsync(plain, at, sizeof words, nullptr));
    SHOW(cuMemcpyDtoD(at, plain, sizeof words));
    SHOW(cuMemcpyDtoH(words, at, sizeof words));
    printf("%u %u %u %u\n", words[0], words[1], words[2], words[3]);
  }
  SHOW(cuCtxSynchronize());
}

CUDA_MEMCPY3D row(CUdeviceptr dst, CUdeviceptr src) {
  CUDA_MEMCPY3D p{};
  p.srcMemoryType = p.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  p.srcDevice = src, p.dstDevice = dst;
  p.WidthInBytes = 16, p.Height = p.Depth = 1;
  return p;
}

CUdeviceptr plain_memory(size_t bytes = 4096) {
  CUdeviceptr p = 0;
  CU(cuMemAlloc(&p, bytes));
  return p;
}
CUdeviceptr pitched_memory() {
  CUdeviceptr p = 0;
  size_t pitch = 0;
  CU(cuMemAllocPitch(&p, &pitch, 1000, 4, 4));
  return p;
}
CUdeviceptr pool_memory(CUmemoryPool pool = nullptr) {
  CUdeviceptr p = 0;
  if (pool == nullptr) CU(cuMemAllocAsync(&p, 4096, nullptr));
  else CU(cuMemAllocFromPoolAsync(&p, 4096, pool, nullptr));
  CU(cuStreamSynchronize(nullptr));
  return p;
}
CUdeviceptr open_memory() {
  const CUdeviceptr p = mapped(1);
  CU(allow(p, kBlock));
  return p;
}
CUdeviceptr pinned_memory() {
  void* p = nullptr;
  CU(cuMemHostAlloc(&p, 4096, 0));
  return reinterpret_cast<CUdeviceptr>(p);
}
CUdeviceptr managed_memory() {
  CUdeviceptr p = 0;
  CU(cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL));
  return p;
}

CUgraphExec copy_instance(const Gpu& gpu, CUdeviceptr dst, CUdeviceptr src, CUgraphNode* node) {
  CUgraph graph;
  CU(cuGraphCreate(&graph, 0));
  const CUDA_MEMCPY3D copy = row(dst, src);
  CU(cuGraphAddMemcpyNode(node, graph, nullptr, 0, &copy, gpu.context));
  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, graph, 0));
  return exec;
}

}  // namespace

CASE(access_comes_and_goes) {
  Gpu gpu;
  DeviceArray<uint32_t> plain(std::vector<uint32_t>(4, 5));
  const CUdeviceptr at = mapped(1) + 64;
  touch(at, plain.pointer);
  for (auto flags : {CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}) {
    SHOW(allow(at - 64, kBlock, 0, flags));
    touch(at, plain.pointer);
  }
}

CASE(another_mapping_at_the_same_address) {
  Gpu gpu;
  DeviceArray<uint32_t> plain(std::vector<uint32_t>(4, 5));
  const CUdeviceptr at = mapped(1);
  CU(allow(at, kBlock));
  touch(at, plain.pointer);
  CU(cuMemUnmap(at, kBlock));
  SHOW(cuMemcpyDtoD(plain.pointer, at, 16));
  map_at(at);
  SHOW(cuMemcpyDtoD(plain.pointer, at, 16));
  CU(allow(at, kBlock));
  touch(at, plain.pointer);
}

CASE(across_two_mappings) {
  Gpu gpu;
  DeviceArray<uint32_t> plain(std::vector<uint32_t>(4, 5));
  const CUdeviceptr base = mapped(2), border = base + kBlock - 8;
  SHOW(allow(base, 2 * kBlock));
  touch(border, plain.pointer);
}

FAULTING_CASE(across_into_a_mapping_without_access) {
  Gpu gpu;
  DeviceArray<uint32_t> plain(std::vector<uint32_t>(4, 5));
  const CUdeviceptr base = mapped(2), border = base + kBlock - 8;
  SHOW(allow(base, 2 * kBlock));
  touch(border, plain.pointer);
  SHOW(allow(base + kBlock, kBlock, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
  touch(border, plain.pointer);
  SHOW(cuMemcpyDtoD(plain.pointer, base, 16));
}

CASE(across_many_mappings) {
  Gpu gpu;
  constexpr int kPieces = 12;
  const CUdeviceptr base = mapped(kPieces);
  CU(allow(base, kPieces * kBlock));
  std::vector<uint32_t> words(kPieces * kBlock / 4 - 2);
  for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<uint32_t>(i * 2654435761u);
  SHOW(cuMemcpyHtoD(base + 4, words.data(), words.size() * 4));
  SHOW(cuMemsetD32(base + 4 + 5 * kBlock, 7, 2 * kBlock / 4));
  std::vector<uint32_t> back(words.size());
  SHOW(cuMemcpyDtoH(back.data(), base + 4, back.size() * 4));
  for (size_t i = 5 * kBlock / 4; i < 7 * kBlock / 4; ++i) words[i] = 7;
  printf("equal %d\n", words == back);
}

CASE(copy_nodes_are_given_mapped_memory) {
  Gpu gpu;
  DeviceArray<uint32_t> plain(std::vector<uint32_t>(4, 5));
  const CUdeviceptr open = mapped(1), other = mapped(1), closed = mapped(1);
  CU(allow(open, kBlock));
  CU(allow(other, kBlock));
  CU(cuMemsetD32(open, 6, 4));
  CU(cuMemsetD32(other, 7, 8));
  DeviceArray<uint32_t> target(4);
  CUgraphNode node;
  CUgraphExec exec = copy_instance(gpu, target.pointer, plain.pointer, &node);
  const auto update = [&](CUdeviceptr source) {
    const CUDA_MEMCPY3D copy = row(target.pointer, source);
    SHOW(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, gpu.context));
    SHOW(cuGraphLaunch(exec, nullptr));
    uint32_t word = 0;
    SHOW(cuMemcpyDtoH(&word, target.pointer + 12, 4));
    printf("%u\n", word);
  };
  for (int round = 0; round < 2; ++round) {
    for (CUdeviceptr source : {open, other, plain.pointer, other + 16}) update(source);
  }
  update(open);
  const CUDA_MEMCPY3D copy = row(target.pointer, closed);
  SHOW(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, gpu.context));
  update(other);
}

// Every kind of memory as the source that an instance's copy began with, and as the one it is
// given.
CASE(copy_nodes_change_the_kind_of_memory) {
  Gpu gpu;
  CUmemoryPool made = nullptr;
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CU(cuMemPoolCreate(&made, &props));
  const struct {
    const char* name;
    CUdeviceptr first, second;
  } kinds[] = {
      {"plain", plain_memory(), plain_memory()}, {"large", plain_memory(64 << 20), plain_memory(64 << 20)},   {"pitched", pitched_memory(), pitched_memory()},
      {"pool", pool_memory(), pool_memory()},    {"own pool", pool_memory(made), pool_memory(made)},            {"mapped", open_memory(), open_memory()},
      {"pinned", pinned_memory(), pinned_memory()}, {"managed", managed_memory(), managed_memory()},
  };
  const CUdeviceptr target = plain_memory(), pool_target = pool_memory(), mapped_target = open_memory();
  CUgraphNode node;
  for (const auto& from : kinds) {
    CUgraphExec exec = copy_instance(gpu, target, from.first, &node);
    printf("from %s:", from.name);
    for (const auto& to : kinds) {
      const CUDA_MEMCPY3D copy = row(target, to.second);
      printf(" %d", static_cast<int>(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, gpu.context)));
    }
    printf("\n");
  }
  CUgraphExec exec = copy_instance(gpu, target, kinds[0].first, &node);
  for (CUdeviceptr to : {pool_target, mapped_target, target}) {
    const CUDA_MEMCPY3D copy = row(to, kinds[0].second);
    printf("to another target: %d\n", static_cast<int>(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, gpu.context)));
  }
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = target, fill.elementSize = 4, fill.width = 4, fill.height = 1;
  CUgraph graph;
  CU(cuGraphCreate(&graph, 0));
  CU(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, gpu.context));
  CU(cuGraphInstantiate(&exec, graph, 0));
  for (const auto& to : kinds) {
    fill.dst = to.first;
    printf("memset of %s: %d\n", to.name, static_cast<int>(cuGraphExecMemsetNodeSetParams(exec, node, &fill, gpu.context)));
  }
}

// The same without the host's memory, which in the proxy is of another kind than all of the GPU's.
CASE(copy_nodes_change_the_kind_of_gpu_memory) {
  Gpu gpu;
  const struct {
    const char* name;
    CUdeviceptr first, second;
  } kinds[] = {{"plain", plain_memory(), plain_memory()}, {"pool", pool_memory(), pool_memory()}, {"mapped", open_memory(), open_memory()}};
  CUgraphNode node;
  for (const auto& from : kinds) {
    for (const auto& other : kinds) {
      CUgraphExec exec = copy_instance(gpu, other.first, from.first, &node);
      for (const auto& to : kinds) {
        const CUDA_MEMCPY3D source = row(other.second, to.second), target = row(to.second, from.second);
        printf("%s to %s, then from %s", from.name, other.name, to.name);
        printf(" %d", static_cast<int>(cuGraphExecMemcpyNodeSetParams(exec, node, &source, gpu.context)));
        printf(", then to it %d\n", static_cast<int>(cuGraphExecMemcpyNodeSetParams(exec, node, &target, gpu.context)));
      }
      SHOW(cuGraphLaunch(exec, nullptr));
      SHOW(cuStreamSynchronize(nullptr));
    }
  }
}

CASE(rows_in_mapped_memory) {
  Gpu gpu;
  DeviceArray<uint32_t> plain(64);
  CU(cuMemsetD32(plain.pointer, 5, 64));
  const CUdeviceptr base = mapped(2), border = base + kBlock - 24;
  CU(allow(base, 2 * kBlock));
  SHOW(cuMemsetD2D32(border, 16, 3, 2, 4));
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.srcDevice = border, rows.srcPitch = 16;
  rows.dstDevice = plain.pointer, rows.dstPitch = 32;
  rows.WidthInBytes = 8, rows.Height = 4;
  SHOW(cuMemcpy2D(&rows));
  uint32_t words[32] = {};
  rows.dstMemoryType = CU_MEMORYTYPE_HOST, rows.dstHost = words;
  SHOW(cuMemcpy2D(&rows));
  for (uint32_t word : words) printf("%u ", word);
  printf("\n");
  CU(cuMemcpyDtoH(words, plain.pointer, sizeof words));
  for (uint32_t word : words) printf("%u ", word);
  printf("\n");
}

CASE(a_part_of_a_mapping_is_closed) {
  Gpu gpu;
  const CUdeviceptr at = mapped(2);
  CU(allow(at, 2 * kBlock));
  SHOW(cuMemsetD32(at, 1, 4));
  SHOW(allow(at + kBlock / 2, kBlock, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
  SHOW(allow(at + kBlock / 2, kBlock / 2, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
  SHOW(allow(at, kBlock / 2, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
  for (CUdeviceptr place : {at, at + kBlock / 2, at + kBlock, at + kBlock + kBlock / 2}) SHOW(cuMemsetD32(place, 1, 4));
}

CASE(a_refused_change_of_access) {
  Gpu gpu;
  const CUdeviceptr at = mapped(1);
  CU(allow(at, kBlock));
  SHOW(cuMemsetD32(at, 1, 4));
  CUmemAccessDesc both[2] = {{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_NONE},
                             {{CU_MEM_LOCATION_TYPE_DEVICE, 1000}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
  SHOW(cuMemSetAccess(at, kBlock, both, 2));
  SHOW(cuMemsetD32(at, 1, 4));
  both[1] = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  SHOW(cuMemSetAccess(at, kBlock, both, 2));
  SHOW(cuMemsetD32(at, 1, 4));
}

CASE(captured_in_and_across_mappings) {
  Gpu gpu;
  DeviceArray<uint32_t> plain(4);
  const CUdeviceptr base = mapped(3), border = base + kBlock - 8;
  CU(allow(base, 2 * kBlock));
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (CUdeviceptr at : {base, border, base + 2 * kBlock}) {
    SHOW(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    SHOW(cuMemsetD32Async(at, 8, 4, stream));
    SHOW(cuMemcpyDtoDAsync(plain.pointer, at, 16, stream));
    CUgraph graph = nullptr;
    SHOW(cuStreamEndCapture(stream, &graph));
    if (graph == nullptr) continue;
    CUgraphExec exec = nullptr;
    SHOW(cuGraphInstantiate(&exec, graph, 0));
    if (exec == nullptr) continue;
    SHOW(cuGraphLaunch(exec, stream));
    SHOW(cuStreamSynchronize(stream));
    uint32_t words[4] = {};
    SHOW(cuMemcpyDtoH(words, plain.pointer, sizeof words));
    printf("%u %u\n", words[0], words[3]);
  }
}

CASE(in_a_created_context) {
  Gpu gpu;
  DeviceArray<uint32_t> plain(std::vector<uint32_t>(4, 5));
  const CUdeviceptr at = mapped(1);
  CU(allow(at, kBlock));
  touch(at, plain.pointer);
  CUcontext made = nullptr;
  CU(cuCtxCreate(&made, nullptr, 0, 0));
  touch(at + 64, plain.pointer);
  CU(cuCtxDestroy(made));
  CU(cuCtxSetCurrent(gpu.context));
  touch(at + 128, plain.pointer);
}

TWO_DEVICES_CASE(open_to_its_own_gpu_only) {
  TwoGpus gpus;
  CUdeviceptr plain[2];
  for (int gpu = 0; gpu < 2; ++gpu) {
    gpus.use(gpu);
    CU(cuMemAlloc(&plain[gpu], 16));
    CU(cuMemsetD32(plain[gpu], 50 + static_cast<unsigned>(gpu), 4));
    CU(cuCtxSynchronize());
  }
  const CUdeviceptr at = mapped(1, 1);
  SHOW(allow(at, kBlock, 1));
  for (int gpu = 0; gpu < 2; ++gpu) {
    gpus.use(gpu);
    printf("gpu %d\n", gpu);
    for (CUdeviceptr memory : plain) touch(at, memory);
  }
}
