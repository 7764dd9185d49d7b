// cuMemHostRegister: which memory can be registered, what the GPU then does with it, and what is
// left afterwards.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conformance/case.h"

namespace {

constexpr size_t kPage = 4096;

void* map_private(size_t bytes, int protection = PROT_READ | PROT_WRITE) {
  void* p = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT(p != MAP_FAILED);
  return p;
}

uint32_t* counted(void* p, int count) {
  auto* values = static_cast<uint32_t*>(p);
  for (int i = 0; i < count; ++i) values[i] = static_cast<uint32_t>(i);
  return values;
}

// A kernel reads and writes the registered memory in place.
void step_in_place(void* p, int count) {
  Module module("kernels.fatbin");
  CUfunction step = module.function("step");
  CUdeviceptr device = 0;
  CU(cuMemHostGetDevicePointer(&device, p, 0));
  LAUNCH(step, {static_cast<unsigned>(count + 255) / 256}, {256}, 0, nullptr, device, 3u, 7u, count);
  CU(cuCtxSynchronize());
}

void print_values(const char* what, const uint32_t* values, int count) {
  printf("%s: %u %u ... %u, hash %016llx\n", what, values[0], values[1], values[count - 1],
         static_cast<unsigned long long>(hash_bytes(values, static_cast<size_t>(count) * 4)));
}

// Registers, lets a kernel work there, unregisters; the memory is the program's again.
void round_trip(void* p, int count) {
  uint32_t* values = counted(p, count);
  SHOW(cuMemHostRegister(p, static_cast<size_t>(count) * 4, 0));
  print_values("registered", values, count);
  step_in_place(p, count);
  print_values("stepped", values, count);
  values[0] = 99;
  SHOW(cuMemHostUnregister(p));
  print_values("unregistered", values, count);
  values[1] = 77;
  printf("writable: %u\n", values[1]);
}

int memory_file(size_t bytes) {
  int fd = memfd_create("conformance", MFD_CLOEXEC);
  EXPECT(fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0);
  return fd;
}

uint32_t g_values[5000];

}  // namespace

CASE(null_pointer) {
  Gpu gpu;
  SHOW(cuMemHostRegister(nullptr, kPage, 0));
}

CASE(zero_bytes) {
  Gpu gpu;
  SHOW(cuMemHostRegister(map_private(kPage), 0, 0));
}

CASE(unknown_flag) {
  Gpu gpu;
  SHOW(cuMemHostRegister(map_private(kPage), kPage, 0x10));
}

CASE(io_memory_flag_on_ordinary_memory) {
  Gpu gpu;
  SHOW(cuMemHostRegister(map_private(kPage), kPage, CU_MEMHOSTREGISTER_IOMEMORY));
}

CASE(unmapped_address) {
  Gpu gpu;
  void* p = map_private(kPage);
  munmap(p, kPage);
  SHOW(cuMemHostRegister(p, kPage, 0));
}

CASE(hole_in_the_middle) {
  Gpu gpu;
  auto* p = static_cast<char*>(map_private(3 * kPage));
  munmap(p + kPage, kPage);
  SHOW(cuMemHostRegister(p, 3 * kPage, 0));
  p[0] = 1, p[2 * kPage] = 2;
  printf("still there: %d %d\n", p[0], p[2 * kPage]);
}

CASE(end_past_the_address_space) {
  Gpu gpu;
  SHOW(cuMemHostRegister(map_private(kPage), ~size_t{0} - 100, 0));
}

CASE(inaccessible_memory) {
  Gpu gpu;
  SHOW(cuMemHostRegister(map_private(kPage, PROT_NONE), kPage, 0));
}

CASE(read_only_memory_without_the_flag) {
  Gpu gpu;
  SHOW(cuMemHostRegister(map_private(kPage, PROT_READ), kPage, 0));
}

CASE(read_only_flag_follows_the_device_attribute) {
  Gpu gpu;
  int supported = 0;
  CU(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, gpu.device));
  CUresult code = cuMemHostRegister(map_private(kPage), kPage, CU_MEMHOSTREGISTER_READ_ONLY);
  printf("%s\n", code == (supported != 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED) ? "as the attribute says" : code_name(code));
}

CASE(read_only_flag_registers_memory_mapped_read_only) {
  Gpu gpu;
  int fd = memory_file(20000);
  counted(mmap(nullptr, 20000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), 5000);
  void* shared = mmap(nullptr, 20000, PROT_READ, MAP_SHARED, fd, 0);
  void* own = map_private(20000);
  counted(own, 5000);
  EXPECT(mprotect(own, 20000, PROT_READ) == 0);
  DeviceArray<uint32_t> device(5000);
  for (void* p : {shared, own}) {
    SHOW(cuMemHostRegister(p, 20000, CU_MEMHOSTREGISTER_READ_ONLY));
    CU(cuMemcpyHtoDAsync(device.pointer, p, 20000, nullptr));
    print_hash("copied", device.read());
    SHOW(cuMemHostUnregister(p));
  }
}

