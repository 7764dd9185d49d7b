// Green contexts: splitting a device's SMs, contexts on the parts, and what they share with the
// primary context.
#include <array>

#include "tests/conformance/case.h"

namespace {

struct Sms : Gpu {
  CUdevResource all{};
  Sms() { CU(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM)); }
};

// A green context of at least 8 SMs.
struct Green : Sms {
  CUdevResource part{};
  CUgreenCtx green = nullptr;
  CUcontext converted = nullptr;
  Green() {
    unsigned groups = 1;
    CU(cuDevSmResourceSplitByCount(&part, &groups, &all, nullptr, 0, 8));
    CUdevResourceDesc description;
    CU(cuDevResourceGenerateDesc(&description, &part, 1));
    CU(cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
    CU(cuCtxFromGreenCtx(&converted, green));
  }
  ~Green() {
    if (green != nullptr) CU(cuGreenCtxDestroy(green));
  }
};

const char* which(CUcontext context, const Green& g) {
  return context == nullptr ? "none" : context == g.context ? "the primary one" : context == g.converted ? "the green one" : "another";
}

}  // namespace

CASE(device_resource) {
  Sms s;
  int sms = 0;
  CU(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  printf("type %d, %s, smallest part %u, alignment %u\n", static_cast<int>(s.all.type),
         s.all.sm.smCount == static_cast<unsigned>(sms) ? "all SMs" : "some SMs", s.all.sm.minSmPartitionSize,
         s.all.sm.smCoscheduledAlignment);
}

CASE(device_resource_bad_arguments) {
  CU(cuInit(0));
  CUdevResource r;
  SHOW(cuDeviceGetDevResource(0, nullptr, CU_DEV_RESOURCE_TYPE_SM));
  SHOW(cuDeviceGetDevResource(1000, &r, CU_DEV_RESOURCE_TYPE_SM));
  SHOW(cuDeviceGetDevResource(0, &r, CU_DEV_RESOURCE_TYPE_INVALID));
  SHOW(cuDeviceGetDevResource(0, &r, static_cast<CUdevResourceType>(77)));
}

CASE(device_resource_before_init) {
  CUdevResource r;
  SHOW(cuDeviceGetDevResource(0, &r, CU_DEV_RESOURCE_TYPE_SM));
}

CASE(context_resource) {
  Sms s;
  CUdevResource r{};
  SHOW(cuCtxGetDevResource(s.context, &r, CU_DEV_RESOURCE_TYPE_SM));
  printf("%s\n", r.sm.smCount == s.all.sm.smCount ? "all SMs" : "some SMs");
  SHOW(cuCtxGetDevResource(nullptr, &r, CU_DEV_RESOURCE_TYPE_SM));
  SHOW(cuCtxGetDevResource(s.context, nullptr, CU_DEV_RESOURCE_TYPE_SM));
  SHOW(cuCtxGetDevResource(s.context, &r, CU_DEV_RESOURCE_TYPE_INVALID));
}

CASE(number_of_groups) {
  Sms s;
  for (unsigned minimum : {0u, 1u, 8u, 9u, 16u, 17u, 64u}) {
    unsigned groups = 0;
    const CUresult result = cuDevSmResourceSplitByCount(nullptr, &groups, &s.all, nullptr, 0, minimum);
    printf("at least %u: %s, %s\n", minimum, code_name(result), groups != 0 ? "some groups" : "no group");
  }
}

CASE(sizes_of_groups) {
  Sms s;
  for (unsigned minimum : {1u, 8u, 9u, 16u, 20u}) {
    CUdevResource parts[2]{};
    unsigned groups = 2;
    const CUresult result = cuDevSmResourceSplitByCount(parts, &groups, &s.all, nullptr, 0, minimum);
    printf("at least %u: %s, %u groups of %u and %u, type %d\n", minimum, code_name(result), groups, parts[0].sm.smCount,
           parts[1].sm.smCount, static_cast<int>(parts[0].type));
  }
}

CASE(remaining) {
  Sms s;
  CUdevResource part{}, rest{};
  unsigned groups = 1;
  SHOW(cuDevSmResourceSplitByCount(&part, &groups, &s.all, &rest, 0, 16));
  printf("%u group, the sum is %s\n", groups, part.sm.smCount + rest.sm.smCount == s.all.sm.smCount ? "right" : "wrong");
}

CASE(nothing_remaining) {
  Sms s;
  CUdevResource part{}, rest{};
  unsigned groups = 1;
  const CUresult result = cuDevSmResourceSplitByCount(&part, &groups, &s.all, &rest, 0, s.all.sm.smCount / 8 * 8);
  printf("%s\n", code_name(result));
}

CASE(groups_of_two) {
  Sms s;
  CUdevResource parts[2]{};
  unsigned groups = 2;
  SHOW(cuDevSmResourceSplitByCount(parts, &groups, &s.all, nullptr, CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, 2));
  printf("%u groups of %u and %u\n", groups, parts[0].sm.smCount, parts[1].sm.smCount);
}

CASE(split_for_large_clusters) {
  Sms s;
  CUdevResource part{};
  unsigned groups = 1;
  SHOW(cuDevSmResourceSplitByCount(&part, &groups, &s.all, nullptr, CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE, 8));
  printf("%u group\n", groups);
}

CASE(split_bad_arguments) {
  Sms s;
  CUdevResource part{}, nothing{};
  unsigned groups = 1;
  SHOW(cuDevSmResourceSplitByCount(&part, nullptr, &s.all, nullptr, 0, 8));
  SHOW(cuDevSmResourceSplitByCount(&part, &groups, nullptr, nullptr, 0, 8));
  SHOW(cuDevSmResourceSplitByCount(&part, &groups, &nothing, nullptr, 0, 8));
  SHOW(cuDevSmResourceSplitByCount(&part, &groups, &s.all, nullptr, 0x80, 8));
  SHOW(cuDevSmResourceSplitByCount(&part, &groups, &s.all, nullptr, 0, s.all.sm.smCount + 1));
  groups = 0;
  SHOW(cuDevSmResourceSplitByCount(&part, &groups, &s.all, nullptr, 0, 8));
}

CASE(split_a_group_again) {
  Sms s;
  CUdevResource part{}, again{};
  unsigned groups = 1;
  CU(cuDevSmResourceSplitByCount(&part, &groups, &s.all, nullptr, 0, 16));
  groups = 1;
  SHOW(cuDevSmResourceSplitByCount(&again, &groups, &part, nullptr, 0, 8));
}

CASE(describe_two_groups) {
  Sms s;
  CUdevResource parts[2]{};
  unsigned groups = 2;
  CU(cuDevSmResourceSplitByCount(parts, &groups, &s.all, nullptr, 0, 8));
  CUdevResourceDesc description = nullptr;
  SHOW(cuDevResourceGenerateDesc(&description, parts, 2));
  CUgreenCtx green = nullptr;
  SHOW(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  CUdevResource r{};
  SHOW(cuGreenCtxGetDevResource(green, &r, CU_DEV_RESOURCE_TYPE_SM));
  printf("%s\n", r.sm.smCount == parts[0].sm.smCount + parts[1].sm.smCount ? "both groups" : "something else");
  SHOW(cuGreenCtxDestroy(green));
}

CASE(describe_groups_of_two_splits) {
  Sms s;
  CUdevResource parts[2]{};
  unsigned groups = 1;
  CU(cuDevSmResourceSplitByCount(&parts[0], &groups, &s.all, nullptr, 0, 8));
  groups = 1;
  CU(cuDevSmResourceSplitByCount(&parts[1], &groups, &s.all, nullptr, 0, 8));
  CUdevResourceDesc description = nullptr;
  SHOW(cuDevResourceGenerateDesc(&description, parts, 2));
}

CASE(describe_the_whole_device) {
  Sms s;
  CUdevResourceDesc description = nullptr;
  SHOW(cuDevResourceGenerateDesc(&description, &s.all, 1));
  CUgreenCtx green = nullptr;
  SHOW(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  SHOW(cuGreenCtxDestroy(green));
}

CASE(describe_bad_arguments) {
  Sms s;
  CUdevResource nothing{};
  CUdevResourceDesc description = nullptr;
  SHOW(cuDevResourceGenerateDesc(nullptr, &s.all, 1));
  SHOW(cuDevResourceGenerateDesc(&description, nullptr, 1));
  SHOW(cuDevResourceGenerateDesc(&description, &nothing, 1));
}

CASE(create_bad_arguments) {
  Sms s;
  CUdevResourceDesc description = nullptr;
  CU(cuDevResourceGenerateDesc(&description, &s.all, 1));
  CUgreenCtx green = nullptr;
  SHOW(cuGreenCtxCreate(nullptr, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  SHOW(cuGreenCtxCreate(&green, nullptr, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  SHOW(cuGreenCtxCreate(&green, description, 1000, CU_GREEN_CTX_DEFAULT_STREAM));
  SHOW(cuGreenCtxCreate(&green, description, 0, 0));
  SHOW(cuGreenCtxCreate(&green, description, 0, 2));
}

CASE(create_does_not_make_it_current) {
  Green g;
  CUcontext current = nullptr;
  CU(cuCtxGetCurrent(&current));
  printf("%s\n", which(current, g));
  SHOW(cuCtxSetCurrent(g.converted));
  CU(cuCtxGetCurrent(&current));
  printf("%s\n", which(current, g));
  CU(cuCtxSetCurrent(g.context));
}

CASE(convert_bad_arguments) {
  Green g;
  CUcontext context = nullptr;
  SHOW(cuCtxFromGreenCtx(nullptr, g.green));
  SHOW(cuCtxFromGreenCtx(&context, nullptr));
}

CASE(convert_twice) {
  Green g;
  CUcontext again = nullptr;
  SHOW(cuCtxFromGreenCtx(&again, g.green));
  printf("%s\n", which(again, g));
}

CASE(resource_of_a_green_context) {
  Green g;
  CUdevResource r{};
  SHOW(cuGreenCtxGetDevResource(g.green, &r, CU_DEV_RESOURCE_TYPE_SM));
  printf("%s\n", r.sm.smCount == g.part.sm.smCount ? "its part" : "something else");
  SHOW(cuCtxGetDevResource(g.converted, &r, CU_DEV_RESOURCE_TYPE_SM));
  printf("%s\n", r.sm.smCount == g.part.sm.smCount ? "its part" : "something else");
  SHOW(cuGreenCtxGetDevResource(g.green, nullptr, CU_DEV_RESOURCE_TYPE_SM));
  SHOW(cuGreenCtxGetDevResource(g.green, &r, CU_DEV_RESOURCE_TYPE_INVALID));
  SHOW(cuGreenCtxGetDevResource(nullptr, &r, CU_DEV_RESOURCE_TYPE_SM));
}

CASE(ids) {
  Green g;
  unsigned long long green = 0, context = 0, again = 0;
  SHOW(cuGreenCtxGetId(g.green, &green));
  SHOW(cuCtxGetId(g.context, &context));
  printf("%s\n", green != context ? "another id than the primary context" : "the primary context's id");
  SHOW(cuGreenCtxGetId(nullptr, &again));
  CU(cuCtxSetCurrent(g.converted));
  SHOW(cuGreenCtxGetId(nullptr, &again));
  printf("%s\n", again == green ? "the same" : "another");
  SHOW(cuGreenCtxGetId(g.green, nullptr));
  CU(cuCtxSetCurrent(g.context));
}

CASE(stream_of_a_green_context) {
  Green g;
  CUstream stream = nullptr;
  SHOW(cuGreenCtxStreamCreate(&stream, g.green, CU_STREAM_NON_BLOCKING, 0));
  unsigned flags = 0;
  SHOW(cuStreamGetFlags(stream, &flags));
  printf("%u\n", flags);
  CUgreenCtx green = nullptr;
  SHOW(cuStreamGetGreenCtx(stream, &green));
  printf("%s\n", green == g.green ? "its green context" : "another");
  CUcontext context = nullptr;
  green = nullptr;
  SHOW(cuStreamGetCtx_v2(stream, &context, &green));
  printf("%s, %s\n", which(context, g), green == g.green ? "its green context" : "another");
  SHOW(cuStreamDestroy(stream));
}

CASE(stream_bad_arguments) {
  Green g;
  CUstream stream = nullptr;
  SHOW(cuGreenCtxStreamCreate(nullptr, g.green, CU_STREAM_NON_BLOCKING, 0));
  SHOW(cuGreenCtxStreamCreate(&stream, g.green, CU_STREAM_DEFAULT, 0));
  SHOW(cuGreenCtxStreamCreate(&stream, nullptr, CU_STREAM_NON_BLOCKING, 0));
}

CASE(stream_priority) {
  Green g;
  CUstream stream = nullptr;
  SHOW(cuGreenCtxStreamCreate(&stream, g.green, CU_STREAM_NON_BLOCKING, -1000));
  int least = 0, greatest = 0, priority = 0;
  CU(cuCtxGetStreamPriorityRange(&least, &greatest));
  SHOW(cuStreamGetPriority(stream, &priority));
  printf("%s\n", priority == greatest ? "the greatest" : "another");
  CU(cuStreamDestroy(stream));
}

CASE(contexts_of_an_ordinary_stream) {
  Green g;
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  CUgreenCtx green = g.green;
  SHOW(cuStreamGetGreenCtx(stream, &green));
  printf("%s\n", green == nullptr ? "no green context" : "a green context");
  CUcontext context = nullptr;
  green = g.green;
  SHOW(cuStreamGetCtx_v2(stream, &context, &green));
  printf("%s, %s\n", which(context, g), green == nullptr ? "no green context" : "a green context");
  SHOW(cuStreamGetCtx_v2(nullptr, &context, &green));
  SHOW(cuStreamGetCtx_v2(CU_STREAM_LEGACY, &context, &green));
  SHOW(cuStreamGetCtx_v2(CU_STREAM_PER_THREAD, &context, &green));
  printf("%s\n", which(context, g));
  CU(cuStreamDestroy(stream));
}

CASE(default_stream_with_a_green_context_current) {
  Green g;
  CU(cuCtxSetCurrent(g.converted));
  CUgreenCtx green = nullptr;
  SHOW(cuStreamGetGreenCtx(nullptr, &green));
  printf("%s\n", green == g.green ? "its green context" : "another");
  CUcontext context = nullptr;
  SHOW(cuStreamGetCtx_v2(CU_STREAM_PER_THREAD, &context, &green));
  CU(cuCtxSetCurrent(g.context));
}

CASE(stream_created_with_a_green_context_current) {
  Green g;
  CU(cuCtxSetCurrent(g.converted));
  CUstream stream = nullptr;
  SHOW(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUgreenCtx green = nullptr;
  SHOW(cuStreamGetGreenCtx(stream, &green));
  printf("%s\n", green == g.green ? "its green context" : "another");
  SHOW(cuStreamDestroy(stream));
  CU(cuCtxSetCurrent(g.context));
}

CASE(kernel_in_a_green_stream) {
  Green g;
  Module module("kernels.fatbin");
  CUfunction fill = module.function("fill");
  DeviceArray<uint32_t> out(256);
  CUstream stream;
  CU(cuGreenCtxStreamCreate(&stream, g.green, CU_STREAM_NON_BLOCKING, 0));
  SHOW(try_launch(fill, {4}, {64}, 0, stream, out.pointer, 7u, 256));
  SHOW(cuStreamSynchronize(stream));
  print_hash("out", out.read());
  CU(cuStreamDestroy(stream));
}

CASE(library_kernel_in_a_green_stream) {
  Green g;
  CUlibrary library;
  CU(cuLibraryLoadData(&library, read_beside("kernels.fatbin").data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel;
  CU(cuLibraryGetKernel(&kernel, library, "fill"));
  DeviceArray<uint32_t> out(256);
  CUstream stream;
  CU(cuGreenCtxStreamCreate(&stream, g.green, CU_STREAM_NON_BLOCKING, 0));
  SHOW(try_launch(reinterpret_cast<CUfunction>(kernel), {4}, {64}, 0, stream, out.pointer, 9u, 256));
  SHOW(cuStreamSynchronize(stream));
  print_hash("out", out.read());
  CU(cuStreamDestroy(stream));
  CU(cuLibraryUnload(library));
}

CASE(everything_with_a_green_context_current) {
  Green g;
  CU(cuCtxSetCurrent(g.converted));
  {
    Module module("kernels.fatbin");
    CUfunction fill = module.function("fill");
    DeviceArray<uint32_t> out(256);
    SHOW(try_launch(fill, {4}, {64}, 0, nullptr, out.pointer, 11u, 256));
    SHOW(cuCtxSynchronize());
    print_hash("out", out.read());
  }
  CUdevice device = -1;
  SHOW(cuCtxGetDevice(&device));
  printf("%d\n", device);
  CU(cuCtxSetCurrent(g.context));
}

CASE(memory_is_the_primary_context_s) {
  Green g;
  std::vector<uint32_t> data(64, 5u);
  DeviceArray<uint32_t> array(data);
  CU(cuCtxSetCurrent(g.converted));
  std::vector<uint32_t> back(64);
  SHOW(cuMemcpyDtoH(back.data(), array.pointer, array.bytes()));
  printf("%s\n", back == data ? "the same bytes" : "others");
  CU(cuCtxSetCurrent(g.context));
}

CASE(push_and_pop) {
  Green g;
  CUcontext popped = nullptr;
  SHOW(cuCtxPushCurrent(g.converted));
  SHOW(cuCtxPopCurrent(&popped));
  printf("%s\n", which(popped, g));
}

CASE(destroy_the_converted_context) {
  Green g;
  SHOW(cuCtxDestroy(g.converted));
}

CASE(destroy_null) {
  Gpu gpu;
  SHOW(cuGreenCtxDestroy(nullptr));
}

CASE(events_of_a_green_context) {
  Green g;
  Module module("kernels.fatbin");
  CUfunction step = module.function("slow_step");
  DeviceArray<uint32_t> data(std::vector<uint32_t>(32, 1u));
  CUstream stream, other;
  CUevent event;
  CU(cuGreenCtxStreamCreate(&stream, g.green, CU_STREAM_NON_BLOCKING, 0));
  CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  LAUNCH(step, {1}, {32}, 0, stream, data.pointer, 3u, 1u, 32, 2000);
  SHOW(cuGreenCtxRecordEvent(g.green, event));
  CU(cuStreamWaitEvent(other, event, 0));
  LAUNCH(step, {1}, {32}, 0, other, data.pointer, 5u, 2u, 32, 2000);
  CU(cuEventRecord(event, other));
  SHOW(cuGreenCtxWaitEvent(g.green, event));
  LAUNCH(step, {1}, {32}, 0, stream, data.pointer, 7u, 3u, 32, 2000);
  CU(cuStreamSynchronize(stream));
  print_hash("data", data.read());
  CU(cuEventDestroy(event));
  CU(cuStreamDestroy(stream));
  CU(cuStreamDestroy(other));
}

CASE(event_bad_arguments) {
  Green g;
  CUevent event;
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  SHOW(cuGreenCtxRecordEvent(nullptr, event));
  SHOW(cuGreenCtxWaitEvent(nullptr, event));
  SHOW(cuGreenCtxRecordEvent(g.green, nullptr));
  SHOW(cuGreenCtxWaitEvent(g.green, nullptr));
  CU(cuEventDestroy(event));
}

CASE(two_green_contexts) {
  Sms s;
  CUdevResource parts[2]{};
  unsigned groups = 2;
  CU(cuDevSmResourceSplitByCount(parts, &groups, &s.all, nullptr, 0, 8));
  Module module("kernels.fatbin");
  CUfunction fill = module.function("fill");
  DeviceArray<uint32_t> out(128);
  CUgreenCtx green[2];
  CUstream stream[2];
  for (int i = 0; i < 2; ++i) {
    CUdevResourceDesc description;
    CU(cuDevResourceGenerateDesc(&description, &parts[i], 1));
    CU(cuGreenCtxCreate(&green[i], description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    CU(cuGreenCtxStreamCreate(&stream[i], green[i], CU_STREAM_NON_BLOCKING, 0));
    LAUNCH(fill, {1}, {64}, 0, stream[i], out.pointer + 256 * static_cast<unsigned>(i), 100u * static_cast<unsigned>(i), 64);
  }
  for (int i = 0; i < 2; ++i) {
    CU(cuStreamSynchronize(stream[i]));
    CU(cuStreamDestroy(stream[i]));
    SHOW(cuGreenCtxDestroy(green[i]));
  }
  print_hash("out", out.read());
}

CASE(green_context_without_the_primary_one_retained) {
  CU(cuInit(0));
  CUdevResource all{};
  SHOW(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
  CUdevResourceDesc description;
  SHOW(cuDevResourceGenerateDesc(&description, &all, 1));
  CUgreenCtx green = nullptr;
  SHOW(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  unsigned flags = 0;
  int active = -1;
  SHOW(cuDevicePrimaryCtxGetState(0, &flags, &active));
  printf("%d\n", active);
  SHOW(cuGreenCtxDestroy(green));
  SHOW(cuDevicePrimaryCtxGetState(0, &flags, &active));
  printf("%d\n", active);
}

// A server that divides its GPU for each request: what is asked for again is not used up.
CASE(parts_again_and_again) {
  Sms s;
  CUresult result = CUDA_SUCCESS;
  int round = 0;
  for (; round < 4200 && result == CUDA_SUCCESS; ++round) {
    CUdevResource all{}, part{}, rest{};
    unsigned groups = 1;
    CUdevResourceDesc description = nullptr;
    result = cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM);
    if (result == CUDA_SUCCESS) result = cuDevSmResourceSplitByCount(&part, &groups, &all, &rest, 0, 8);
    if (result == CUDA_SUCCESS) result = cuDevResourceGenerateDesc(&description, &part, 1);
    if (result != CUDA_SUCCESS || round % 600 != 0) continue;
    CUgreenCtx green = nullptr;
    CU(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    CUdevResource its{};
    CU(cuGreenCtxGetDevResource(green, &its, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT(its.sm.smCount == part.sm.smCount);
    CU(cuGreenCtxDestroy(green));
  }
  printf("%d rounds: %s\n", round, code_name(result));
}

// What was made with it current is the primary context's, and goes on when it has ended; its
// streams end.
CASE(what_a_green_context_leaves_behind) {
  Green g;
  CU(cuCtxSetCurrent(g.converted));
  CUstream stream, own;
  CUevent event;
  CUdeviceptr memory = 0, managed = 0, pooled = 0;
  uint32_t* pinned = nullptr;
  CUarray array;
  CU(cuGreenCtxStreamCreate(&stream, g.green, CU_STREAM_NON_BLOCKING, 0));
  CU(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
  CU(cuEventCreate(&event, 0));
  CU(cuMemAlloc(&memory, 4096));
  CU(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), 4096, 0));
  CU(cuMemAllocAsync(&pooled, 4096, stream));
  alignas(4096) static std::array<uint32_t, 4096> registered;
  CU(cuMemHostRegister(registered.data(), sizeof registered, 0));
  CUmodule module;
  CUfunction fill;
  CU(cuModuleLoadData(&module, read_beside("kernels.fatbin").data()));
  CU(cuModuleGetFunction(&fill, module, "fill"));
  CUDA_ARRAY_DESCRIPTOR shape{16, 16, CU_AD_FORMAT_FLOAT, 1};
  CU(cuArrayCreate(&array, &shape));
  CU(cuMemsetD32Async(pooled, 3, 1024, stream));
  CU(cuEventRecord(event, stream));
  CU(cuStreamSynchronize(stream));
  SHOW(cuGreenCtxDestroy(g.green));
  CUcontext current = nullptr;
  SHOW(cuCtxGetCurrent(&current));
  printf("%s\n", which(current, g));
  SHOW(cuCtxSynchronize());
  SHOW(cuCtxSetCurrent(g.converted));
  SHOW(cuCtxSetCurrent(g.context));
  SHOW(cuGreenCtxDestroy(g.green));
  g.green = nullptr;
  SHOW(cuStreamQuery(stream));
  SHOW(cuStreamSynchronize(own));
  SHOW(cuStreamDestroy(stream));
  SHOW(cuStreamDestroy(own));
  SHOW(cuEventQuery(event));
  SHOW(cuEventRecord(event, nullptr));
  for (CUdeviceptr target : {memory, managed, pooled, reinterpret_cast<CUdeviceptr>(pinned),
                             reinterpret_cast<CUdeviceptr>(registered.data())}) {
    SHOW(try_launch(fill, {4}, {64}, 0, nullptr, target, 7u, 256));
    uint32_t value = 0;
    SHOW(cuMemcpyDtoH(&value, target + 400, 4));
    printf("%u\n", value);
  }
  SHOW(cuEventDestroy(event));
  SHOW(cuArrayDestroy(array));
  SHOW(cuModuleUnload(module));
  SHOW(cuMemHostUnregister(registered.data()));
  SHOW(cuMemFreeHost(pinned));
  SHOW(cuMemFree(managed));
  SHOW(cuMemFree(memory));
  SHOW(cuMemFree(pooled));
}
