// Every CUdevice_attribute of cuda.h 13.0. Values of the three modelled generations (Volta, Ampere,
// Hopper) follow NVIDIA's published compute capability tables; what no table gives is a plausible
// constant.
#include "sim/machine/attributes.h"

namespace tube::sim {

SmLimits sm_limits(int sm) {
  SmLimits l;
  if (sm >= 90) {
    l.shared_per_sm = 233472;
    l.shared_per_block_optin = 232448;
  } else if (sm == 80 || sm == 87) {
    l.shared_per_sm = 167936;
    l.shared_per_block_optin = 166912;
  } else if (sm >= 80) {
    l.max_threads = 1536;
    l.max_blocks = sm == 89 ? 24 : 16;
    l.shared_per_sm = 102400;
    l.shared_per_block_optin = 101376;
  } else if (sm == 75) {
    l.max_threads = 1024;
    l.max_blocks = 16;
    l.shared_per_sm = 65536;
    l.shared_per_block_optin = 65536;
    l.reserved_shared = 0;
  } else {
    l.shared_per_sm = 98304;
    l.shared_per_block_optin = 98304;
    l.reserved_shared = 0;
  }
  return l;
}

namespace {

// Texture and surface limits are the same on all modelled generations.
bool texture_attribute(int id, int* value) {
  struct Entry {
    int id, value;
  };
  static constexpr Entry kTable[] = {
      {21, 131072}, {22, 131072},  {23, 65536}, {24, 16384},  {25, 16384},     {26, 16384},
      {27, 32768},  {28, 32768},   {29, 2048},  {42, 32768},  {43, 2048},      {44, 1},
      {45, 32768},  {46, 32768},   {47, 8192},  {48, 8192},   {49, 32768},     {52, 32768},
      {53, 32768},  {54, 2046},    {55, 32768}, {56, 131072}, {57, 65536},     {58, 16384},
      {59, 16384},  {60, 16384},   {61, 32768}, {62, 2048},   {63, 32768},     {64, 32768},
      {65, 2048},   {66, 32768},   {67, 32768}, {68, 2046},   {69, 268435456}, {70, 131072},
      {71, 65000},  {72, 2097120}, {73, 32768}, {74, 32768},  {77, 32768},
  };
  for (const Entry& e : kTable) {
    if (e.id != id) continue;
    *value = e.value;
    return true;
  }
  return false;
}

bool machine_attribute(const Device& device, int id, int* value) {
  const DeviceSpec& d = device.spec;
  switch (id) {
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = d.clock_khz; return true;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = d.sm_count; return true;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *value = d.pci_bus; return true;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: *value = 0; return true;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: *value = 0; return true;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = d.memory_clock_khz; return true;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = d.bus_width_bits; return true;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      *value = d.sm >= 90 ? 62914560 : d.sm >= 80 ? 41943040 : 6291456;
      return true;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = d.sm / 10; return true;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = d.sm % 10; return true;
    case CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID: *value = device.ordinal; return true;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: *value = d.numa_node; return true;
    case CU_DEVICE_ATTRIBUTE_NUMA_ID: *value = -1; return true;
    default: return false;
  }
}

bool limit_attribute(const Device& device, int id, int* value) {
  SmLimits l = sm_limits(device.spec.sm);
  switch (id) {
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = l.shared_per_block; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: *value = 65536; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = l.max_threads; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      *value = l.shared_per_sm;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: *value = l.registers; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = l.shared_per_block_optin;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: *value = l.max_blocks; return true;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      *value = l.reserved_shared;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE:
      *value = device.spec.sm >= 80 ? 31457280 : 0;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE:
      *value = device.spec.sm >= 80 ? 134217728 : 0;
      return true;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED:
      *value = device.spec.sm >= 90 ? 1 : 0;
      return true;
    case CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT:
      *value = device.spec.sm >= 90 ? 4 : 1;
      return true;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS: *value = 1; return true;
    default: return false;
  }
}

// The rest does not depend on the device: what the simulated driver supports.
bool support_attribute(int id, int* value) {
  struct Entry {
    int id, value;
  };
  // A table.
  // clang-format off
  static constexpr Entry kTable[] = {
      {1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535}, {9, 65536}, {10, 32},
      {11, 2147483647}, {14, 512}, {15, 1}, {17, 0}, {18, 0}, {19, 1}, {20, 0}, {30, 512}, {31, 1}, {32, 1}, {35, 0}, {40, 3},
      {41, 1}, {51, 32}, {78, 1}, {79, 1}, {80, 1},
      // Managed memory is plain memory here: no migration, no concurrent access promised.
      {83, 1}, {84, 0}, {86, 0}, {87, 2}, {88, 0}, {89, 0}, {90, 1},
      {91, 1},  // pinned memory has one address everywhere
      {92, 0}, {93, 0}, {94, 0}, {95, 1}, {96, 1}, {98, 0}, {99, 1}, {100, 0}, {101, 0}, {102, 1}, {103, 1}, {104, 0}, {105, 0},
      {107, 0}, {110, 1}, {112, 0}, {113, 1}, {114, 0}, {115, 1}, {116, 1}, {117, 1}, {118, 100}, {119, 9}, {121, 0}, {122, 1},
      {123, 1}, {124, 0}, {125, 1}, {128, 1}, {130, 0}, {132, 0}, {133, 0}, {135, 0}, {136, 0}, {137, 0}, {138, 0},
      {139, 590680286}, {140, 0x18be}, {141, 0}, {142, 0}, {143, 0}, {144, 0}, {145, 0}, {146, 0}, {147, 0},
  };
  // clang-format on
  for (const Entry& e : kTable) {
    if (e.id != id) continue;
    *value = e.value;
    return true;
  }
  return false;
}

}  // namespace

bool device_attribute(const Device& device, CUdevice_attribute attribute, int* value) {
  int id = static_cast<int>(attribute);
  if (machine_attribute(device, id, value) || limit_attribute(device, id, value) ||
      texture_attribute(id, value) || support_attribute(id, value)) {
    return true;
  }
  if (id < 1 || id >= CU_DEVICE_ATTRIBUTE_MAX) return false;
  *value = 0;  // ids inside the range that no header names
  return true;
}

}  // namespace tube::sim
