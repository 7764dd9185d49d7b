// Two programs on one GPU that know nothing of each other: what one does with code and memory may
// not stop the other.
//
// The first holds one of its streams with a word, and opens it only after it has launched and
// waited for more work on another stream. Meanwhile the second does one thing for which a driver
// waits until its context is idle, or behind which it lets everything else wait.
#include "tests/conformance/gate.h"
#include "tests/conformance/two_gpus.h"
#include "tests/conformance/two_processes.h"

#include <thread>

CASES_HOLD_STREAMS;

namespace {

constexpr int kSteps = 300;

struct NothingMore {
  void operator()() const {}
};

// `more` is done while the stream is held, and natively does not wait for it. Before this program
// opens it.
template <class More = NothingMore>
void hold_and_work(Other& other, CUfunction step, More more = {}) {
  DeviceArray<uint32_t> value(std::vector<uint32_t>(32, 0));
  Gate gate;
  CUstream held = nullptr, free_running = nullptr;
  CU(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&free_running, CU_STREAM_NON_BLOCKING));
  other.link().wait();  // it has done everything that comes before
  gate.stop(held);
  other.link().done();
  other.link().wait();  // it is about to
  for (int i = 0; i < kSteps; ++i) {
    LAUNCH(step, {1}, {32}, 0, free_running, value.pointer, 1u, 1u, 32);
    CU(cuStreamSynchronize(free_running));
  }
  more();
  gate.open();
  SHOW(cuStreamSynchronize(held));
  printf("%u\n", value.read()[0]);
  other.finish();
}

void hold_and_work(Other& other) {
  Gpu gpu;
  Module module("kernels.fatbin");
  hold_and_work(other, module.function("step"));
}

