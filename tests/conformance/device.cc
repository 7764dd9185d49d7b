// Devices: ordinals, names, attributes, identity.
#include "tests/conformance/case.h"

static int attribute(CUdevice_attribute which) {
  int value = -1;
  CU(cuDeviceGetAttribute(&value, which, 0));
  return value;
}

CASE(get_bad_ordinals) {
  CU(cuInit(0));
  CUdevice device = -5;
  SHOW(cuDeviceGet(&device, 0));
  printf("%d\n", device);
  SHOW(cuDeviceGet(&device, -1));
  SHOW(cuDeviceGet(&device, 1000));
  SHOW(cuDeviceGet(nullptr, 0));
  SHOW(cuDeviceGet(nullptr, 1000));
  printf("%d\n", device);
}

CASE(count_into_null) {
  CU(cuInit(0));
  SHOW(cuDeviceGetCount(nullptr));
}

CASE(name_is_cut_to_its_room) {
  CU(cuInit(0));
  char whole[256];
  char few[4] = {'x', 'x', 'x', 'x'};
  SHOW(cuDeviceGetName(whole, sizeof(whole), 0));
  SHOW(cuDeviceGetName(few, sizeof(few), 0));
  printf("same beginning: %s, last byte %d\n", memcmp(whole, few, 3) == 0 ? "yes" : "no", few[3]);
  char one[1] = {'x'};
  SHOW(cuDeviceGetName(one, 1, 0));
  printf("%d\n", one[0]);
}

CASE(name_bad_arguments) {
  CU(cuInit(0));
  char name[64] = "untouched";
  SHOW(cuDeviceGetName(nullptr, 64, 0));
  // A length of 0 crashes natively.
  SHOW(cuDeviceGetName(name, 64, 1000));
  SHOW(cuDeviceGetName(name, 64, -1));
  printf("%s\n", name);
}

CASE(attribute_bad_arguments) {
  CU(cuInit(0));
  int value = -7;
  SHOW(cuDeviceGetAttribute(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
  SHOW(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(0), 0));
  SHOW(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(-1), 0));
  SHOW(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(100000), 0));
  SHOW(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 1000));
  SHOW(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, -1));
  printf("%d\n", value);
}

CASE(attribute_after_the_last) {
  CU(cuInit(0));
  int value = -7;
  SHOW(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(147), 0));
  SHOW(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(160), 0));
  SHOW(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(200), 0));
}

CASE(attributes_every_gpu_shares) {
  CU(cuInit(0));
  printf("warp size %d\n", attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE));
  printf("threads per block %d\n", attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
  printf("block %d %d %d\n", attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X), attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
         attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z));
  printf("grid %d %d %d\n", attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X), attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
         attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z));
  printf("shared memory per block %d, constant memory %d\n", attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
         attribute(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY));
  printf("registers per block %d\n", attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK));
  printf("unified addressing %d, maps host memory %d, concurrent kernels %d\n", attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING),
         attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY), attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS));
  printf("stream priorities %d, cooperative launch %d\n", attribute(CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED),
         attribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH));
}

CASE(attributes_of_hopper) {
  CU(cuInit(0));
  if (attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) != 9) SKIP("not a Hopper GPU");
  for (int which = 1; which <= 146; ++which) {
    // Managed and pageable memory: docs/limits.md.
    const bool managed = which == 83 || which == 88 || which == 89 || which == 100 || which == 101;
    const bool of_this_machine = managed || which == 13 || which == 33 || which == 34 || which == 50 || which == 35 || which == 16 || which == 17 ||
                                 which == 131 || which == 134 || which == 140 || which == 147 || which == 36 || which == 37 ||
                                 which == 38 || which == 108 || which == 145;
    if (of_this_machine) continue;
    int value = -7;
    const CUresult result = cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(which), 0);
    printf("%d: %s %d\n", which, code_name(result), value);
  }
}

CASE(compute_capability_agrees) {
  CU(cuInit(0));
  int major = 0, minor = 0;
  SHOW(cuDeviceComputeCapability(&major, &minor, 0));
  printf("agrees: %s\n", major == attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) &&
                                 minor == attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) ? "yes" : "no");
  SHOW(cuDeviceComputeCapability(nullptr, &minor, 0));
  SHOW(cuDeviceComputeCapability(&major, nullptr, 0));
  SHOW(cuDeviceComputeCapability(&major, &minor, 1000));
}

CASE(properties) {
  CU(cuInit(0));
  CUdevprop p = {};
  SHOW(cuDeviceGetProperties(&p, 0));
  printf("%d threads per block, block %d %d %d, grid %d %d %d\n", p.maxThreadsPerBlock, p.maxThreadsDim[0], p.maxThreadsDim[1],
         p.maxThreadsDim[2], p.maxGridSize[0], p.maxGridSize[1], p.maxGridSize[2]);
  printf("shared %d, constant %d, warp %d, registers %d\n", p.sharedMemPerBlock, p.totalConstantMemory, p.SIMDWidth, p.regsPerBlock);
  SHOW(cuDeviceGetProperties(nullptr, 0));
  SHOW(cuDeviceGetProperties(&p, 1000));
}

CASE(total_memory) {
  CU(cuInit(0));
  size_t bytes = 0;
  SHOW(cuDeviceTotalMem(&bytes, 0));
  printf("more than 1 GiB: %s\n", bytes > (size_t{1} << 30) ? "yes" : "no");
  SHOW(cuDeviceTotalMem(nullptr, 0));
  SHOW(cuDeviceTotalMem(&bytes, 1000));
  SHOW(cuDeviceTotalMem(&bytes, -1));
}

