// cuPointerGetAttribute, cuPointerGetAttributes, cuPointerSetAttribute and cuMemGetAddressRange,
// for every kind of memory.
#include <iterator>

#include "tests/conformance/case.h"

namespace {

constexpr CUpointer_attribute kAll[] = {
    CU_POINTER_ATTRIBUTE_CONTEXT,          CU_POINTER_ATTRIBUTE_MEMORY_TYPE,       CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
    CU_POINTER_ATTRIBUTE_HOST_POINTER,     CU_POINTER_ATTRIBUTE_P2P_TOKENS,        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
    CU_POINTER_ATTRIBUTE_BUFFER_ID,        CU_POINTER_ATTRIBUTE_IS_MANAGED,        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,        CU_POINTER_ATTRIBUTE_MAPPED,
    CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,     CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,    CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
    CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID,  CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
    CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES};

// Every attribute of one address as numbers that are the same on every machine.
void describe(CUdeviceptr p, CUcontext ours) {
  for (CUpointer_attribute attribute : kAll) {
    uint64_t value[4] = {0xababababababababull, 0, 0, 0};
    CUresult code = cuPointerGetAttribute(value, attribute, p);
    printf("%2d %s", static_cast<int>(attribute), code_name(code));
    auto low = static_cast<uint32_t>(value[0]);
    if (code == CUDA_SUCCESS) {
      switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT: printf(" %s", value[0] == 0 ? "none" : value[0] == reinterpret_cast<uint64_t>(ours) ? "ours" : "other"); break;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_HOST_POINTER: printf(" %s", value[0] == p ? "same" : value[0] == 0 ? "none" : "other"); break;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: printf(" %lld before", static_cast<long long>(p - value[0])); break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE: printf(" %llu", static_cast<unsigned long long>(value[0])); break;
        case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: break;  // differ from machine to machine
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: printf(" %s", value[0] == 0 ? "none" : "a pool"); break;
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: printf(" %llu", static_cast<unsigned long long>(value[0])); break;
        default: printf(" %d", static_cast<int>(low)); break;
      }
    }
    printf("\n");
  }
}

}  // namespace

CASE(device_memory) {
  Gpu gpu;
  DeviceArray<char> memory(100000);
  describe(memory.pointer + 1000, gpu.context);
}

CASE(pinned_memory) {
  Gpu gpu;
  void* p = nullptr;
  CU(cuMemHostAlloc(&p, 100000, CU_MEMHOSTALLOC_DEVICEMAP));
  describe(reinterpret_cast<CUdeviceptr>(p) + 1000, gpu.context);
}

CASE(registered_memory) {
  Gpu gpu;
  static char memory[100000];
  CU(cuMemHostRegister(memory, sizeof memory, 0));
  describe(reinterpret_cast<CUdeviceptr>(memory) + 1000, gpu.context);
}

CASE(managed_memory) {
  Gpu gpu;
  CUdeviceptr p = 0;
  CU(cuMemAllocManaged(&p, 100000, CU_MEM_ATTACH_GLOBAL));
  describe(p + 1000, gpu.context);
}

CASE(module_variable) {
  Gpu gpu;
  Module module("globals.fatbin");
  CUdeviceptr p = 0;
  size_t bytes = 0;
  CU(cuModuleGetGlobal(&p, &bytes, module.handle, "table"));
  describe(p + 4, gpu.context);
}

CASE(pageable_memory) {
  Gpu gpu;
  static char memory[1000];
  describe(reinterpret_cast<CUdeviceptr>(memory), gpu.context);
}

CASE(null_pointer) {
  Gpu gpu;
  describe(0, gpu.context);
}

CASE(freed_memory) {
  Gpu gpu;
  CUdeviceptr p = 0;
  CU(cuMemAlloc(&p, 100 << 20));
  CU(cuMemFree(p));
  describe(p, gpu.context);
}

CASE(one_past_the_end) {
  Gpu gpu;
  DeviceArray<char> memory(64 << 20);
  unsigned type = 9;
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory.pointer + (64 << 20) - 1));
  printf("%u\n", type);
}

CASE(bad_arguments) {
  Gpu gpu;
  DeviceArray<char> memory(1000);
  uint64_t value = 0;
  SHOW(cuPointerGetAttribute(nullptr, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory.pointer));
  SHOW(cuPointerGetAttribute(&value, static_cast<CUpointer_attribute>(0), memory.pointer));
  SHOW(cuPointerGetAttribute(&value, static_cast<CUpointer_attribute>(99), memory.pointer));
}

CASE(several_at_once) {
  Gpu gpu;
  DeviceArray<char> memory(1000);
  unsigned type = 9, managed = 9;
  int ordinal = 9;
  void* host = &type;
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                 CU_POINTER_ATTRIBUTE_HOST_POINTER};
  void* data[] = {&type, &managed, &ordinal, &host};
  SHOW(cuPointerGetAttributes(4, names, data, memory.pointer));
  printf("%u %u %d %s\n", type, managed, ordinal, host == nullptr ? "none" : "some");
}