// The same library in both programs.
struct Library {
  CUlibrary handle = nullptr;
  Library() {
    const std::vector<char> image = read_beside("kernels.fatbin");
    CU(cuLibraryLoadData(&handle, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  }
  ~Library() { CU(cuLibraryUnload(handle)); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  CUfunction function(const char* name) const {
    CUkernel kernel = nullptr;
    CUfunction function = nullptr;
    CU(cuLibraryGetKernel(&kernel, handle, name));
    CU(cuKernelGetFunction(&function, kernel));
    return function;
  }
};

// Between these two the first program's stream is held.
void ready(Link& link) {
  link.done();
  link.wait();
  link.done();
}

}  // namespace

CASE(code_is_loaded) {
  Other other([](Link& link) {
    Gpu gpu;
    const std::vector<char> image = read_beside("kernels.fatbin");
    ready(link);
    CUmodule module;
    SHOW(cuModuleLoadData(&module, image.data()));
    SHOW(cuModuleUnload(module));
  });
  hold_and_work(other);
}

CASE(code_is_unloaded) {
  Other other([](Link& link) {
    Gpu gpu;
    CUmodule module;
    CU(cuModuleLoadData(&module, read_beside("kernels.fatbin").data()));
    ready(link);
    SHOW(cuModuleUnload(module));
  });
  hold_and_work(other);
}

CASE(a_kernel_of_a_library_is_used_first) {
  Other other([](Link& link) {
    Gpu gpu;
    CUlibrary library;
    const std::vector<char> image = read_beside("kernels.fatbin");
    CU(cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    DeviceArray<uint32_t> value(std::vector<uint32_t>(32, 2));
    ready(link);
    CUkernel kernel;
    SHOW(cuLibraryGetKernel(&kernel, library, "step"));
    LAUNCH(reinterpret_cast<CUfunction>(kernel), {1}, {32}, 0, nullptr, value.pointer, 3u, 1u, 32);
    printf("%u\n", value.read()[0]);
    SHOW(cuLibraryUnload(library));
  });
  hold_and_work(other);
}

CASE(a_kernel_of_a_library_that_another_program_changes) {
  Other other([](Link& link) {
    Gpu gpu;
    Library library;
    DeviceArray<uint32_t> value(std::vector<uint32_t>(32, 2));
    ready(link);
    LAUNCH(library.function("fill"), {1}, {32}, 0, nullptr, value.pointer, 3u, 32);
    printf("%u\n", value.read()[0]);
  });
  Gpu gpu;
  Library library;
  const CUfunction shared = library.function("dynamic_shared");
  DeviceArray<int> out(1);
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  hold_and_work(other, library.function("step"), [&] {
    SHOW(cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
    LAUNCH(shared, {1}, {64}, 60000, stream, out.pointer, 60000 / 4);
    SHOW(cuStreamSynchronize(stream));
  });
  printf("computed %d\n", out.read()[0]);
}

// The kernel is known already, but only to the first GPU.
TWO_DEVICES_CASE(a_kernel_of_a_library_is_used_on_the_other_device) {
  Other other([](Link& link) {
    TwoGpus gpus;
    Library library;
    gpus.use(0);
    CUkernel kernel = nullptr;
    CUfunction function = nullptr;
    CU(cuLibraryGetKernel(&kernel, library.handle, "step"));
    CU(cuKernelGetFunction(&function, kernel));
    const CUdeviceptr value = gpus.allocate(1, 128, 2);
    gpus.use(1);
    CUstream stream = nullptr;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ready(link);
    LAUNCH(reinterpret_cast<CUfunction>(kernel), {1}, {32}, 0, stream, value, 3u, 1u, 32);
    SHOW(cuStreamSynchronize(stream));
    unsigned word = 0;
    SHOW(cuMemcpyDtoH(&word, value, 4));
    printf("%u\n", word);
  });
  TwoGpus gpus;
  gpus.use(1);
  Module module("kernels.fatbin");
  hold_and_work(other, module.function("step"));
}

// As with NCCL: the first program's stream goes on when the second one has worked on its GPU, and
// meanwhile a call of the first one stands.
TWO_DEVICES_CASE(the_other_gpu_works_while_a_call_stands) {
  Other other([](Link& link) {
    CUcontext context = nullptr;
    CU(cuInit(0));
    CU(cuDevicePrimaryCtxRetain(&context, 1));
    CU(cuCtxSetCurrent(context));
    CUstream stream = stream_here();
    DeviceArray<uint32_t> value(std::vector<uint32_t>(32, 2));
    link.wait();  // the call is about to stand
    {
      Library library;
      Module module("kernels.fatbin");
      LAUNCH(library.function("step"), {1}, {32}, 0, stream, value.pointer, 3u, 1u, 32);
      LAUNCH(module.function("step"), {1}, {32}, 0, stream, value.pointer, 3u, 1u, 32);
      bool called = false;
      SHOW(cuLaunchHostFunc(stream, [](void* flag) { *static_cast<bool*>(flag) = true; }, &called));
      SHOW(cuStreamSynchronize(stream));
      printf("%u, called: %d\n", value.read()[0], called);
    }
    link.done();
  });
  Gpu gpu;
  Library library;
  CUcontext context = nullptr;
  CU(cuCtxGetCurrent(&context));
  Gate gate;
  CUstream held = stream_here();
  gate.stop(held);
  CUfunction step = nullptr;
  std::thread standing([&] {
    CU(cuCtxSetCurrent(context));
    other.link().done();
    step = library.function("step");
  });
  other.link().wait();
  gate.open();
  standing.join();
  SHOW(cuStreamSynchronize(held));
  printf("found: %d\n", step != nullptr);
  other.finish();
}

CASE(host_memory_is_unregistered) {
  Other other([](Link& link) {
    Gpu gpu;
    std::vector<char> memory(1 << 16);
    CU(cuMemHostRegister(memory.data(), memory.size(), 0));
    ready(link);
    SHOW(cuMemHostUnregister(memory.data()));
  });
  hold_and_work(other);
}

CASE(memory_is_freed) {
  Other other([](Link& link) {
    Gpu gpu;
    CUdeviceptr memory = 0;
    void* pinned = nullptr;
    CU(cuMemAlloc(&memory, 1 << 20));
    CU(cuMemHostAlloc(&pinned, 1 << 16, 0));
    ready(link);
    SHOW(cuMemFree(memory));
    SHOW(cuMemFreeHost(pinned));
  });
  hold_and_work(other);
}

CASE(an_array_is_destroyed) {
  Other other([](Link& link) {
    Gpu gpu;
    CUarray array;
    const CUDA_ARRAY_DESCRIPTOR shape{64, 64, CU_AD_FORMAT_FLOAT, 1};
    CU(cuArrayCreate(&array, &shape));
    ready(link);
    SHOW(cuArrayDestroy(array));
  });
  hold_and_work(other);
}

CASE(a_program_ends) {
  Other other([](Link& link) {
    Gpu gpu;
    CUmodule module;
    CU(cuModuleLoadData(&module, read_beside("kernels.fatbin").data()));
    ready(link);
    printf("ends\n");
  });
  hold_and_work(other);
}

CASE(a_program_starts) {
  Other other([](Link& link) {
    link.done();
    link.wait();
    link.done();
    Gpu gpu;
    Module module("kernels.fatbin");
    DeviceArray<uint32_t> value(std::vector<uint32_t>(32, 2));
    LAUNCH(module.function("step"), {1}, {32}, 0, nullptr, value.pointer, 3u, 1u, 32);
    printf("%u\n", value.read()[0]);
  });
  hold_and_work(other);
}

// ---- what does not wait itself, but holds whatever comes after it ----

CASE(a_modules_kernel_is_looked_up) {
  Other other([](Link& link) {
    Gpu gpu;
    CUmodule module;
    CU(cuModuleLoadData(&module, read_beside("kernels.fatbin").data()));
    DeviceArray<uint32_t> value(std::vector<uint32_t>(32, 2));
    ready(link);
    CUfunction fill = nullptr;
    SHOW(cuModuleGetFunction(&fill, module, "fill"));
    LAUNCH(fill, {1}, {32}, 0, nullptr, value.pointer, 3u, 32);
    printf("%u\n", value.read()[0]);
  });
  hold_and_work(other);
}

// The next launch of any kernel has to do with it.
CASE(code_that_needs_more_was_loaded) {
  Other other([](Link& link) {
    Gpu gpu;
    CUmodule module;
    CU(cuModuleLoadData(&module, read_beside("globals.fatbin").data()));
    ready(link);
    SHOW(cuModuleUnload(module));
  });
  hold_and_work(other);
}

CASE(the_stack_was_enlarged) {
  Other other([](Link& link) {
    Gpu gpu;
    SHOW(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 6000));
    ready(link);
    SHOW(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 12000));
  });
  hold_and_work(other);
}

CASE(a_graph_with_a_printing_kernel_is_instantiated) {
  Other other([](Link& link) {
    Gpu gpu;
    Module module("globals.fatbin");
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    int number = 1;
    float fraction = 0.5f;
    void* parameters[] = {&number, &fraction};
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = module.function("say_hello");
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = parameters;
    CU(cuGraphCreate(&graph, 0));
    CU(cuGraphAddKernelNode(&node, graph, nullptr, 0, &params));
    ready(link);
    CUgraphExec exec = nullptr;
    SHOW(cuGraphInstantiate(&exec, graph, 0));
    SHOW(cuGraphExecDestroy(exec));
    CU(cuGraphDestroy(graph));
  });
  hold_and_work(other);
}

// The driver makes room for them in blocks.
CASE(many_streams_are_created) {
  Other other([](Link& link) {
    Gpu gpu;
    ready(link);
    std::vector<CUstream> streams(300);
    for (CUstream& stream : streams) CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (CUstream stream : streams) CU(cuStreamDestroy(stream));
    printf("%zu\n", streams.size());
  });
  hold_and_work(other);
}

CASE(a_green_context_is_created) {
  Other other([](Link& link) {
    Gpu gpu;
    CUdevResource all{}, part{};
    CUdevResourceDesc description = nullptr;
    unsigned groups = 1;
    CU(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    CU(cuDevSmResourceSplitByCount(&part, &groups, &all, nullptr, 0, 8));
    CU(cuDevResourceGenerateDesc(&description, &part, 1));
    ready(link);
    CUgreenCtx green = nullptr;
    SHOW(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    SHOW(cuGreenCtxDestroy(green));
  });
  hold_and_work(other);
}

namespace {

// Texture objects on memory of the current GPU.
std::vector<CUtexObject> some_textures() {
  CUdeviceptr data = 0;
  CU(cuMemAlloc(&data, 4096));
  std::vector<CUtexObject> made(8);
  for (CUtexObject& texture : made) {
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear.devPtr = data;
    resource.res.linear.format = CU_AD_FORMAT_FLOAT;
    resource.res.linear.numChannels = 1;
    resource.res.linear.sizeInBytes = 4096;
    const CUDA_TEXTURE_DESC plain{};
    CU(cuTexObjectCreate(&texture, &resource, &plain, nullptr));
  }
  return made;
}

}  // namespace

// Each device counts its objects, and may give the same number as the other one.
TWO_DEVICES_CASE(it_ends_with_textures_on_the_other_device) {
  Other other([](Link& link) {
    TwoGpus gpus;
    link.wait();
    gpus.use(1);
    some_textures();
    gpus.allocate(0, 4096, 1);
    exit(0);  // with all that it has
  });
  TwoGpus gpus;
  const std::vector<CUtexObject> ours = some_textures();
  other.link().done();
  other.finish();
  int there = 0;
  for (int i = 0; i < 800; ++i) {
    CUDA_RESOURCE_DESC resource{};
    there += cuTexObjectGetResourceDesc(&resource, ours[static_cast<size_t>(i) % ours.size()]) == CUDA_SUCCESS;
  }
  printf("%d\n", there);
  for (CUtexObject texture : ours) SHOW(cuTexObjectDestroy(texture));
}
