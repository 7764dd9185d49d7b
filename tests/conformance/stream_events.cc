// What orders work when asked: events, values in memory; and what streams say about themselves.
#include "tests/conformance/streams.h"

CASES_HOLD_STREAMS;

// ---- events ----

CASE(event_orders_two_streams) {
  Order o;
  Apart a, b;
  Event event;
  o.hold(a);
  o.first(a);
  CU(cuEventRecord(event, a));
  SHOW(cuStreamWaitEvent(b, event, 0));
  o.second(b);
  SHOW(cuStreamQuery(b));
  o.finish();
}
CASE(event_wait_keeps_the_record_it_saw) {
  Order o;
  Apart a, b;
  Event event;
  o.first(a);
  CU(cuEventRecord(event, a));
  CU(cuStreamWaitEvent(b, event, 0));
  o.hold(a);
  CU(cuEventRecord(event, a));
  o.second(b);
  SHOW(cuStreamSynchronize(b));
  SHOW(cuEventQuery(event));
  o.finish();
}
CASE(event_wait_of_a_fresh_event_is_nothing) {
  Order o;
  Apart a, b;
  Event event;
  CU(cuStreamWaitEvent(b, event, 0));
  o.hold(a);
  CU(cuEventRecord(event, a));
  o.first(b);
  SHOW(cuStreamSynchronize(b));
  o.finish();
}
CASE(event_destroyed_while_it_is_waited_for) {
  Order o;
  Apart a, b;
  {
    Event event;
    o.hold(a);
    o.first(a);
    CU(cuEventRecord(event, a));
    CU(cuStreamWaitEvent(b, event, 0));
  }
  o.second(b);
  SHOW(cuStreamQuery(b));
  o.finish();
}
CASE(event_of_a_destroyed_stream) {
  Order o;
  Event event;
  {
    Apart a;
    o.hold(a);
    o.first(a);
    CU(cuEventRecord(event, a));
  }
  SHOW(cuEventQuery(event));
  o.gate.open();
  SHOW(cuEventSynchronize(event));
  SHOW(cuEventQuery(event));
  o.finish();
}
CASE(event_on_legacy_covers_blocking_streams) {
  Order o;
  Blocking a;
  Event event;
  o.hold(a);
  CU(cuEventRecord(event, nullptr));
  SHOW(cuEventQuery(event));
  o.gate.open();
  SHOW(cuEventSynchronize(event));
  SHOW(cuStreamQuery(a));
}
CASE(legacy_waits_for_an_event_of_a_non_blocking_stream) {
  Order o;
  Apart a;
  Event event;
  o.hold(a);
  o.first(a);
  CU(cuEventRecord(event, a));
  CU(cuStreamWaitEvent(nullptr, event, 0));
  o.second(nullptr);
  SHOW(cuStreamQuery(nullptr));
  o.finish();
}
CASE(blocking_stream_behind_a_legacy_event_wait) {
  // The wait is work of the legacy stream: a blocking stream's later work comes behind it.
  Order o;
  Apart a;
  Blocking b;
  Event event;
  o.hold(a);
  o.first(a);
  CU(cuEventRecord(event, a));
  CU(cuStreamWaitEvent(nullptr, event, 0));
  o.second(b);
  SHOW(cuStreamQuery(b));
  o.finish();
}
CASE(event_wait_across_contexts) {
  Order o;
  Apart a;
  Event event;
  o.hold(a);
  CU(cuEventRecord(event, a));
  CUcontext other = nullptr;
  CU(cuCtxCreate(&other, nullptr, 0, 0));
  {
    Apart there;
    SHOW(cuStreamWaitEvent(there, event, 0));
    SHOW(cuStreamQuery(there));
    o.gate.open();
    SHOW(cuStreamSynchronize(there));
    SHOW(cuEventRecord(event, there));
    SHOW(cuEventRecord(event, nullptr));
  }
  CU(cuCtxDestroy(other));
  CU(cuCtxSetCurrent(o.gpu.context));
}
CASE(stream_of_another_context_than_the_current) {
  Order o;
  Apart a;
  CUcontext other = nullptr, owner = nullptr;
  CU(cuCtxCreate(&other, nullptr, 0, 0));
  SHOW(cuStreamQuery(a));
  SHOW(cuStreamSynchronize(a));
  SHOW(cuStreamGetCtx(a, &owner));
  printf("its own context: %s\n", owner == o.gpu.context ? "yes" : "no");
  SHOW(cuMemsetD32Async(o.value.pointer, 9, 1, a));
  SHOW(try_launch(o.kernel, {1}, {32}, 0, a, o.value.pointer, 3u, 1u, 32));
  CU(cuCtxDestroy(other));
  CU(cuCtxSetCurrent(o.gpu.context));
  o.finish();
}
TWO_DEVICES_CASE(event_wait_across_devices) {
  Order o;
  Apart a;
  Event event;
  o.hold(a);
  CU(cuEventRecord(event, a));
  CUcontext other = nullptr;
  CU(cuDevicePrimaryCtxRetain(&other, 1));
  CU(cuCtxPushCurrent(other));
  {
    Apart there;
    CUdeviceptr memory = 0;
    CU(cuMemAlloc(&memory, 4096));
    SHOW(cuStreamWaitEvent(there, event, 0));
    CU(cuMemsetD32Async(memory, 4, 16, there));
    SHOW(cuStreamQuery(there));
    o.gate.open();
    SHOW(cuCtxSynchronize());
    uint32_t word = 0;
    CU(cuMemcpyDtoH(&word, memory, 4));
    printf("there %u\n", word);
    CU(cuMemFree(memory));
  }
  CU(cuCtxPopCurrent(nullptr));
  o.finish();
  CU(cuDevicePrimaryCtxRelease(1));
}
CASE(event_elapsed_time_needs_timing_and_records) {
  Gpu gpu;
  Event timed(CU_EVENT_DEFAULT), second(CU_EVENT_DEFAULT), untimed;
  float ms = -1;
  SHOW(cuEventElapsedTime(&ms, timed, second));
  CU(cuEventRecord(timed, nullptr));
  SHOW(cuEventElapsedTime(&ms, timed, second));
  CU(cuEventRecord(second, nullptr));
  CU(cuEventRecord(untimed, nullptr));
  CU(cuCtxSynchronize());
  SHOW(cuEventElapsedTime(&ms, timed, second));
  printf("not negative: %d\n", ms >= 0);
  SHOW(cuEventElapsedTime(&ms, timed, untimed));
}
CASE(event_elapsed_time_while_the_stream_is_held) {
  Order o;
  Apart a;
  Event start(CU_EVENT_DEFAULT), end(CU_EVENT_DEFAULT);
  float ms = -1;
  CU(cuEventRecord(start, a));
  o.hold(a);
  CU(cuEventRecord(end, a));
  SHOW(cuEventElapsedTime(&ms, start, end));
  o.gate.open();
  CU(cuStreamSynchronize(a));
  SHOW(cuEventElapsedTime(&ms, start, end));
}