CASE(shared_anonymous_memory) {
  Gpu gpu;
  void* p = mmap(nullptr, 20000, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  round_trip(p, 5000);
}

CASE(anonymous_memory) {
  Gpu gpu;
  round_trip(map_private(20000), 5000);
}

CASE(untouched_memory) {
  Gpu gpu;
  auto* p = static_cast<uint32_t*>(map_private(20000));
  SHOW(cuMemHostRegister(p, 20000, 0));
  step_in_place(p, 5000);
  print_values("stepped", p, 5000);
}

CASE(larger_than_one_exchange) {
  Gpu gpu;
  const int count = 10 << 20;
  round_trip(map_private(static_cast<size_t>(count) * 4), count);
}

CASE(heap_memory_with_neighbours) {
  Gpu gpu;
  std::vector<std::vector<uint32_t>> blocks;
  for (int i = 0; i < 50; ++i) blocks.emplace_back(700, i);
  round_trip(blocks[25].data(), 700);
  for (int i = 0; i < 50; ++i) {
    if (i != 25 && (blocks[i].front() != static_cast<uint32_t>(i) || blocks[i].back() != static_cast<uint32_t>(i))) printf("block %d changed\n", i);
  }
  blocks.clear();
  blocks.emplace_back(100000, 5);
  printf("heap works: %u\n", blocks[0][99999]);
}

CASE(global_variable) {
  Gpu gpu;
  round_trip(g_values, 5000);
}

CASE(own_stack) {
  Gpu gpu;
  uint32_t values[5000];
  round_trip(values, 5000);
}

CASE(unaligned_start_and_size) {
  Gpu gpu;
  auto* p = static_cast<char*>(map_private(64 * kPage));
  round_trip(p + 1236, 5001);
  printf("before and after: %d %d\n", p[1235], p[1236 + 5001 * 4]);
}

CASE(several_mappings_of_different_kind) {
  Gpu gpu;
  auto* p = static_cast<char*>(map_private(8 * kPage));
  int fd = memory_file(2 * kPage);
  EXPECT(mmap(p + 2 * kPage, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == p + 2 * kPage);
  EXPECT(mmap(p + 6 * kPage, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0) == p + 6 * kPage);
  round_trip(p, 8 * kPage / 4);
  uint32_t in_file = 0;
  EXPECT(pread(fd, &in_file, 4, 0) == 4);
  printf("in the file: %u\n", in_file);
}

CASE(memory_file_shared) {
  Gpu gpu;
  int fd = memory_file(20480);
  void* p = mmap(nullptr, 20480, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  round_trip(p, 5000);
  uint32_t values[2];
  EXPECT(pread(fd, values, 8, 0) == 8);
  printf("in the file: %u %u\n", values[0], values[1]);
}

// Where the huge pages of the system are mounted, too.
CASE(file_below_dev_shared) {
  Gpu gpu;
  char path[] = "/dev/conformanceXXXXXX";
  int fd = mkstemp(path);  // as root
  if (fd < 0) fd = memory_file(20000);
  EXPECT(ftruncate(fd, 20000) == 0);
  void* p = mmap(nullptr, 20000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  EXPECT(p != MAP_FAILED);
  round_trip(p, 5000);
  unlink(path);
  close(fd);
}

CASE(shared_memory_file_whose_descriptor_is_closed) {
  Gpu gpu;
  std::string path = "/dev/shm/tube-conformance-" + std::to_string(getpid());
  int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  EXPECT(fd >= 0 && ftruncate(fd, 1 << 20) == 0);
  void* p = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  EXPECT(p != MAP_FAILED);
  close(fd);
  SHOW(cuMemHostRegister(p, 1 << 20, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
  unlink(path.c_str());
  counted(p, 5000);
  step_in_place(p, 5000);
  print_values("stepped", static_cast<uint32_t*>(p), 5000);
  SHOW(cuMemHostUnregister(p));
}

CASE(shared_memory_at_an_offset_in_its_file) {
  Gpu gpu;
  int fd = memory_file(10 * kPage);
  void* p = mmap(nullptr, 5 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 5 * kPage);
  round_trip(p, 5 * kPage / 4);
  uint32_t values[2];
  EXPECT(pread(fd, values, 8, 5 * kPage) == 8);
  printf("in the file: %u %u\n", values[0], values[1]);
}

CASE(private_mapping_of_a_file_leaves_the_file_alone) {
  Gpu gpu;
  int fd = memory_file(20480);
  void* p = mmap(nullptr, 20480, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  round_trip(p, 5000);
  uint32_t value = 5;
  EXPECT(pread(fd, &value, 4, 4) == 4);
  printf("in the file: %u\n", value);
}

// No file of the program grows.
void limit_file_size(bool for_good) {
  rlimit limit;
  EXPECT(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  limit.rlim_cur = 16 * kPage;
  if (for_good) limit.rlim_max = limit.rlim_cur;
  EXPECT(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

CASE(under_a_limit_of_file_sizes) {
  Gpu gpu;
  limit_file_size(false);
  round_trip(map_private(64 * kPage), 64 * 1024);
  rlimit limit;
  EXPECT(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  printf("the limit is %s\n", limit.rlim_cur == 16 * kPage ? "the same" : "another");
}

CASE(under_a_limit_of_file_sizes_that_cannot_be_raised) {
  Gpu gpu;
  limit_file_size(true);
  void* small = map_private(kPage);
  SHOW(cuMemHostRegister(small, kPage, 0));
  SHOW(cuMemHostUnregister(small));
  SHOW(cuMemHostRegister(map_private(64 * kPage), 64 * kPage, 0));
}

CASE(same_range_twice) {
  Gpu gpu;
  void* p = map_private(4 * kPage);
  SHOW(cuMemHostRegister(p, 4 * kPage, 0));
  SHOW(cuMemHostRegister(p, 4 * kPage, 0));
  SHOW(cuMemHostUnregister(p));
  SHOW(cuMemHostRegister(p, 4 * kPage, 0));
}

CASE(range_inside_a_registered_one) {
  Gpu gpu;
  auto* p = static_cast<char*>(map_private(4 * kPage));
  SHOW(cuMemHostRegister(p, 4 * kPage, 0));
  SHOW(cuMemHostRegister(p + kPage, kPage, 0));
}

CASE(range_over_the_end_of_a_registered_one) {
  Gpu gpu;
  auto* p = static_cast<char*>(map_private(4 * kPage));
  SHOW(cuMemHostRegister(p, 2 * kPage, 0));
  SHOW(cuMemHostRegister(p + kPage, 2 * kPage, 0));
}

CASE(neighbours_with_pages_of_their_own) {
  Gpu gpu;
  auto* p = static_cast<char*>(map_private(4 * kPage));
  SHOW(cuMemHostRegister(p, 2 * kPage, 0));
  SHOW(cuMemHostRegister(p + 2 * kPage, 2 * kPage, 0));
  SHOW(cuMemHostUnregister(p));
  counted(p + 2 * kPage, 2000);
  step_in_place(p + 2 * kPage, 2000);
  print_values("the second", reinterpret_cast<uint32_t*>(p + 2 * kPage), 2000);
  SHOW(cuMemHostUnregister(p + 2 * kPage));
}

CASE(neighbours_that_share_a_page) {
  Gpu gpu;
  auto* p = static_cast<char*>(map_private(4 * kPage));
  SHOW(cuMemHostRegister(p, kPage + 1000, 0));
  SHOW(cuMemHostRegister(p + kPage + 1000, kPage, 0));
}

CASE(pinned_memory_is_registered_already) {
  Gpu gpu;
  void* p = nullptr;
  CU(cuMemAllocHost(&p, 8192));
  SHOW(cuMemHostRegister(p, 8192, 0));
  SHOW(cuMemHostUnregister(p));
  SHOW(cuMemFreeHost(p));
}

CASE(unregister_null) {
  Gpu gpu;
  SHOW(cuMemHostUnregister(nullptr));
}

CASE(unregister_what_is_not_registered) {
  Gpu gpu;
  SHOW(cuMemHostUnregister(map_private(kPage)));
}

CASE(unregister_inside_a_range) {
  Gpu gpu;
  auto* p = static_cast<char*>(map_private(4 * kPage));
  CU(cuMemHostRegister(p, 4 * kPage, 0));
  SHOW(cuMemHostUnregister(p + kPage));
  SHOW(cuMemHostUnregister(p));
}

CASE(unregister_twice) {
  Gpu gpu;
  void* p = map_private(kPage);
  CU(cuMemHostRegister(p, kPage, 0));
  SHOW(cuMemHostUnregister(p));
  SHOW(cuMemHostUnregister(p));
}

CASE(free_host_of_registered_memory) {
  Gpu gpu;
  void* p = map_private(kPage);
  CU(cuMemHostRegister(p, kPage, 0));
  SHOW(cuMemFreeHost(p));
  SHOW(cuMemHostUnregister(p));
}

CASE(device_pointer_of_registered_memory) {
  Gpu gpu;
  auto* p = static_cast<char*>(map_private(4 * kPage));
  CUdeviceptr device = 0;
  SHOW(cuMemHostGetDevicePointer(&device, p, 0));
  CU(cuMemHostRegister(p + 100, kPage, CU_MEMHOSTREGISTER_DEVICEMAP));
  SHOW(cuMemHostGetDevicePointer(&device, p + 100, 0));
  printf("%s\n", device == reinterpret_cast<CUdeviceptr>(p + 100) ? "the host's address" : "another address");
  SHOW(cuMemHostGetDevicePointer(&device, p + 200, 0));
  printf("%s\n", device == reinterpret_cast<CUdeviceptr>(p + 200) ? "the host's address" : "another address");
  SHOW(cuMemHostGetDevicePointer(&device, p, 0));
  SHOW(cuMemHostGetDevicePointer(&device, p + 100 + kPage, 0));
  SHOW(cuMemHostGetDevicePointer(nullptr, p + 100, 0));
  SHOW(cuMemHostGetDevicePointer(&device, p + 100, 1));
}

CASE(flags_of_registered_memory) {
  Gpu gpu;
  for (unsigned flags : {0u, unsigned{CU_MEMHOSTREGISTER_PORTABLE}, unsigned{CU_MEMHOSTREGISTER_DEVICEMAP},
                         unsigned{CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP}}) {
    void* p = map_private(kPage);
    unsigned got = 99;
    CU(cuMemHostRegister(p, kPage, flags));
    SHOW(cuMemHostGetFlags(&got, p));
    printf("registered with %u: %u\n", flags, got);
  }
}

CASE(flags_of_ordinary_memory) {
  Gpu gpu;
  unsigned flags = 0;
  SHOW(cuMemHostGetFlags(&flags, map_private(kPage)));
  SHOW(cuMemHostGetFlags(nullptr, map_private(kPage)));
}

CASE(pointer_attributes_of_registered_memory) {
  Gpu gpu;
  auto* p = static_cast<char*>(map_private(4 * kPage));
  CU(cuMemHostRegister(p + 100, 2 * kPage, 0));
  const auto address = reinterpret_cast<CUdeviceptr>(p + 200);
  unsigned type = 9, managed = 9, mapped = 9;
  CUdeviceptr device = 0, start = 0;
  void* host = nullptr;
  size_t size = 0;
  CUcontext context = nullptr;
  int ordinal = -9;
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
  SHOW(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
  SHOW(cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, address));
  SHOW(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address));
  SHOW(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address));
  SHOW(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address));
  SHOW(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address));
  SHOW(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address));
  SHOW(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
  printf("type %u managed %u mapped %u device %d host %d start %lld size %zu context %d ordinal %d\n", type, managed, mapped,
         device == address, host == p + 200, static_cast<long long>(address - start), size, context == gpu.context, ordinal);
  CU(cuMemHostUnregister(p + 100));
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
}

CASE(address_range_of_registered_memory) {
  Gpu gpu;
  void* p = map_private(kPage);
  CU(cuMemHostRegister(p, kPage, 0));
  CUdeviceptr base = 0;
  size_t size = 0;
  SHOW(cuMemGetAddressRange(&base, &size, reinterpret_cast<CUdeviceptr>(p)));
}

CASE(asynchronous_copies_from_and_to) {
  Gpu gpu;
  const int count = 1 << 20;
  auto* in = counted(map_private(count * 4), count);
  auto* out = static_cast<uint32_t*>(map_private(count * 4));
  CU(cuMemHostRegister(in, count * 4, 0));
  CU(cuMemHostRegister(out, count * 4, 0));
  DeviceArray<uint32_t> device(count);
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SHOW(cuMemcpyHtoDAsync(device.pointer, in, count * 4, stream));
  SHOW(cuMemcpyDtoHAsync(out, device.pointer, count * 4, stream));
  CU(cuStreamSynchronize(stream));
  print_values("out", out, count);
}

CASE(copy_over_the_end_of_a_registration) {
  Gpu gpu;
  auto* p = static_cast<char*>(map_private(8 * kPage));
  CU(cuMemHostRegister(p, 2 * kPage, 0));
  DeviceArray<char> device(4 * kPage);
  SHOW(cuMemcpyHtoD(device.pointer, p, 4 * kPage));
  SHOW(cuMemcpyHtoD(device.pointer, p + kPage, kPage));
}

CASE(memset_of_registered_memory) {
  Gpu gpu;
  auto* p = static_cast<uint32_t*>(map_private(4 * kPage));
  CU(cuMemHostRegister(p, 4 * kPage, 0));
  SHOW(cuMemsetD32(reinterpret_cast<CUdeviceptr>(p), 0x01020304, 1000));
  CU(cuCtxSynchronize());
  printf("%08x %08x %08x\n", p[0], p[999], p[1000]);
}

CASE(copy_between_registered_ranges) {
  Gpu gpu;
  auto* from = counted(map_private(20000), 5000);
  auto* to = static_cast<uint32_t*>(map_private(20000));
  CU(cuMemHostRegister(from, 20000, 0));
  CU(cuMemHostRegister(to, 20000, 0));
  SHOW(cuMemcpy(reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from), 20000));
  print_values("to", to, 5000);
}

CASE(unmapped_without_unregistering) {
  Gpu gpu;
  void* p = map_private(4 * kPage);
  CU(cuMemHostRegister(p, 4 * kPage, 0));
  munmap(p, 4 * kPage);
  void* other = map_private(4 * kPage);
  round_trip(other == p ? map_private(4 * kPage) : other, 1000);
  SHOW(cuMemHostUnregister(p));
}

CASE(child_of_fork_has_its_own_copy) {
  Gpu gpu;
  auto* p = counted(map_private(20000), 5000);
  CU(cuMemHostRegister(p, 20000, 0));
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    printf("child reads %u %u\n", p[1], p[4999]);
    p[1] = 1000, p[4999] = 1001;
    printf("child wrote %u %u\n", p[1], p[4999]);
    fflush(stdout);
    _exit(0);
  }
  int status = 0;
  EXPECT(waitpid(child, &status, 0) == child);
  printf("child ended with %d; parent reads %u %u\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1, p[1], p[4999]);
  step_in_place(p, 5000);
  print_values("stepped", p, 5000);
  SHOW(cuMemHostUnregister(p));
}

CASE(child_of_fork_keeps_its_heap) {
  Gpu gpu;
  std::vector<std::vector<uint32_t>> blocks;
  for (int i = 0; i < 50; ++i) blocks.emplace_back(700, i);
  CU(cuMemHostRegister(blocks[25].data(), 2800, 0));
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 50; ++i) blocks.emplace_back(700, 100 + i);
    blocks.clear();
    printf("child done\n");
    fflush(stdout);
    _exit(0);
  }
  int status = 0;
  EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  for (int i = 0; i < 50; ++i) blocks.emplace_back(700, 200 + i);
  bool good = true;
  for (int i = 0; i < 100; ++i) good = good && blocks[i].front() == static_cast<uint32_t>(i < 50 ? i : 150 + i) && blocks[i].back() == blocks[i].front();
  printf("parent's heap is %s\n", good ? "good" : "broken");
  SHOW(cuMemHostUnregister(blocks[25].data()));
}

CASE(context_reset_unregisters) {
  Gpu gpu;
  auto* p = counted(map_private(20000), 5000);
  CU(cuMemHostRegister(p, 20000, 0));
  CU(cuDevicePrimaryCtxReset(gpu.device));
  CUcontext again = nullptr;
  CU(cuDevicePrimaryCtxRetain(&again, gpu.device));
  CU(cuCtxSetCurrent(again));
  print_values("after the reset", p, 5000);
  SHOW(cuMemHostUnregister(p));
  SHOW(cuMemHostRegister(p, 20000, 0));
}

CASE(without_a_context) {
  CU(cuInit(0));
  SHOW(cuMemHostRegister(map_private(kPage), kPage, 0));
  SHOW(cuMemHostUnregister(map_private(kPage)));
}

CASE(while_capturing) {
  Gpu gpu;
  CUstream stream;
  CUgraph graph = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SHOW(cuMemHostRegister(map_private(kPage), kPage, 0));
  SHOW(cuStreamEndCapture(stream, &graph));
}

CASE(first_version_of_the_call) {
  Gpu gpu;
  auto* v1 = conformance::symbol_as<decltype(cuMemHostRegister)>("cuMemHostRegister");
  void* p = map_private(kPage);
  SHOW(v1(p, kPage, CU_MEMHOSTREGISTER_DEVICEMAP));
  SHOW(cuMemHostUnregister(p));
}

CASE(exit_while_registered) {
  Gpu gpu;
  CU(cuMemHostRegister(map_private(1 << 20), 1 << 20, 0));
  CU(cuMemHostRegister(g_values, sizeof g_values, 0));
  printf("ends\n");
}