CASE(several_at_once_of_unknown_memory) {
  Gpu gpu;
  static char memory[1000];
  uint64_t values[std::size(kAll)];
  void* data[std::size(kAll)];
  CUpointer_attribute names[std::size(kAll)];
  for (size_t i = 0; i < std::size(kAll); ++i) {
    values[i] = 0;
    data[i] = &values[i];
    names[i] = kAll[i];
  }
  SHOW(cuPointerGetAttributes(4, names, data, reinterpret_cast<CUdeviceptr>(memory)));
  for (size_t i = 5; i < std::size(kAll); ++i) {  // without the tokens
    CUresult code = cuPointerGetAttributes(1, &names[i], &data[i], reinterpret_cast<CUdeviceptr>(memory));
    printf("%d %s %lld\n", static_cast<int>(names[i]), code_name(code), names[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER ? 0 : static_cast<long long>(values[i]));
  }
}

CASE(several_at_once_bad_arguments) {
  Gpu gpu;
  DeviceArray<char> memory(1000);
  unsigned type = 9;
  CUpointer_attribute name = CU_POINTER_ATTRIBUTE_MEMORY_TYPE, bad = static_cast<CUpointer_attribute>(99);
  void* data = &type;
  void* none = nullptr;
  SHOW(cuPointerGetAttributes(0, &name, &data, memory.pointer));
  SHOW(cuPointerGetAttributes(1, nullptr, &data, memory.pointer));
  SHOW(cuPointerGetAttributes(1, &name, nullptr, memory.pointer));
  SHOW(cuPointerGetAttributes(1, &bad, &data, memory.pointer));
  SHOW(cuPointerGetAttributes(1, &name, &none, memory.pointer));
}

CASE(synchronous_operations_can_be_asked_for) {
  Gpu gpu;
  DeviceArray<char> memory(1000);
  unsigned on = 1, value = 9;
  SHOW(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory.pointer));
  printf("%u\n", value);
  SHOW(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory.pointer));
  SHOW(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory.pointer));
  printf("%u\n", value);
  on = 0;
  SHOW(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory.pointer + 10));
  SHOW(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory.pointer));
  printf("%u\n", value);
}

CASE(set_bad_arguments) {
  Gpu gpu;
  DeviceArray<char> memory(1000);
  static char pageable[100];
  unsigned on = 1;
  SHOW(cuPointerSetAttribute(nullptr, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory.pointer));
  SHOW(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory.pointer));
  SHOW(cuPointerSetAttribute(&on, static_cast<CUpointer_attribute>(99), memory.pointer));
  SHOW(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 0));
  SHOW(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, reinterpret_cast<CUdeviceptr>(pageable)));
}

CASE(buffer_ids_differ) {
  Gpu gpu;
  DeviceArray<char> one(1000), two(1000);
  unsigned long long a = 0, b = 0, inside = 0;
  CU(cuPointerGetAttribute(&a, CU_POINTER_ATTRIBUTE_BUFFER_ID, one.pointer));
  CU(cuPointerGetAttribute(&inside, CU_POINTER_ATTRIBUTE_BUFFER_ID, one.pointer + 999));
  CU(cuPointerGetAttribute(&b, CU_POINTER_ATTRIBUTE_BUFFER_ID, two.pointer));
  printf("same inside %d, differ %d\n", a == inside, a != b);
}

CASE(address_range) {
  Gpu gpu;
  DeviceArray<char> memory(100000);
  CUdeviceptr base = 0;
  size_t size = 0;
  SHOW(cuMemGetAddressRange(&base, &size, memory.pointer + 5));
  printf("offset %lld size %zu\n", static_cast<long long>(memory.pointer + 5 - base), size);
  SHOW(cuMemGetAddressRange(nullptr, &size, memory.pointer));
  SHOW(cuMemGetAddressRange(&base, nullptr, memory.pointer));
  SHOW(cuMemGetAddressRange(nullptr, nullptr, memory.pointer));
}

CASE(address_range_of_other_memory) {
  Gpu gpu;
  CUdeviceptr base = 0;
  size_t size = 0;
  static char pageable[100];
  SHOW(cuMemGetAddressRange(&base, &size, 0));
  SHOW(cuMemGetAddressRange(&base, &size, reinterpret_cast<CUdeviceptr>(pageable)));
  void* p = nullptr;
  CU(cuMemAllocHost(&p, 5000));
  SHOW(cuMemGetAddressRange(&base, &size, reinterpret_cast<CUdeviceptr>(p) + 100));
  printf("offset %lld size %zu\n", static_cast<long long>(reinterpret_cast<CUdeviceptr>(p) + 100 - base), size);
}

CASE(without_a_context) {
  CU(cuInit(0));
  unsigned type = 9;
  CUdeviceptr base = 0;
  size_t size = 0;
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0x1000));
  SHOW(cuMemGetAddressRange(&base, &size, 0x1000));
}

CASE(copies_of_memory_that_wants_them_finished) {
  Gpu gpu;
  Module module("kernels.fatbin");
  const int count = 1 << 16;
  DeviceArray<uint32_t> from(std::vector<uint32_t>(count, 1)), to(count);
  unsigned on = 1;
  SHOW(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, to.pointer));
  for (int i = 0; i < 5; ++i) {
    LAUNCH(module.function("slow_step"), {64}, {256}, 0, nullptr, from.pointer, 3u, 1u, count, 200);
    CU(cuMemcpyDtoD(to.pointer, from.pointer, from.bytes()));
    printf("after a copy: %s\n", code_name(cuStreamQuery(nullptr)));
    LAUNCH(module.function("slow_step"), {64}, {256}, 0, nullptr, from.pointer, 3u, 1u, count, 200);
    CU(cuMemsetD32(to.pointer, 5, 100));
    printf("after a memset: %s\n", code_name(cuStreamQuery(nullptr)));
  }
}