// ---- flags and priorities ----

CASE(stream_flags_as_reported) {
  Gpu gpu;
  Blocking blocking;
  Apart apart;
  const struct {
    const char* name;
    CUstream stream;
  } streams[] = {{"legacy", nullptr}, {"legacy handle", CU_STREAM_LEGACY}, {"per-thread", CU_STREAM_PER_THREAD}, {"blocking", blocking}, {"apart", apart}};
  for (const auto& s : streams) {
    unsigned flags = 99;
    int priority = 99;
    const CUresult one = cuStreamGetFlags(s.stream, &flags), two = cuStreamGetPriority(s.stream, &priority);
    printf("%s: %s %u, %s %d\n", s.name, code_name(one), flags, code_name(two), priority);
  }
  CUstream none = nullptr;
  SHOW(cuStreamCreate(&none, 2));
  SHOW(cuStreamCreate(&none, ~0u));
  SHOW(cuStreamCreate(nullptr, 0));
}
CASE(priorities_are_clamped) {
  Gpu gpu;
  int least = 99, greatest = 99;
  SHOW(cuCtxGetStreamPriorityRange(&least, &greatest));
  printf("range is ordered: %d\n", greatest <= least);
  for (int wanted : {greatest, least, greatest - 1, least + 1, -1000, 1000, 0, -1}) {
    CUstream stream = nullptr;
    int got = 99;
    CU(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, wanted));
    CU(cuStreamGetPriority(stream, &got));
    printf("%s\n", got == wanted ? "as asked" : got == greatest ? "greatest" : got == least ? "least" : "other");
    CU(cuStreamDestroy(stream));
  }
}
CASE(priorities_do_not_change_the_order_in_one_stream) {
  Order o;
  int least = 0, greatest = 0;
  CU(cuCtxGetStreamPriorityRange(&least, &greatest));
  CUstream low = nullptr, high = nullptr;
  CU(cuStreamCreateWithPriority(&low, CU_STREAM_DEFAULT, least));
  CU(cuStreamCreateWithPriority(&high, CU_STREAM_DEFAULT, greatest));
  o.hold(low);
  o.first(low);
  o.second(nullptr);
  o.third(high);
  o.finish();
  CU(cuStreamDestroy(low));
  CU(cuStreamDestroy(high));
}

