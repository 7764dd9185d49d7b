// A function that takes GPU memory in every way there is, as it is told on standard input; one
// answer a line. budgets_test.py says what must come of it. It knows nothing of Tube.
//
//   info             free, total, cuDeviceTotalMem of the current GPU
//   gpu N            makes that GPU's context current
//   take WAY MIB     0, or the error of the call
//   heap MIB         0, or the error: of malloc in kernels
//   code             0, or the error: loads an image, which stays
//   drop             gives back what was taken last
//   drop_all         and everything
//   churn SEED       takes and gives back without an end, a line for each
//   offer            the IPC handle of what was taken last
//   open HANDLE      0, or the error; dropped like what is taken
//   export           a descriptor of what was taken last by `create`, opened again in this process
#include <unistd.h>

#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/programs/common.h"

namespace {

constexpr size_t kMiB = 1u << 20;

using Taken = std::function<void()>;  // gives it back

CUmemAllocationProp pinned_here() {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CU(cuCtxGetDevice(&prop.location.id));
  return prop;
}

CUdeviceptr last_address = 0;
CUmemGenericAllocationHandle last_handle = 0;

CUresult load_code() {
  CUmodule module = nullptr;
  return cuModuleLoadData(&module,
                          ".version 7.0\n.target sm_80\n.address_size 64\n"
                          ".visible .entry nothing()\n{\n\tret;\n}\n");
}

CUresult alloc(size_t bytes, Taken* taken) {
  CUdeviceptr address = 0;
  const CUresult error = cuMemAlloc(&address, bytes);
  last_address = address;
  *taken = [=] { CU(cuMemFree(address)); };
  return error;
}

CUresult pitch(size_t bytes, Taken* taken) {
  CUdeviceptr address = 0;
  size_t got = 0;
  const CUresult error = cuMemAllocPitch(&address, &got, 4096, bytes / 4096, 4);
  *taken = [=] { CU(cuMemFree(address)); };
  return error;
}

CUresult async(size_t bytes, Taken* taken) {
  CUdeviceptr address = 0;
  const CUresult error = cuMemAllocAsync(&address, bytes, nullptr);
  *taken = [=] {
    CU(cuMemFreeAsync(address, nullptr));
    CU(cuStreamSynchronize(nullptr));
  };
  return error;
}

CUresult pool(size_t bytes, Taken* taken) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = pinned_here().location;
  CUmemoryPool made = nullptr;
  CU(cuMemPoolCreate(&made, &props));
  CUdeviceptr address = 0;
  const CUresult error = cuMemAllocFromPoolAsync(&address, bytes, made, nullptr);
  *taken = [=] {
    CU(cuMemFreeAsync(address, nullptr));
    CU(cuStreamSynchronize(nullptr));
    CU(cuMemPoolDestroy(made));
  };
  if (error != CUDA_SUCCESS) CU(cuMemPoolDestroy(made));
  return error;
}

CUresult create(size_t bytes, Taken* taken) {
  const CUmemAllocationProp prop = pinned_here();
  CUmemGenericAllocationHandle handle = 0;
  const CUresult error = cuMemCreate(&handle, bytes, &prop, 0);
  last_handle = handle;
  *taken = [=] { CU(cuMemRelease(handle)); };
  return error;
}

// The mapping alone keeps the memory.
CUresult mapped(size_t bytes, Taken* taken) {
  const CUmemAllocationProp prop = pinned_here();
  CUmemGenericAllocationHandle handle = 0;
  if (const CUresult error = cuMemCreate(&handle, bytes, &prop, 0); error != CUDA_SUCCESS)
    return error;
  CUdeviceptr address = 0;
  CU(cuMemAddressReserve(&address, bytes, 0, 0, 0));
  CU(cuMemMap(address, bytes, 0, handle, 0));
  CU(cuMemRelease(handle));
  *taken = [=] {
    CU(cuMemUnmap(address, bytes));
    CU(cuMemAddressFree(address, bytes));
  };
  return CUDA_SUCCESS;
}

CUresult array(size_t bytes, Taken* taken) {
  CUDA_ARRAY_DESCRIPTOR shape{1024, bytes / 4096, CU_AD_FORMAT_FLOAT, 1};
  CUarray made = nullptr;
  const CUresult error = cuArrayCreate(&made, &shape);
  *taken = [=] { CU(cuArrayDestroy(made)); };
  return error;
}

CUDA_ARRAY3D_DESCRIPTOR layered(size_t bytes) {
  return {256, 256, bytes / (256 * 256 * 16), CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_LAYERED};
}

CUresult array3d(size_t bytes, Taken* taken) {
  const CUDA_ARRAY3D_DESCRIPTOR shape = layered(bytes);
  CUarray made = nullptr;
  const CUresult error = cuArray3DCreate(&made, &shape);
  *taken = [=] { CU(cuArrayDestroy(made)); };
  return error;
}

CUresult mipmap(size_t bytes, Taken* taken) {
  const CUDA_ARRAY3D_DESCRIPTOR shape = layered(bytes);
  CUmipmappedArray made = nullptr;
  const CUresult error = cuMipmappedArrayCreate(&made, &shape, 4);
  *taken = [=] { CU(cuMipmappedArrayDestroy(made)); };
  return error;
}