CASE(total_memory_equals_the_contexts) {
  Gpu gpu;
  size_t device_bytes = 0, free_bytes = 0, total = 0;
  CU(cuDeviceTotalMem(&device_bytes, gpu.device));
  SHOW(cuMemGetInfo(&free_bytes, &total));
  printf("equal: %s, free is less: %s\n", device_bytes == total ? "yes" : "no", free_bytes <= total ? "yes" : "no");
}

CASE(uuid_versions_agree) {
  CU(cuInit(0));
  CUuuid one = {}, two = {};
  SHOW(cuDeviceGetUuid(&one, 0));
  SHOW(cuDeviceGetUuid_v1(&two, 0));
  printf("same: %s\n", memcmp(&one, &two, sizeof(one)) == 0 ? "yes" : "no");
  SHOW(cuDeviceGetUuid(nullptr, 0));
  SHOW(cuDeviceGetUuid(&one, 1000));
  SHOW(cuDeviceGetUuid(&one, -1));
}

CASE(luid_is_for_windows) {
  CU(cuInit(0));
  char luid[8] = {};
  unsigned mask = 0;
  SHOW(cuDeviceGetLuid(luid, &mask, 0));
}

CASE(pci_bus_id_there_and_back) {
  CU(cuInit(0));
  char text[32] = {};
  SHOW(cuDeviceGetPCIBusId(text, sizeof(text), 0));
  printf("length %zu\n", strlen(text));
  CUdevice device = -1;
  SHOW(cuDeviceGetByPCIBusId(&device, text));
  printf("%d\n", device);
  SHOW(cuDeviceGetByPCIBusId(&device, text + 5));
  printf("%d\n", device);
}

CASE(pci_bus_id_bad_arguments) {
  CU(cuInit(0));
  char text[32] = {};
  CUdevice device = -1;
  SHOW(cuDeviceGetPCIBusId(nullptr, 32, 0));
  SHOW(cuDeviceGetPCIBusId(text, 0, 0));
  SHOW(cuDeviceGetPCIBusId(text, 4, 0));
  SHOW(cuDeviceGetPCIBusId(text, 32, 1000));
  SHOW(cuDeviceGetByPCIBusId(nullptr, "0000:00:00.0"));
  SHOW(cuDeviceGetByPCIBusId(&device, nullptr));
  SHOW(cuDeviceGetByPCIBusId(&device, ""));
  SHOW(cuDeviceGetByPCIBusId(&device, "nonsense"));
  SHOW(cuDeviceGetByPCIBusId(&device, "ffff:ff:1f.0"));
  printf("%d\n", device);
}

CASE(texture_width_bad_arguments) {
  CU(cuInit(0));
  size_t width = 0;
  SHOW(cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 4, 0));
  printf("some: %s\n", width > 0 ? "yes" : "no");
  SHOW(cuDeviceGetTexture1DLinearMaxWidth(nullptr, CU_AD_FORMAT_FLOAT, 4, 0));
  SHOW(cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 3, 0));
  SHOW(cuDeviceGetTexture1DLinearMaxWidth(&width, static_cast<CUarray_format>(0x7777), 4, 0));
  SHOW(cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 4, 1000));
}

CASE(can_access_itself) {
  CU(cuInit(0));
  int can = -1;
  SHOW(cuDeviceCanAccessPeer(&can, 0, 0));
  printf("%d\n", can);
  SHOW(cuDeviceCanAccessPeer(nullptr, 0, 0));
  SHOW(cuDeviceCanAccessPeer(&can, 0, 1000));
  SHOW(cuDeviceCanAccessPeer(&can, 1000, 0));
}

CASE(p2p_attribute_of_itself) {
  CU(cuInit(0));
  int value = -1;
  SHOW(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
  SHOW(cuDeviceGetP2PAttribute(nullptr, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
  SHOW(cuDeviceGetP2PAttribute(&value, static_cast<CUdevice_P2PAttribute>(99), 0, 0));
}

CASE(host_atomics_and_exec_affinity) {
  CU(cuInit(0));
  int supported = -1;
  SHOW(cuDeviceGetExecAffinitySupport(&supported, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 0));
  printf("%d\n", supported);
  SHOW(cuDeviceGetExecAffinitySupport(nullptr, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 0));
  SHOW(cuDeviceGetExecAffinitySupport(&supported, static_cast<CUexecAffinityType>(7), 0));
  SHOW(cuDeviceGetExecAffinitySupport(&supported, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 1000));
}

CASE(flush_remote_writes) {
  Gpu gpu;
  SHOW(cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
  SHOW(cuFlushGPUDirectRDMAWrites(static_cast<CUflushGPUDirectRDMAWritesTarget>(9), CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
  SHOW(cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX, static_cast<CUflushGPUDirectRDMAWritesScope>(9)));
}

TWO_DEVICES_CASE(two_devices_differ) {
  CU(cuInit(0));
  int count = 0;
  SHOW(cuDeviceGetCount(&count));
  printf("%d\n", count);
  CUuuid one = {}, two = {};
  CU(cuDeviceGetUuid(&one, 0));
  CU(cuDeviceGetUuid(&two, 1));
  printf("same uuid: %s\n", memcmp(&one, &two, sizeof(one)) == 0 ? "yes" : "no");
  CUdevice device = -1;
  SHOW(cuDeviceGet(&device, 1));
  printf("%d\n", device);
  SHOW(cuDeviceGet(&device, 2));
}

TWO_DEVICES_CASE(bus_ids_of_two_devices) {
  CU(cuInit(0));
  for (int i = 0; i < 2; ++i) {
    char text[32];
    CU(cuDeviceGetPCIBusId(text, sizeof(text), i));
    CUdevice device = -1;
    SHOW(cuDeviceGetByPCIBusId(&device, text));
    printf("%d\n", device);
  }
}