// ---- values in memory ----

CASE(write_value_and_wait_value_order_two_streams) {
  Order o;
  Apart a, b;
  DeviceArray<uint32_t> flag(std::vector<uint32_t>(4, 0));
  CU(cuStreamWaitValue32(b, flag.pointer, 7, CU_STREAM_WAIT_VALUE_EQ));
  o.second(b);
  o.hold(a);
  o.first(a);
  CU(cuStreamWriteValue32(a, flag.pointer, 7, 0));
  SHOW(cuStreamQuery(b));
  o.finish();
}
CASE(wait_value_on_legacy_holds_blocking_streams) {
  Order o;
  Blocking a;
  Apart b;
  o.hold(nullptr);
  o.first(a);
  o.step(b, 1, 0);
  SHOW(cuStreamSynchronize(b));
  SHOW(cuStreamQuery(a));
  o.finish();
}
CASE(wait_value_comparisons) {
  Order o;
  Apart a;
  const struct {
    unsigned flags;
    uint32_t wanted, now;
  } cases[] = {{CU_STREAM_WAIT_VALUE_GEQ, 5, 5},           {CU_STREAM_WAIT_VALUE_GEQ, 5, 6}, {CU_STREAM_WAIT_VALUE_GEQ, 5, 4},
               {CU_STREAM_WAIT_VALUE_GEQ, 5, 0x80000004u}, {CU_STREAM_WAIT_VALUE_GEQ, 5, 0x80000005u},
               {CU_STREAM_WAIT_VALUE_EQ, 5, 5},            {CU_STREAM_WAIT_VALUE_EQ, 5, 6},  {CU_STREAM_WAIT_VALUE_AND, 6, 2},
               {CU_STREAM_WAIT_VALUE_AND, 6, 1},           {CU_STREAM_WAIT_VALUE_NOR, 6, 1}, {CU_STREAM_WAIT_VALUE_NOR, 0xfffffffeu, 1}};
  for (const auto& c : cases) {
    *o.gate.word = c.now;
    Apart held;
    CU(cuStreamWaitValue32(held, o.gate.address, c.wanted, c.flags));
    // What passes at all passes while a step of another stream is done and waited for; what does
    // not is let through below.
    bool passes = false;
    for (int i = 0; i < 200 && !passes; ++i) {
      o.step(a, 1, 0);
      CU(cuStreamSynchronize(a));
      passes = cuStreamQuery(held) == CUDA_SUCCESS;
    }
    printf("flags %u, %u with %u: %s\n", c.flags, c.wanted, c.now, passes ? "passes" : "waits");
    *o.gate.word = c.flags == CU_STREAM_WAIT_VALUE_NOR ? 0 : c.wanted;
    CU(cuStreamSynchronize(held));
  }
}
