#include "bench/holds/words.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <thread>

#include "bench/holds/new_text.h"

namespace holds {

void give_up(const std::string& why) {
  printf(" (%s)", why.c_str());
  fflush(stdout);
  _Exit(1);
}

void check(CUresult code) {
  if (code == CUDA_SUCCESS) return;
  const char* name = nullptr;
  if (cuGetErrorName(code, &name) != CUDA_SUCCESS || name == nullptr)
    name = "an error without a name";
  give_up(name);
}

namespace {

using Text = std::string;
constexpr size_t kMemoryBytes = size_t{64} << 20;
constexpr unsigned kThreads = 32;

size_t number(const Text& argument) {
  char* end = nullptr;
  const size_t value = strtoul(argument.c_str(), &end, 10);
  if (argument.empty() || *end != '\0') give_up("a number is wanted");
  return value;
}

CUfunction kernel_of(const Scene& scene, const Text& name) {
  const auto found = scene.kernels.find(name);
  if (found == scene.kernels.end()) give_up("no kernel of this name was looked up");
  return found->second;
}

CUgraphExec last_instance(const Scene& scene) {
  if (scene.instances.empty()) give_up("no instance was made");
  return scene.instances.back();
}

// All kernels take (int* out, int n).
struct Arguments {
  CUdeviceptr out;
  int n = 3;
  void* pointers[2] = {&out, &n};
  explicit Arguments(const Scene& scene) : out(scene.memory) {}
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;
};

// ---- code

std::vector<char> image(const Text& name) {
  if (name == "text" || name == "text_with_variable") {
    const std::string text = new_text(2000, name != "text");
    return {text.c_str(), text.c_str() + text.size() + 1};
  }
  const auto path =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / (name + ".fatbin");
  std::ifstream file(path, std::ios::binary);
  if (!file) give_up("there is no " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

void load_module(Scene& s, const Text& name) {
  CU(cuModuleLoadData(&s.module, image(name).data()));
}
void unload_module(Scene& s, const Text&) { CU(cuModuleUnload(s.module)); }
void load_library(Scene& s, const Text& name) {
  CU(cuLibraryLoadData(&s.library, image(name).data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
}
void unload_library(Scene& s, const Text&) { CU(cuLibraryUnload(s.library)); }
void look_up(Scene& s, const Text& name) {
  CU(cuModuleGetFunction(&s.kernels[name], s.module, name.c_str()));
}
CUkernel name_in_library(Scene& s, const Text& name) {
  CUkernel kernel = nullptr;
  CU(cuLibraryGetKernel(&kernel, s.library, name.c_str()));
  return kernel;
}
void look_up_in_library(Scene& s, const Text& name) {
  CU(cuKernelGetFunction(&s.kernels[name], name_in_library(s, name)));
}
void ask_parameters(Scene& s, const Text& name) {
  size_t offset = 0, size = 0;
  CU(cuKernelGetParamInfo(name_in_library(s, name), 0, &offset, &size));
}
void load_function(Scene& s, const Text& name) { CU(cuFuncLoad(kernel_of(s, name))); }
void ask_attribute(Scene& s, const Text& name) {
  int registers = 0;
  CU(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel_of(s, name)));
}

void set_in_library(Scene& s, const Text& name) {
  CU(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 50'000,
                          name_in_library(s, name), s.device));
}

// ---- launches

void launch_in(Scene& s, const Text& name, CUstream stream, unsigned blocks = 1,
               unsigned shared_bytes = 0) {
  Arguments arguments(s);
  CU(cuLaunchKernel(kernel_of(s, name), blocks, 1, 1, kThreads, 1, 1, shared_bytes, stream,
                    arguments.pointers, nullptr));
}
void launch(Scene& s, const Text& name) { launch_in(s, name, s.work); }
void launch_legacy(Scene& s, const Text& name) { launch_in(s, name, nullptr); }
void launch_large(Scene& s, const Text& name) { launch_in(s, name, s.work, 1'000'000); }
void launch_in_streams(Scene& s, const Text& name) {
  for (const CUstream stream : s.streams) launch_in(s, name, stream);
}
void launch_shared(Scene& s, const Text& name) {
  int most = 0;
  CU(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, s.device));
  CU(cuFuncSetAttribute(kernel_of(s, name), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most));
  launch_in(s, name, s.work, 1, static_cast<unsigned>(most));
}
void launch_carveout(Scene& s, const Text& name) {
  CU(cuFuncSetAttribute(kernel_of(s, name), CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 0));
  launch(s, name);
}
void launch_cooperative(Scene& s, const Text& name) {
  Arguments arguments(s);
  CU(cuLaunchCooperativeKernel(kernel_of(s, name), 1, 1, 1, kThreads, 1, 1, 0, s.work,
                               arguments.pointers));
}
void launch_cluster(Scene& s, const Text& name) {
  CUlaunchAttribute pairs{};
  pairs.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  pairs.value.clusterDim = {2, 1, 1};
  CUlaunchConfig config{};
  config.gridDimX = 2;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = kThreads;
  config.hStream = s.work;
  config.attrs = &pairs;
  config.numAttrs = 1;
  Arguments arguments(s);
  CU(cuLaunchKernelEx(&config, kernel_of(s, name), arguments.pointers, nullptr));
}

// ---- memory

void set_memory(Scene& s, const Text&) { CU(cuMemsetD32Async(s.memory, 1, 1024, s.work)); }
void set_bytes(Scene& s, const Text& bytes) {
  CU(cuMemsetD8Async(s.memory + 1, 1, number(bytes), s.work));
}
void set_rectangle(Scene& s, const Text&) {
  CU(cuMemsetD2D8Async(s.memory + 1, 512, 1, 33, 7, s.work));
}
void set_in_streams(Scene& s, const Text&) {
  for (const CUstream stream : s.streams) CU(cuMemsetD32Async(s.memory, 1, 64, stream));
}
void upload(Scene& s, const Text&) {
  const char bytes[1024] = {};
  CU(cuMemcpyHtoDAsync(s.memory, bytes, sizeof bytes, s.work));
}
void allocate(Scene& s, const Text&) { CU(cuMemAlloc(&s.allocated, 4 << 20)); }
void free_allocated(Scene& s, const Text&) { CU(cuMemFree(s.allocated)); }
void allocate_in_stream(Scene& s, const Text&) {
  CUdeviceptr pointer = 0;
  CU(cuMemAllocAsync(&pointer, 1 << 20, s.work));
}
void make_pool(Scene& s, const Text&) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool = nullptr;
  CUdeviceptr pointer = 0;
  CU(cuMemPoolCreate(&pool, &properties));
  CU(cuMemAllocFromPoolAsync(&pointer, 1 << 20, pool, s.work));
}
void make_texture(Scene& s, const Text&) {
  if (s.array == nullptr) {
    CUDA_ARRAY_DESCRIPTOR shape{};
    shape.Width = shape.Height = 64;
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 1;
    CU(cuArrayCreate(&s.array, &shape));
  }
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = s.array;
  const CUDA_TEXTURE_DESC how{};
  CUtexObject texture = 0;
  CU(cuTexObjectCreate(&texture, &resource, &how, nullptr));
}

void allocate_pinned(Scene& s, const Text&) {
  CU(cuMemHostAlloc(&s.pinned, 1 << 16, CU_MEMHOSTALLOC_PORTABLE));
}
void free_pinned(Scene& s, const Text&) { CU(cuMemFreeHost(s.pinned)); }

// ---- the context

Place make_place(CUdevice device) {
  Place place;
  CU(cuDevicePrimaryCtxRetain(&place.context, device));
  CU(cuCtxSetCurrent(place.context));
  CU(cuMemAlloc(&place.memory, kMemoryBytes));
  CU(cuStreamCreate(&place.work, CU_STREAM_NON_BLOCKING));
  return place;
}
void use_gpu(Scene& s, const Text& device) {
  s.left[s.device] = s;
  s.device = static_cast<CUdevice>(number(device));
  const auto known = s.left.find(s.device);
  static_cast<Place&>(s) = known != s.left.end() ? known->second : make_place(s.device);
  CU(cuCtxSetCurrent(s.context));
}
// With a scene of its own: what this one does next is another matter. After the patience it is in
// the driver.
void let_stand(Scene& s, const Text& step) {
  std::promise<void> end;
  std::future<void> ended = end.get_future();
  std::thread([scene = s, step, end = std::move(end)]() mutable {
    CU(cuCtxSetCurrent(scene.context));
    do_step(scene, step);
    end.set_value();
  }).detach();
  if (ended.wait_for(std::chrono::duration<double>(s.patience_s)) == std::future_status::ready)
    give_up("it does not stand");
}
void synchronize(Scene&, const Text&) { CU(cuCtxSynchronize()); }
void limit_stack(Scene&, const Text& bytes) {
  CU(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, number(bytes)));
}
void limit_heap(Scene&, const Text& bytes) {
  CU(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, number(bytes)));
}
void limit_prints(Scene&, const Text& bytes) {
  CU(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, number(bytes)));
}
void limit_persisting(Scene&, const Text& bytes) {
  CU(cuCtxSetLimit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, number(bytes)));
}
void make_context(Scene& s, const Text&) {
  CUcontext own = nullptr;
  CU(cuCtxCreate(&own, nullptr, 0, 0));
  CU(cuCtxSetCurrent(s.context));
}
void make_green(Scene& s, const Text&) {
  CUdevResource all{}, part{};
  CUdevResourceDesc description = nullptr;
  unsigned parts = 1;
  CU(cuDeviceGetDevResource(s.device, &all, CU_DEV_RESOURCE_TYPE_SM));
  CU(cuDevSmResourceSplitByCount(&part, &parts, &all, nullptr, 0, 16));
  CU(cuDevResourceGenerateDesc(&description, &part, 1));
  CU(cuGreenCtxCreate(&s.green, description, s.device, CU_GREEN_CTX_DEFAULT_STREAM));
}
void work_in_green_stream(Scene& s, const Text&) {
  CU(cuGreenCtxStreamCreate(&s.work, s.green, CU_STREAM_NON_BLOCKING, 0));
}
void enter_green(Scene& s, const Text&) {
  CUcontext context = nullptr;
  CU(cuCtxFromGreenCtx(&context, s.green));
  CU(cuCtxSetCurrent(context));
}
void leave_green(Scene& s, const Text&) { CU(cuCtxSetCurrent(s.context)); }
void destroy_green(Scene& s, const Text&) { CU(cuGreenCtxDestroy(s.green)); }

