// cuLaunchKernelEx: what comes with a launch.
#include "tests/conformance/case.h"

namespace {
// A launch of `fill` on 64 numbers with the given attributes.
struct Launch {
  Gpu gpu;
  Module module{"kernels.fatbin"};
  DeviceArray<uint32_t> out{64};
  uint32_t value = 11;
  int count = 64;
  CUlaunchConfig config = {};
  std::vector<CUlaunchAttribute> attributes;
  Launch() {
    CU(cuMemsetD8(out.pointer, 0, out.bytes()));
    CU(cuCtxSynchronize());
    config.gridDimX = 2, config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = 32, config.blockDimY = config.blockDimZ = 1;
  }
  CUlaunchAttribute& add(CUlaunchAttributeID id) {
    attributes.push_back({});
    attributes.back().id = id;
    return attributes.back();
  }
  CUresult go(CUfunction function = nullptr) {
    config.attrs = attributes.data();
    config.numAttrs = static_cast<unsigned>(attributes.size());
    void* arguments[] = {&out.pointer, &value, &count};
    return cuLaunchKernelEx(&config, function != nullptr ? function : module.function("fill"), arguments, nullptr);
  }
  void show(const char* what) {
    const CUresult result = go();
    const CUresult after = cuCtxSynchronize();
    printf("%s: %s, %s, last number %u\n", what, code_name(result), code_name(after), out.read()[63]);
  }
};
}  // namespace

CASE(none) {
  Launch launch;
  launch.show("none");
}

CASE(null_attributes_with_a_count) {
  Launch launch;
  void* arguments[] = {&launch.out.pointer, &launch.value, &launch.count};
  launch.config.numAttrs = 1;
  SHOW(cuLaunchKernelEx(&launch.config, launch.module.function("fill"), arguments, nullptr));
}

CASE(bad_arguments) {
  Launch launch;
  void* arguments[] = {&launch.out.pointer, &launch.value, &launch.count};
  SHOW(cuLaunchKernelEx(nullptr, launch.module.function("fill"), arguments, nullptr));
  SHOW(cuLaunchKernelEx(&launch.config, nullptr, arguments, nullptr));
  launch.config.gridDimX = 0;
  SHOW(cuLaunchKernelEx(&launch.config, launch.module.function("fill"), arguments, nullptr));
  launch.config.gridDimX = 1, launch.config.blockDimX = 2048;
  SHOW(cuLaunchKernelEx(&launch.config, launch.module.function("fill"), arguments, nullptr));
}

CASE(ignore) {
  Launch launch;
  launch.add(CU_LAUNCH_ATTRIBUTE_IGNORE);
  launch.show("ignore");
}

CASE(unknown_id) {
  Launch launch;
  launch.add(static_cast<CUlaunchAttributeID>(99));
  launch.show("99");
}

CASE(cooperative) {
  Launch launch;
  launch.add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).value.cooperative = 1;
  launch.show("1");
  launch.attributes[0].value.cooperative = 0;
  launch.show("0");
}

CASE(cooperative_too_large) {
  Launch launch;
  launch.add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).value.cooperative = 1;
  launch.config.gridDimX = 1000000, launch.config.blockDimX = 1024;
  launch.show("large");
}

CASE(cluster_of_two) {
  Launch launch;
  launch.add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).value.clusterDim = {2, 1, 1};
  launch.show("two");
}

CASE(cluster_that_does_not_divide_the_grid) {
  Launch launch;
  launch.add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).value.clusterDim = {2, 1, 1};
  launch.config.gridDimX = 3;
  launch.show("three blocks");
}

CASE(cluster_of_the_kernel_that_does_not_divide_the_grid) {
  Launch launch;
  CUfunction fill = launch.module.function("fill");
  SHOW(cuFuncSetAttribute(fill, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 2));
  SHOW(cuFuncSetAttribute(fill, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, 1));
  SHOW(cuFuncSetAttribute(fill, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, 1));
  launch.show("two blocks");
  launch.config.gridDimX = 3;
  launch.show("three blocks");
}

CASE(cluster_of_zero) {
  Launch launch;
  launch.add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).value.clusterDim = {0, 0, 0};
  launch.show("zero");
}

CASE(cluster_too_large) {
  Launch launch;
  launch.add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).value.clusterDim = {32, 1, 1};
  launch.config.gridDimX = 64;
  launch.show("32");
}

CASE(cluster_of_sixteen_needs_consent) {
  Launch launch;
  launch.add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).value.clusterDim = {16, 1, 1};
  launch.config.gridDimX = 16;
  launch.show("without");
}

CASE(cluster_scheduling_policy) {
  Launch launch;
  launch.add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).value.clusterDim = {2, 1, 1};
  launch.add(CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE).value.clusterSchedulingPolicyPreference = CU_CLUSTER_SCHEDULING_POLICY_SPREAD;
  launch.show("spread");
  launch.attributes[1].value.clusterSchedulingPolicyPreference = static_cast<CUclusterSchedulingPolicy>(9);
  launch.show("9");
}