CUresult node(size_t bytes, Taken* taken) {
  CUgraph graph = nullptr;
  CU(cuGraphCreate(&graph, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = pinned_here().location;
  params.bytesize = bytes;
  CUgraphNode made = nullptr;
  const CUresult error = cuGraphAddMemAllocNode(&made, graph, nullptr, 0, &params);
  *taken = [=] { CU(cuGraphDestroy(graph)); };
  if (error != CUDA_SUCCESS) CU(cuGraphDestroy(graph));
  return error;
}

CUresult captured(size_t bytes, Taken* taken) {
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CUdeviceptr address = 0;
  const CUresult error = cuMemAllocAsync(&address, bytes, stream);
  CUgraph graph = nullptr;
  (void)cuStreamEndCapture(stream, &graph);
  CU(cuStreamDestroy(stream));
  *taken = [=] { CU(cuGraphDestroy(graph)); };
  if (error != CUDA_SUCCESS && graph != nullptr) CU(cuGraphDestroy(graph));
  return error;
}

// Pieces of slabs.
CUresult small(size_t bytes, Taken* taken) {
  std::vector<CUdeviceptr> pieces;
  CUresult error = CUDA_SUCCESS;
  while (pieces.size() * 65536 < bytes && error == CUDA_SUCCESS) {
    CUdeviceptr piece = 0;
    error = cuMemAlloc(&piece, 65536);
    if (error == CUDA_SUCCESS) pieces.push_back(piece);
  }
  *taken = [pieces] {
    for (const CUdeviceptr piece : pieces) CU(cuMemFree(piece));
  };
  if (error != CUDA_SUCCESS) (*taken)();
  return error;
}

using Way = CUresult (*)(size_t bytes, Taken* taken);
const std::map<std::string, Way> kWays = {
    {"alloc", alloc},   {"pitch", pitch},   {"async", async},       {"pool", pool},
    {"create", create}, {"mapped", mapped}, {"array", array},       {"array3d", array3d},
    {"mipmap", mipmap}, {"node", node},     {"captured", captured}, {"small", small}};

std::vector<Taken> all_taken;

void say(const std::string& line) {
  printf("%s\n", line.c_str());
  fflush(stdout);
}

CUresult keep(CUresult error, Taken taken) {
  if (error == CUDA_SUCCESS) all_taken.push_back(std::move(taken));
  return error;
}

CUresult take(const std::string& way, size_t bytes) {
  Taken taken;
  const CUresult error = kWays.at(way)(bytes, &taken);
  return keep(error, std::move(taken));
}

void drop() {
  all_taken.back()();
  all_taken.pop_back();
}

[[noreturn]] void churn(unsigned seed) {
  std::mt19937 random(seed);
  for (;;) {
    const auto way = std::next(kWays.begin(), random() % kWays.size());
    if (random() % 3 == 0 && !all_taken.empty()) drop();
    else say(std::to_string(take(way->first, (1 + random() % 8) * 2 * kMiB)));
  }
}

std::string info() {
  size_t free_bytes = 0, total = 0, device_total = 0;
  CUdevice device = 0;
  CU(cuMemGetInfo(&free_bytes, &total));
  CU(cuCtxGetDevice(&device));
  CU(cuDeviceTotalMem(&device_total, device));
  return std::to_string(free_bytes) + " " + std::to_string(total) + " " +
         std::to_string(device_total);
}

std::string offer() {
  CUipcMemHandle handle;
  CU(cuIpcGetMemHandle(&handle, last_address));
  std::string text;
  char two[3];
  for (const char byte : handle.reserved) {
    snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(byte));
    text += two;
  }
  return text;
}

CUresult open(const std::string& text) {
  CUipcMemHandle handle;
  for (size_t i = 0; i < sizeof handle.reserved; ++i)
    handle.reserved[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  CUdeviceptr address = 0;
  const CUresult error = cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  return keep(error, [=] { CU(cuIpcCloseMemHandle(address)); });
}

CUresult reimport() {
  int fd = -1;
  CU(cuMemExportToShareableHandle(&fd, last_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CUmemGenericAllocationHandle again = 0;
  const CUresult error =
      cuMemImportFromShareableHandle(&again, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  close(fd);
  return keep(error, [=] { CU(cuMemRelease(again)); });
}

void use_gpu(int number) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CU(cuDeviceGet(&device, number));
  CU(cuDevicePrimaryCtxRetain(&context, device));
  CU(cuCtxSetCurrent(context));
}

std::string obey(const std::string& word, const std::string& first, const std::string& second) {
  if (word == "info") return info();
  if (word == "gpu") return use_gpu(std::stoi(first)), "0";
  if (word == "take") return std::to_string(take(first, std::stoul(second) * kMiB));
  if (word == "heap")
    return std::to_string(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, std::stoul(first) * kMiB));
  if (word == "code") return std::to_string(load_code());
  if (word == "drop") return drop(), "0";
  if (word == "churn") churn(static_cast<unsigned>(std::stoul(first)));
  if (word == "offer") return offer();
  if (word == "open") return std::to_string(open(first));
  if (word == "export") return std::to_string(reimport());
  if (word == "drop_all") {
    while (!all_taken.empty()) drop();
    return "0";
  }
  return "what is " + word + "?";
}

}  // namespace

int main() {
  CU(cuInit(0));
  use_gpu(0);
  say("ready");
  char line[512];
  while (fgets(line, sizeof line, stdin) != nullptr) {
    std::string words[3];
    const char* const blanks = " \n";
    size_t count = 0;
    for (char* word = strtok(line, blanks); word != nullptr && count < 3;
         word = strtok(nullptr, blanks))
      words[count++] = word;
    say(obey(words[0], words[1], words[2]));
  }
  return 0;
}
