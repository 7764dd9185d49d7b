// cuIpc*EventHandle: events that several processes record and wait for.
#include "tests/conformance/two_processes.h"

CASES_HOLD_STREAMS;

static CUdeviceptr allocate(size_t bytes) {
  CUdeviceptr pointer = 0;
  CU(cuMemAlloc(&pointer, bytes));
  return pointer;
}

constexpr unsigned kShared = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;

static CUevent create(unsigned flags) {
  CUevent event = nullptr;
  CU(cuEventCreate(&event, flags));
  return event;
}
static CUipcEventHandle handle_of(CUevent event) {
  CUipcEventHandle handle;
  CU(cuIpcGetEventHandle(&handle, event));
  return handle;
}
static CUevent opened(const CUipcEventHandle& handle) {
  CUevent event = nullptr;
  CU(cuIpcOpenEventHandle(&event, handle));
  return event;
}
static CUstream stream() {
  CUstream made = nullptr;
  CU(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
  return made;
}

// A stream that goes on when release() was called.
struct Gate {
  CUdeviceptr flag = allocate(4);
  CUstream held = stream(), other = stream();
  Gate() {
    conformance::a_stream_waits();
    CU(cuMemsetD32(flag, 0, 1));
    CU(cuStreamSynchronize(nullptr));
    CU(cuStreamWaitValue32(held, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  }
  void release() {
    CU(cuStreamWriteValue32(other, flag, 1, 0));
    CU(cuStreamSynchronize(other));
  }
};

CASE(event_flags) {
  Gpu gpu;
  CUevent event = nullptr;
  SHOW(cuEventCreate(&event, CU_EVENT_INTERPROCESS));
  SHOW(cuEventCreate(&event, kShared));
  SHOW(cuEventCreate(&event, kShared | CU_EVENT_BLOCKING_SYNC));
}

CASE(get_event_handle) {
  Gpu gpu;
  CUipcEventHandle handle;
  SHOW(cuIpcGetEventHandle(&handle, create(kShared)));
  SHOW(cuIpcGetEventHandle(nullptr, create(kShared)));
  SHOW(cuIpcGetEventHandle(&handle, nullptr));
  SHOW(cuIpcGetEventHandle(&handle, create(CU_EVENT_DISABLE_TIMING)));
  SHOW(cuIpcGetEventHandle(&handle, create(0)));
}

CASE(get_event_handle_twice) {
  Gpu gpu;
  CUevent event = create(kShared);
  const CUipcEventHandle a = handle_of(event), b = handle_of(event);
  printf("the same %d\n", memcmp(&a, &b, sizeof(a)) == 0);
}

CASE(open_event_in_the_process_that_made_it) {
  Gpu gpu;
  CUevent event = nullptr;
  SHOW(cuIpcOpenEventHandle(&event, handle_of(create(kShared))));
}

CASE(open_event_nonsense) {
  Gpu gpu;
  CUevent event = nullptr;
  CUipcEventHandle handle;
  memset(&handle, 0, sizeof(handle));
  SHOW(cuIpcOpenEventHandle(&event, handle));
  SHOW(cuIpcOpenEventHandle(nullptr, handle));
}

CASE(interprocess_event_in_one_process) {
  Gpu gpu;
  CUevent event = create(kShared);
  SHOW(cuEventQuery(event));
  SHOW(cuEventSynchronize(event));
  Gate gate;
  SHOW(cuEventRecord(event, gate.held));
  SHOW(cuEventQuery(event));
  SHOW(cuStreamWaitEvent(gate.other, event, 0));
  CUstream writer = stream();
  CU(cuStreamWriteValue32(writer, gate.flag, 1, 0));
  SHOW(cuEventSynchronize(event));
  SHOW(cuEventQuery(event));
  SHOW(cuStreamSynchronize(gate.other));
  SHOW(cuEventDestroy(event));
}

CASE(elapsed_time_of_interprocess_events) {
  Gpu gpu;
  CUevent event = create(kShared), plain = create(0);
  CU(cuEventRecord(event, nullptr));
  CU(cuEventRecord(plain, nullptr));
  CU(cuCtxSynchronize());
  float ms = 0;
  SHOW(cuEventElapsedTime(&ms, event, plain));
  SHOW(cuEventElapsedTime(&ms, plain, event));
}

static void waits_for_the_event(Link& link) {
  Gpu gpu;
  CUevent event = nullptr;
  SHOW(cuIpcOpenEventHandle(&event, link.receive<CUipcEventHandle>()));
  SHOW(cuEventQuery(event));
  link.done();
  SHOW(cuEventSynchronize(event));
  SHOW(cuEventQuery(event));
  SHOW(cuEventDestroy(event));
}
CASE(opened_event_waits_for_the_record) {
  Other other(waits_for_the_event);
  Gpu gpu;
  CUevent event = create(kShared);
  Gate gate;
  CU(cuEventRecord(event, gate.held));
  other.link().send(handle_of(event));
  other.link().wait();
  gate.release();
  other.finish();
  SHOW(cuEventSynchronize(event));
}

static void queries_unrecorded(Link& link) {
  Gpu gpu;
  CUevent event = opened(link.receive<CUipcEventHandle>());
  SHOW(cuEventQuery(event));
  SHOW(cuEventSynchronize(event));
  SHOW(cuStreamWaitEvent(nullptr, event, 0));
  SHOW(cuCtxSynchronize());
  link.done();
}
CASE(opened_event_that_was_never_recorded) {
  Other other(queries_unrecorded);
  Gpu gpu;
  CUevent event = create(kShared);
  other.link().send(handle_of(event));
  other.link().wait();
}

static void records_the_event(Link& link) {
  Gpu gpu;
  CUevent event = opened(link.receive<CUipcEventHandle>());
  Gate gate;
  SHOW(cuEventRecord(event, gate.held));
  link.done();
  link.wait();
  gate.release();
  link.done();
  link.wait();
}
CASE(opener_records_for_the_exporter) {
  Other other(records_the_event);
  Gpu gpu;
  CUevent event = create(kShared);
  other.link().send(handle_of(event));
  other.link().wait();
  SHOW(cuEventQuery(event));
  other.link().done();
  SHOW(cuEventSynchronize(event));
  SHOW(cuEventQuery(event));
  other.link().wait();
  other.link().done();
}

// The order of the data: the child's stream waits for the parent's write.
static void copies_behind_the_event(Link& link) {
  Gpu gpu;
  CUevent event = opened(link.receive<CUipcEventHandle>());
  CUdeviceptr pointer = 0;
  CU(cuIpcOpenMemHandle(&pointer, link.receive<CUipcMemHandle>(), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  CUstream reader = stream();
  SHOW(cuStreamWaitEvent(reader, event, 0));
  DeviceArray<unsigned> copy(256);
  CU(cuMemcpyDtoDAsync(copy.pointer, pointer, copy.bytes(), reader));
  SHOW(cuStreamQuery(reader));
  link.done();
  SHOW(cuStreamSynchronize(reader));
  print_hash("what was written", copy.read());
}
CASE(stream_waits_for_an_opened_event) {
  Other other(copies_behind_the_event);
  Gpu gpu;
  CUevent event = create(kShared);
  const CUdeviceptr pointer = allocate(4096);
  CU(cuMemsetD32(pointer, 1, 1024));
  CU(cuCtxSynchronize());
  Gate gate;
  CU(cuMemsetD32Async(pointer, 2, 1024, gate.held));
  CU(cuEventRecord(event, gate.held));
  other.link().send(handle_of(event));
  CUipcMemHandle memory;
  CU(cuIpcGetMemHandle(&memory, pointer));
  other.link().send(memory);
  other.link().wait();
  gate.release();
  other.finish();
}

// A wait is for the record it saw, not for a later one.
static void waits_for_the_first_record(Link& link) {
  Gpu gpu;
  CUevent event = opened(link.receive<CUipcEventHandle>());
  CUstream waiter = stream();
  CU(cuStreamWaitEvent(waiter, event, 0));
  link.done();
  link.wait();
  SHOW(cuStreamSynchronize(waiter));
  SHOW(cuEventQuery(event));
  link.done();
}
CASE(wait_is_for_the_record_it_saw) {
  Other other(waits_for_the_first_record);
  Gpu gpu;
  CUevent event = create(kShared);
  CU(cuEventRecord(event, nullptr));
  CU(cuCtxSynchronize());
  other.link().send(handle_of(event));
  other.link().wait();
  Gate gate;
  CU(cuEventRecord(event, gate.held));
  other.link().done();
  other.link().wait();
  gate.release();
}

static void exports_the_event_again(Link& link) {
  Gpu gpu;
  CUevent event = opened(link.receive<CUipcEventHandle>());
  CUipcEventHandle handle;
  SHOW(cuIpcGetEventHandle(&handle, event));
  link.done();
}
CASE(handle_of_an_opened_event) {
  Other other(exports_the_event_again);
  Gpu gpu;
  CUevent event = create(kShared);
  other.link().send(handle_of(event));
  other.link().wait();
}

static void asks_for_elapsed_time(Link& link) {
  Gpu gpu;
  CUevent event = opened(link.receive<CUipcEventHandle>());
  CUevent own = create(0);
  CU(cuEventRecord(own, nullptr));
  CU(cuEventRecord(event, nullptr));
  CU(cuCtxSynchronize());
  float ms = 0;
  SHOW(cuEventElapsedTime(&ms, own, event));
  SHOW(cuEventDestroy(event));
  link.done();
}
CASE(opened_event_has_no_timing) {
  Other other(asks_for_elapsed_time);
  Gpu gpu;
  CUevent event = create(kShared);
  other.link().send(handle_of(event));
  other.link().wait();
  SHOW(cuEventQuery(event));
  SHOW(cuEventDestroy(event));
}

static void opens_the_event_twice(Link& link) {
  Gpu gpu;
  const auto handle = link.receive<CUipcEventHandle>();
  CUevent first = opened(handle), second = opened(handle);
  printf("apart %d\n", first != second);
  SHOW(cuEventDestroy(first));
  SHOW(cuEventRecord(second, nullptr));
  SHOW(cuEventSynchronize(second));
  link.done();
}
CASE(event_opened_twice) {
  Other other(opens_the_event_twice);
  Gpu gpu;
  CUevent event = create(kShared);
  other.link().send(handle_of(event));
  other.link().wait();
  SHOW(cuEventQuery(event));
}