CASE(priority) {
  Launch launch;
  int least = 0, greatest = 0;
  CU(cuCtxGetStreamPriorityRange(&least, &greatest));
  launch.add(CU_LAUNCH_ATTRIBUTE_PRIORITY).value.priority = greatest;
  launch.show("greatest");
  launch.attributes[0].value.priority = 1000;
  launch.show("1000");
  launch.attributes[0].value.priority = -1000;
  launch.show("-1000");
}

CASE(programmatic_stream_serialization) {
  Launch launch;
  launch.add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION).value.programmaticStreamSerializationAllowed = 1;
  launch.show("1");
  launch.show("again");
}

CASE(programmatic_event) {
  Launch launch;
  CUevent event = nullptr;
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  auto& attribute = launch.add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT);
  attribute.value.programmaticEvent.event = event;
  attribute.value.programmaticEvent.triggerAtBlockStart = 1;
  launch.show("event");
  SHOW(cuEventSynchronize(event));
  attribute.value.programmaticEvent.event = nullptr;
  SHOW(launch.go());
}

CASE(launch_completion_event) {
  Launch launch;
  CUevent event = nullptr;
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  launch.add(CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT).value.launchCompletionEvent.event = event;
  launch.show("event");
  SHOW(cuEventSynchronize(event));
}

CASE(event_with_timing_in_an_attribute) {
  Launch launch;
  CUevent event = nullptr;
  CU(cuEventCreate(&event, 0));
  launch.add(CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT).value.launchCompletionEvent.event = event;
  launch.show("completion");
  launch.attributes[0] = {};
  launch.attributes[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
  launch.attributes[0].value.programmaticEvent.event = event;
  launch.show("programmatic");
}

CASE(synchronization_policy) {
  Launch launch;
  launch.add(CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY).value.syncPolicy = CU_SYNC_POLICY_SPIN;
  launch.show("spin");
}

CASE(memory_sync_domain) {
  Launch launch;
  launch.add(CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN).value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
  launch.show("remote");
  launch.attributes[0].value.memSyncDomain = static_cast<CUlaunchMemSyncDomain>(9);
  launch.show("9");
}

CASE(memory_sync_domain_map) {
  Launch launch;
  launch.add(CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP).value.memSyncDomainMap = {0, 1};
  launch.show("0 1");
  launch.attributes[0].value.memSyncDomainMap = {0, 200};
  launch.show("0 200");
}

CASE(access_policy_window) {
  Launch launch;
  CUaccessPolicyWindow& window = launch.add(CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW).value.accessPolicyWindow;
  window.base_ptr = reinterpret_cast<void*>(launch.out.pointer);
  window.num_bytes = launch.out.bytes();
  window.hitRatio = 0.5f;
  window.hitProp = CU_ACCESS_PROPERTY_PERSISTING;
  window.missProp = CU_ACCESS_PROPERTY_STREAMING;
  launch.show("window");
}

CASE(access_policy_window_bad_values) {
  Launch launch;
  CUaccessPolicyWindow& window = launch.add(CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW).value.accessPolicyWindow;
  window.base_ptr = reinterpret_cast<void*>(launch.out.pointer);
  window.num_bytes = launch.out.bytes();
  window.hitRatio = 2.0f;
  window.hitProp = CU_ACCESS_PROPERTY_PERSISTING;
  window.missProp = CU_ACCESS_PROPERTY_STREAMING;
  launch.show("ratio 2");
  window.hitRatio = 0.5f;
  window.missProp = CU_ACCESS_PROPERTY_PERSISTING;
  launch.show("persisting misses");
}

CASE(preferred_cluster_dimension) {
  Launch launch;
  launch.add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).value.clusterDim = {1, 1, 1};
  launch.add(CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION).value.preferredClusterDim = {2, 1, 1};
  launch.show("preferred");
}

CASE(preferred_carveout) {
  Launch launch;
  launch.add(CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT).value.sharedMemCarveout = 50;
  launch.show("50");
  launch.attributes[0].value.sharedMemCarveout = 1000;
  launch.show("1000");
}

CASE(two_attributes_at_once) {
  Launch launch;
  launch.add(CU_LAUNCH_ATTRIBUTE_PRIORITY).value.priority = 0;
  launch.add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).value.cooperative = 1;
  launch.show("two");
}

CASE(same_attribute_twice) {
  Launch launch;
  launch.add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).value.cooperative = 1;
  launch.add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).value.cooperative = 0;
  launch.show("twice");
}

CASE(device_updatable_node_outside_capture) {
  Launch launch;
  launch.add(CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE).value.deviceUpdatableKernelNode.deviceUpdatable = 1;
  launch.show("updatable");
}

CASE(on_a_stream) {
  Launch launch;
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  launch.config.hStream = stream;
  launch.show("stream");
  SHOW(cuStreamDestroy(stream));
}