// ---- streams and events

void make_stream(Scene& s, const Text&) {
  CU(cuStreamCreate(&s.streams.emplace_back(), CU_STREAM_NON_BLOCKING));
}
void make_priority_stream(Scene& s, const Text&) {
  int least = 0, greatest = 0;
  CU(cuCtxGetStreamPriorityRange(&least, &greatest));
  const int levels = least - greatest + 1;
  const int priority = least - static_cast<int>(s.streams.size()) % levels;
  CU(cuStreamCreateWithPriority(&s.streams.emplace_back(), CU_STREAM_NON_BLOCKING, priority));
}
void destroy_streams(Scene& s, const Text&) {
  for (const CUstream stream : s.streams) CU(cuStreamDestroy(stream));
  s.streams.clear();
}
void record_event(Scene& s, const Text&) {
  CUevent event = nullptr;
  CU(cuEventCreate(&event, CU_EVENT_DEFAULT));
  CU(cuEventRecord(event, s.work));
}

// A stream that waits for work of another which is in progress: that ends by itself.
void wait_for_work(Scene& s, const Text& kernel) {
  CUstream worker = nullptr;
  CUevent done = nullptr;
  CU(cuStreamCreate(&worker, CU_STREAM_NON_BLOCKING));
  CU(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
  launch_in(s, kernel, worker);
  CU(cuEventRecord(done, worker));
  make_stream(s, "");
  CU(cuStreamWaitEvent(s.streams.back(), done, 0));
  CU(cuMemsetD32Async(s.memory, 1, 64, s.streams.back()));
}
void expect_state(const Scene& s, CUresult state, const char* otherwise) {
  for (const CUstream stream : s.streams) {
    const CUresult now = cuStreamQuery(stream);
    if (now != CUDA_ERROR_NOT_READY) check(now);
    if (now != state) give_up(otherwise);
  }
}
void expect_busy(Scene& s, const Text&) {
  expect_state(s, CUDA_ERROR_NOT_READY, "their work has ended");
}
void expect_idle(Scene& s, const Text&) { expect_state(s, CUDA_SUCCESS, "their work goes on"); }

// ---- graphs

void make_graph(Scene& s, const Text& name) {
  Arguments arguments(s);
  CUDA_KERNEL_NODE_PARAMS kernel{};
  kernel.func = kernel_of(s, name);
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.blockDimX = kThreads;
  kernel.kernelParams = arguments.pointers;
  CUgraphNode node = nullptr;
  CU(cuGraphCreate(&s.graph, 0));
  CU(cuGraphAddKernelNode(&node, s.graph, nullptr, 0, &kernel));
}
void capture_launches(Scene& s, const Text& count) {
  CU(cuStreamBeginCapture(s.work, CU_STREAM_CAPTURE_MODE_RELAXED));
  for (size_t i = number(count); i > 0; --i) launch(s, "plain");
  CU(cuStreamEndCapture(s.work, &s.graph));
}
void instantiate(Scene& s, const Text&) {
  CU(cuGraphInstantiate(&s.instances.emplace_back(), s.graph, 0));
}
void launch_instance(Scene& s, const Text&) { CU(cuGraphLaunch(last_instance(s), s.work)); }
void upload_instance(Scene& s, const Text&) { CU(cuGraphUpload(last_instance(s), s.work)); }
void launch_instances(Scene& s, const Text&) {
  for (const CUgraphExec instance : s.instances) CU(cuGraphLaunch(instance, s.work));
}
void destroy_instances(Scene& s, const Text&) {
  for (const CUgraphExec instance : s.instances) CU(cuGraphExecDestroy(instance));
  s.instances.clear();
}
void set_node(Scene& s, const Text& name) {
  size_t count = 1;
  CUgraphNode node = nullptr;
  CUDA_KERNEL_NODE_PARAMS kernel{};
  CU(cuGraphGetNodes(s.graph, &node, &count));
  CU(cuGraphKernelNodeGetParams(node, &kernel));
  kernel.func = kernel_of(s, name);
  CU(cuGraphExecKernelNodeSetParams(last_instance(s), node, &kernel));
}
void update_instance(Scene& s, const Text&) {
  CUgraphExecUpdateResultInfo result{};
  CU(cuGraphExecUpdate(last_instance(s), s.graph, &result));
}

const Word kTable[] = {
    {"module:IMAGE",
     "loads an image (empty, small, prints, all, runtime, works; text, text_with_variable: PTX) as "
     "a module",
     load_module},
    {"unload", "unloads the last module", unload_module},
    {"unload_library", "unloads the last library", unload_library},
    {"library:IMAGE", "loads an image as a library", load_library},
    {"kernel:KERNEL", "looks a kernel up in the last module", look_up},
    {"library_kernel:KERNEL", "gets the function of a kernel of the last library",
     look_up_in_library},
    {"parameters:KERNEL", "asks for the parameters of a kernel of the last library",
     ask_parameters},
    {"load:KERNEL", "cuFuncLoad", load_function},
    {"attribute:KERNEL", "cuFuncGetAttribute", ask_attribute},
    {"library_attribute:KERNEL",
     "sets the shared memory of a kernel of the last library: cuKernelSetAttribute",
     set_in_library},
    {"launch:KERNEL", "launches a kernel that was looked up", launch},
    {"launch_legacy:KERNEL", "the same in the legacy stream", launch_legacy},
    {"launch_large:KERNEL", "the same with a million blocks", launch_large},
    {"launch_shared:KERNEL", "the same with as much shared memory as there is", launch_shared},
    {"launch_carveout:KERNEL", "the same with the cache preferred to shared memory",
     launch_carveout},
    {"launch_cooperative:KERNEL", "the same as a cooperative launch", launch_cooperative},
    {"launch_cluster:KERNEL", "the same in clusters of two blocks", launch_cluster},
    {"launch_in_streams:KERNEL", "the same in each stream that was made", launch_in_streams},
    {"memset", "sets 4 KiB, aligned", set_memory},
    {"memset_bytes:N", "sets N bytes from an odd address on", set_bytes},
    {"memset_2d", "sets a rectangle of bytes", set_rectangle},
    {"memset_in_streams", "sets 256 bytes in each stream that was made", set_in_streams},
    {"upload", "copies 1 KiB of pageable memory to the GPU", upload},
    {"allocate", "cuMemAlloc", allocate},
    {"free", "cuMemFree of what was allocated last", free_allocated},
    {"allocate_in_stream", "cuMemAllocAsync", allocate_in_stream},
    {"pool", "makes a pool and allocates from it", make_pool},
    {"texture", "makes a texture", make_texture},
    {"pinned", "cuMemHostAlloc", allocate_pinned},
    {"free_pinned", "cuMemFreeHost", free_pinned},
    {"gpu:N", "the next steps are done on another GPU, in its primary context", use_gpu},
    {"standing:STEP", "does STEP in another thread, where it has to stand", let_stand},
    {"sync", "cuCtxSynchronize", synchronize},
    {"stack:N", "sets the limit of the stack", limit_stack},
    {"heap:N", "sets the limit of the kernels' heap", limit_heap},
    {"print_buffer:N", "sets the limit of the buffer of printf", limit_prints},
    {"persisting:N", "sets the limit of persisting L2", limit_persisting},
    {"context", "makes another context", make_context},
    {"green", "makes a green context of at least 16 SMs", make_green},
    {"green_stream", "the next work goes into a new stream of the green context",
     work_in_green_stream},
    {"enter_green", "makes the green context current", enter_green},
    {"leave_green", "makes the primary context current again", leave_green},
    {"destroy_green", "cuGreenCtxDestroy", destroy_green},
    {"stream", "makes a stream", make_stream},
    {"priority_stream", "makes a stream, of another priority each time", make_priority_stream},
    {"destroy_streams", "destroys the streams that were made", destroy_streams},
    {"event", "makes and records an event", record_event},
    {"wait_for_work:KERNEL",
     "makes a stream that waits for an event behind this kernel in another stream", wait_for_work},
    {"busy", "the scenario ends unless all streams that were made have work", expect_busy},
    {"idle", "the scenario ends unless none of them has", expect_idle},
    {"graph:KERNEL", "makes a graph of one kernel", make_graph},
    {"capture:N", "makes a graph of N launches of `plain`, looked up before", capture_launches},
    {"instantiate", "makes an instance of the last graph", instantiate},
    {"graph_launch", "launches the last instance", launch_instance},
    {"graph_upload", "uploads the last instance", upload_instance},
    {"launch_instances", "launches all instances", launch_instances},
    {"destroy_instances", "destroys all instances", destroy_instances},
    {"set_node:KERNEL", "puts another kernel into the last instance", set_node},
    {"update", "updates the last instance to the last graph", update_instance},
};

}  // namespace

const std::vector<Word>& words() {
  static const std::vector<Word> table(std::begin(kTable), std::end(kTable));
  return table;
}

Scene set_up(double patience_s) {
  Scene scene;
  scene.patience_s = patience_s;
  CU(cuInit(0));
  static_cast<Place&>(scene) = make_place(0);
  return scene;
}

void do_step(Scene& scene, const std::string& step) {
  const size_t colon = step.find(':');
  const std::string argument = colon == std::string::npos ? "" : step.substr(colon + 1);
  for (const Word& word : words()) {
    const std::string name = word.name;
    const size_t end = name.find(':');
    if (name.substr(0, end) == step.substr(0, colon) &&
        (end == std::string::npos) == argument.empty())
      return word.act(scene, argument);
  }
  give_up("no such word; holds --help lists them");
}

bool stands(const std::string& step) { return step.rfind("standing:", 0) == 0; }

}  // namespace holds
