// User objects: when their destructors run.
#include <atomic>

#include "tests/conformance/graph.h"

namespace {

std::atomic<int> destroyed{0};
void CUDA_CB destroy(void* data) { destroyed.fetch_add(static_cast<int>(reinterpret_cast<intptr_t>(data))); }

CUuserObject make(unsigned references = 1, intptr_t number = 1) {
  CUuserObject object = nullptr;
  CU(cuUserObjectCreate(&object, reinterpret_cast<void*>(number), destroy, references, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  return object;
}

// The destructor runs on a thread of the driver, some time after the last reference went; nothing
// else can be waited for.
void wait_for(int count) {
  while (destroyed.load() < count) usleep(100);
  printf("destroyed %d\n", destroyed.load());
}

}  // namespace

CASE(create_bad_arguments) {
  Gpu gpu;
  CUuserObject object = nullptr;
  SHOW(cuUserObjectCreate(nullptr, nullptr, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  SHOW(cuUserObjectCreate(&object, nullptr, nullptr, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  SHOW(cuUserObjectCreate(&object, nullptr, destroy, 0, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  SHOW(cuUserObjectCreate(&object, nullptr, destroy, 1, 0));
  SHOW(cuUserObjectCreate(&object, nullptr, destroy, 1, 2));
}

CASE(release) {
  Gpu gpu;
  CUuserObject object = make();
  printf("before %d\n", destroyed.load());
  SHOW(cuUserObjectRelease(object, 1));
  wait_for(1);
}

CASE(retain_and_release) {
  Gpu gpu;
  CUuserObject object = make(2);
  SHOW(cuUserObjectRetain(object, 3));
  SHOW(cuUserObjectRelease(object, 4));
  printf("still there %d\n", destroyed.load() == 0);
  SHOW(cuUserObjectRelease(object, 1));
  wait_for(1);
}

CASE(zero_counts) {
  GraphGpu gpu;
  CUuserObject object = make(2);
  SHOW(cuUserObjectRetain(object, 0));
  SHOW(cuUserObjectRelease(object, 0));
  SHOW(cuGraphRetainUserObject(gpu.graph, object, 0, 0));
  CU(cuUserObjectRelease(object, 2));
  wait_for(1);
}

CASE(null_object) {
  GraphGpu gpu;
  SHOW(cuUserObjectRetain(nullptr, 1));
  SHOW(cuUserObjectRelease(nullptr, 1));
  SHOW(cuGraphRetainUserObject(gpu.graph, nullptr, 1, 0));
  SHOW(cuGraphReleaseUserObject(gpu.graph, nullptr, 1));
  CUuserObject object = make();
  SHOW(cuGraphRetainUserObject(nullptr, object, 1, 0));
  SHOW(cuGraphReleaseUserObject(nullptr, object, 1));
  SHOW(cuGraphRetainUserObject(gpu.graph, object, 1, 7));
  CU(cuUserObjectRelease(object, 1));
  wait_for(1);
}

CASE(graph_keeps_it) {
  GraphGpu gpu;
  CUuserObject object = make();
  SHOW(cuGraphRetainUserObject(gpu.graph, object, 1, 0));
  SHOW(cuUserObjectRelease(object, 1));
  printf("still there %d\n", destroyed.load() == 0);
  SHOW(cuGraphDestroy(gpu.graph));
  wait_for(1);
}

CASE(moved_to_a_graph) {
  GraphGpu gpu;
  CUuserObject object = make();
  SHOW(cuGraphRetainUserObject(gpu.graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  printf("still there %d\n", destroyed.load() == 0);
  SHOW(cuGraphDestroy(gpu.graph));
  wait_for(1);
}

CASE(released_from_the_graph) {
  GraphGpu gpu;
  CUuserObject object = make();
  CU(cuGraphRetainUserObject(gpu.graph, object, 2, 0));
  SHOW(cuGraphReleaseUserObject(gpu.graph, object, 2));
  printf("still there %d\n", destroyed.load() == 0);
  SHOW(cuUserObjectRelease(object, 1));
  wait_for(1);
}

CASE(clone_keeps_it) {
  GraphGpu gpu;
  CUuserObject object = make();
  CU(cuGraphRetainUserObject(gpu.graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  CUgraph clone = nullptr;
  CU(cuGraphClone(&clone, gpu.graph));
  CU(cuGraphDestroy(gpu.graph));
  printf("still there %d\n", destroyed.load() == 0);
  CU(cuGraphDestroy(clone));
  wait_for(1);
}

CASE(instance_keeps_it) {
  GraphGpu gpu;
  CUgraphNode node = nullptr;
  CU(cuGraphAddEmptyNode(&node, gpu.graph, nullptr, 0));
  CUuserObject object = make();
  CU(cuGraphRetainUserObject(gpu.graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  CUgraphExec exec = gpu.instantiate();
  CU(cuGraphDestroy(gpu.graph));
  printf("still there %d\n", destroyed.load() == 0);
  gpu.run(exec);
  printf("still there %d\n", destroyed.load() == 0);
  CU(cuGraphExecDestroy(exec));
  wait_for(1);
}

CASE(child_graph_keeps_it) {
  GraphGpu gpu;
  CUgraph child = nullptr;
  CU(cuGraphCreate(&child, 0));
  CUuserObject object = make();
  CU(cuGraphRetainUserObject(child, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  CUgraphNode node = nullptr;
  CU(cuGraphAddChildGraphNode(&node, gpu.graph, nullptr, 0, child));
  CU(cuGraphDestroy(child));
  printf("still there %d\n", destroyed.load() == 0);
  CU(cuGraphDestroy(gpu.graph));
  wait_for(1);
}

CASE(many_objects) {
  GraphGpu gpu;
  for (int i = 0; i < 50; ++i) CU(cuGraphRetainUserObject(gpu.graph, make(1, 2), 1, CU_GRAPH_USER_OBJECT_MOVE));
  CU(cuGraphDestroy(gpu.graph));
  wait_for(100);
}

// A collective library makes one for each collective of each captured graph.
CASE(more_objects_than_four_thousand) {
  constexpr int kObjects = 4500;
  GraphGpu gpu;
  for (int i = 0; i < kObjects; ++i) CU(cuGraphRetainUserObject(gpu.graph, make(), 1, CU_GRAPH_USER_OBJECT_MOVE));
  printf("still there %d\n", destroyed.load() == 0);
  CU(cuGraphDestroy(gpu.graph));
  wait_for(kObjects);
}

CASE(objects_one_after_the_other) {
  Gpu gpu;
  for (int i = 0; i < 100; ++i) CU(cuUserObjectRelease(make(), 1));
  wait_for(100);
}

CASE(retained_by_a_capture) {
  GraphGpu gpu;
  CUuserObject object = make();
  gpu.begin();
  CUstreamCaptureStatus status{};
  CUgraph graph = nullptr;
  CU(cuStreamGetCaptureInfo(gpu.stream, &status, nullptr, &graph, nullptr, nullptr, nullptr));
  SHOW(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  CUgraph ended = gpu.end();
  printf("still there %d\n", destroyed.load() == 0);
  CU(cuGraphDestroy(ended));
  wait_for(1);
}
