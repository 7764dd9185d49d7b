// What libtube answers to uses of an object that are none, and to those of threads and streams that
// are not what they were when it was got; uses_test.py runs each. "equal" at the end.
//
//   misuse    seals and releases of what is not the caller's, or not any more
//   put       bytes of pinned, pageable and GPU memory, read when the call returns
//   threads   seals, puts and releases in a thread without a context
//   order     such a release comes behind what the program's default stream has
//   drop      owners that end while their stream captures, and when it is gone
//   blocking  an owner that ends while a blocking stream captures leaves that capture alone
//   callback  owners that end in host functions, and what waits while one runs
//   others    an end that waits for the GPU stops no other call
//   contexts  ends come behind the context of their own get
//   all       an end whose stream is gone waits for all contexts
//   given_up  memory that kernels write to, given up
//   captured  puts on a stream that captures
//   alone     without a proxy: puts from GPU memory, and behind a stream
//   stop      waits for stdin's end, by which the proxy has stopped
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "libtube/tube.hpp"
#include "tests/programs/common.h"

namespace {

#define TUBE(call) must(#call, call)
void must(const char* what, int result) {
  if (result == TUBE_OK) return;
  fprintf(stderr, "%s answers %d: %s\n", what, result, tube_error());
  exit(1);
}

constexpr uint64_t kBytes = 1u << 20;

CUdeviceptr address(const tube_object& object) {
  return reinterpret_cast<CUdeviceptr>(object.data);
}

tube_spec spec_of(const char* name, tube_place place, uint32_t consumers = 0) {
  tube_spec spec{};
  spec.name = name;
  spec.bytes = kBytes;
  spec.place = place;
  spec.consumers = consumers;
  return spec;
}

tube_object reserve(const char* name, tube_place place) {
  const tube_spec spec = spec_of(name, place);
  tube_object object;
  TUBE(tube_reserve(&spec, &object));
  return object;
}

template <class F>
void elsewhere(F f) {
  std::thread(f).join();
}

// Each is an error of that call alone.
void run_misuse() {
  for (const tube_place place : {TUBE_HOST, TUBE_GPU}) {
    tube_object x = reserve("x", place), taken{};
    const tube_object zeroed{};
    EXPECT(tube_seal(&zeroed, TUBE_NOW) == TUBE_INVALID);
    EXPECT(tube_release(&zeroed, TUBE_NOW) == TUBE_INVALID);
    TUBE(tube_seal(&x, nullptr));
    EXPECT(tube_seal(&x, nullptr) == TUBE_INVALID);
    EXPECT(tube_seal(&x, TUBE_NOW) == TUBE_INVALID);
    EXPECT(tube_release(&x, TUBE_NOW) == TUBE_INVALID);
    TUBE(tube_get("x", TUBE_ANY, nullptr, &taken));
    EXPECT(tube_seal(&taken, TUBE_NOW) == TUBE_INVALID);
    TUBE(tube_release(&taken, nullptr));
    EXPECT(tube_release(&taken, nullptr) == TUBE_INVALID);
    TUBE(tube_delete("x"));
    x = reserve("x", place);
    TUBE(tube_release(&x, nullptr));
    EXPECT(tube_release(&x, nullptr) == TUBE_INVALID);
    EXPECT(tube_seal(&x, nullptr) == TUBE_INVALID);
    CU(cuCtxSynchronize());
  }
}

bool holds(const char* name, unsigned char value) {
  tube_object object;
  std::vector<unsigned char> seen(kBytes);
  TUBE(tube_get(name, TUBE_GPU, nullptr, &object));
  CU(cuMemcpyDtoH(seen.data(), address(object), kBytes));
  TUBE(tube_release(&object, nullptr));
  for (const unsigned char byte : seen) {
    if (byte != value) return false;
  }
  return true;
}

void run_put() {
  unsigned char* pinned = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), kBytes, 0));
  std::vector<unsigned char> pageable(kBytes);
  DeviceArray<unsigned char> on_gpu(kBytes);
  for (const tube_place place : {TUBE_GPU, TUBE_HOST}) {
    const tube_spec spec = spec_of("x", place);
    for (unsigned char value = 1; value < 4; ++value) {
      for (unsigned char* bytes : {pinned, pageable.data()}) {
        memset(bytes, value, kBytes);
        TUBE(tube_put(&spec, bytes, TUBE_NOW));
        memset(bytes, 99, kBytes);
        EXPECT(holds("x", value));
        TUBE(tube_delete("x"));
      }
      CU(cuMemsetD8(on_gpu.pointer, value, kBytes));
      CU(cuCtxSynchronize());
      TUBE(tube_put(&spec, reinterpret_cast<void*>(on_gpu.pointer), TUBE_NOW));
      CU(cuMemsetD8(on_gpu.pointer, 99, kBytes));
      EXPECT(holds("x", value));
      TUBE(tube_delete("x"));
    }
  }
  // Nobody copies what only a GPU reaches, where there is none.
  elsewhere([&] {
    const tube_spec spec = spec_of("x", TUBE_HOST);
    EXPECT(tube_put(&spec, reinterpret_cast<void*>(on_gpu.pointer), TUBE_NOW) == TUBE_NO_GPU);
  });
  const tube_spec spec = spec_of("x", TUBE_HOST);
  TUBE(tube_put(&spec, pageable.data(), TUBE_NOW));
  TUBE(tube_delete("x"));
}

void run_threads() {
  const std::vector<unsigned char> bytes(kBytes, 7);
  for (const tube_place place : {TUBE_HOST, TUBE_GPU}) {
    const tube_object made = reserve("sealed there", place);
    CU(cuMemcpyHtoD(address(made), bytes.data(), kBytes));
    elsewhere([&] { TUBE(tube_seal(&made, nullptr)); });
    EXPECT(holds("sealed there", 7));
    TUBE(tube_delete("sealed there"));
    const tube_object given_up = reserve("given up there", place);
    elsewhere([&] { TUBE(tube_release(&given_up, nullptr)); });
    const tube_spec once = spec_of("once", place, 1);
    for (int i = 0; i < 8; ++i) {  // many more than fit
      TUBE(tube_put(&once, bytes.data(), nullptr));
      tube::Object object = tube::get("once", TUBE_ANY, nullptr);
      elsewhere([&] { const tube::Object mine(std::move(object)); });
      EXPECT(tube_delete("once") == TUBE_NOT_FOUND);
    }
  }
  elsewhere([&] {
    for (const tube_place place : {TUBE_HOST, TUBE_ANY}) {
      const tube_spec spec = spec_of("put there", place);
      TUBE(tube_put(&spec, bytes.data(), nullptr));
      tube_object object;
      TUBE(tube_get("put there", TUBE_ANY, nullptr, &object));
      EXPECT(memcmp(object.data, bytes.data(), kBytes) == 0);
      TUBE(tube_release(&object, nullptr));
      TUBE(tube_delete("put there"));
    }
  });
}

// The word of the wait is written when the memory may have gone to the next object.
void run_order() {
  uint32_t* word = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&word), sizeof *word, 0));
  DeviceArray<unsigned char> copy(kBytes);
  for (const tube_place place : {TUBE_HOST, TUBE_GPU}) {
    const std::vector<unsigned char> bytes(kBytes, 7);
    const tube_spec spec = spec_of("x", place);
    TUBE(tube_put(&spec, bytes.data(), TUBE_NOW));
    tube_object x;
    TUBE(tube_get("x", TUBE_ANY, CU_STREAM_LEGACY, &x));
    *word = 0;
    CU(cuStreamWaitValue32(CU_STREAM_LEGACY, reinterpret_cast<CUdeviceptr>(word), 1,
                           CU_STREAM_WAIT_VALUE_GEQ));
    CU(cuMemcpyAsync(copy.pointer, address(x), kBytes, CU_STREAM_LEGACY));
    elsewhere([&] { TUBE(tube_release(&x, nullptr)); });
    TUBE(tube_delete("x"));
    const tube_object next = reserve("y", place), another = reserve("z", place);
    EXPECT(next.data != x.data && another.data != x.data);
    std::atomic_ref(*word).store(1);
    CU(cuCtxSynchronize());
    const std::vector<unsigned char> seen = copy.read();
    EXPECT(seen[0] == 7 && seen[kBytes - 1] == 7);
    TUBE(tube_release(&next, TUBE_NOW));
    TUBE(tube_release(&another, TUBE_NOW));
  }
}

void run_drop() {
  const std::vector<unsigned char> bytes(kBytes, 7);
  const tube_spec once = spec_of("once", TUBE_GPU, 1);
  tube_object seen;
  for (const bool ends : {false, true}) {
    CUstream stream = nullptr;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    TUBE(tube_put(&once, bytes.data(), TUBE_NOW));
    {
      tube::Object object = tube::get("once", TUBE_GPU, stream);
      if (ends) CU(cuStreamDestroy(stream));
      else CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
      EXPECT(tube_release(&object.get(), stream) != TUBE_OK);
    }
    if (!ends) {
      CUgraph graph = nullptr;
      TUBE(tube_peek("once", &seen));
      CU(cuStreamEndCapture(stream, &graph));
      CU(cuGraphDestroy(graph));
    }
    EXPECT(tube_delete("once") == TUBE_NOT_FOUND);
  }
}

uint32_t* new_word() {
  uint32_t* word = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&word), sizeof *word, 0));
  *word = 0;
  return word;
}

// The stream stands until the word is written.
void hold(CUstream stream, uint32_t* word) {
  CU(cuStreamWaitValue32(stream, reinterpret_cast<CUdeviceptr>(word), 1, CU_STREAM_WAIT_VALUE_GEQ));
}
void let_go(uint32_t* word) { std::atomic_ref(*word).store(1); }

CUstream new_stream(unsigned flags) {
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, flags));
  return stream;
}

tube::Object put_and_get(tube_stream stream) {
  const std::vector<unsigned char> bytes(kBytes, 7);
  const tube_spec once = spec_of("once", TUBE_GPU, 1);
  TUBE(tube_put(&once, bytes.data(), TUBE_NOW));
  return tube::get("once", TUBE_GPU, stream);
}

void end_capture(CUstream stream) {
  CUgraph graph = nullptr;
  CU(cuStreamEndCapture(stream, &graph));
  CU(cuGraphDestroy(graph));
}

void run_blocking() {
  DeviceArray<unsigned char> array(kBytes);
  const CUstream stream = new_stream(CU_STREAM_DEFAULT);
  tube_object seen;
  {
    const tube::Object object = put_and_get(nullptr);
    CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CU(cuMemsetD8Async(array.pointer, 1, kBytes, stream));
  }
  TUBE(tube_peek("once", &seen));
  end_capture(stream);
  EXPECT(tube_delete("once") == TUBE_NOT_FOUND);
}

void run_callback() {
  auto* object = new tube::Object(put_and_get(nullptr));
  const auto end = [](void* it) { delete static_cast<tube::Object*>(it); };
  CU(cuLaunchHostFunc(nullptr, end, object));
  CU(cuCtxSynchronize());
  EXPECT(tube_delete("once") == TUBE_NOT_FOUND);
  const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  {
    const tube::Object captured = put_and_get(stream);
    CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  }
  CU(cuLaunchHostFunc(
      nullptr, [](void*) { (void)tube_connected(); }, nullptr));
  CU(cuStreamSynchronize(nullptr));
  end_capture(stream);
  EXPECT(tube_delete("once") == TUBE_NOT_FOUND);
}

void run_others() {
  uint32_t* word = new_word();
  const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  const CUstream other = new_stream(CU_STREAM_NON_BLOCKING);
  {
    const tube::Object object = put_and_get(stream);
    CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  }
  end_capture(stream);
  CU(cuStreamDestroy(stream));
  hold(other, word);
  tube_object seen;
  for (int i = 0; i < 3; ++i) TUBE(tube_peek("once", &seen));
  let_go(word);
  CU(cuCtxSynchronize());
  EXPECT(tube_delete("once") == TUBE_NOT_FOUND);
}

void expect_not_reused(const void* data) {
  const tube_object next = reserve("y", TUBE_GPU), another = reserve("z", TUBE_GPU);
  EXPECT(next.data != data && another.data != data);
  TUBE(tube_release(&next, TUBE_NOW));
  TUBE(tube_release(&another, TUBE_NOW));
}

CUcontext new_context() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CU(cuCtxGetDevice(&device));
  CU(cuCtxCreate(&context, nullptr, 0, device));
  return context;
}

void run_contexts() {
  CUcontext first = nullptr;
  CU(cuCtxGetCurrent(&first));
  const CUcontext second = new_context();
  for (const bool there : {false, true}) {  // the end is in a thread without a context
    CU(cuCtxSetCurrent(first));
    uint32_t* word = new_word();
    const void* data = nullptr;
    {
      tube::Object object = put_and_get(CU_STREAM_LEGACY);
      data = object.data();
      hold(CU_STREAM_LEGACY, word);
      CU(cuCtxSetCurrent(second));
      tube::get("once", TUBE_GPU, nullptr).release(TUBE_NOW);
      if (there) elsewhere([&] { const tube::Object mine(std::move(object)); });
    }
    (void)tube_delete("once");
    expect_not_reused(data);
    let_go(word);
    CU(cuCtxSetCurrent(first));
    CU(cuCtxSynchronize());
  }
}

// Lets the stream go when other calls of the library have been made, which nothing stops.
std::thread lets_go_later(uint32_t* word) {
  return std::thread([word] {
    tube_object seen;
    for (int i = 0; i < 200; ++i) (void)tube_peek("nothing", &seen);
    let_go(word);
  });
}

void run_all() {
  CUcontext first = nullptr;
  CUevent done = nullptr;
  CU(cuCtxGetCurrent(&first));
  const CUcontext second = new_context();
  const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);  // of the second
  CU(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
  CU(cuCtxSetCurrent(first));
  uint32_t* word = new_word();
  std::thread other;
  {
    const tube::Object object = put_and_get(stream);
    CU(cuCtxSetCurrent(second));
    hold(stream, word);
    CU(cuEventRecord(done, stream));
    CU(cuStreamDestroy(stream));
    CU(cuCtxSetCurrent(first));
    other = lets_go_later(word);
  }
  CU(cuEventQuery(done));
  other.join();
  EXPECT(tube_delete("once") == TUBE_NOT_FOUND);
  CU(cuCtxSetCurrent(second));
  CU(cuCtxDestroy(second));
}

void run_given_up() {
  CUevent done = nullptr;
  CU(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
  uint32_t* word = new_word();
  const CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  std::thread other;
  {
    const tube::Reserved made =
        tube::reserve(tube::Spec("x").bytes(kBytes).place(TUBE_GPU).consumers(1));
    hold(stream, word);
    CU(cuMemsetD8Async(address(made.get()), 9, kBytes, stream));
    CU(cuEventRecord(done, stream));
    other = lets_go_later(word);
  }
  CU(cuEventQuery(done));
  other.join();
  const tube_object again = reserve("x", TUBE_GPU);
  TUBE(tube_release(&again, TUBE_NOW));
}

void run_captured() {
  unsigned char* pinned = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), kBytes, 0));
  const CUstream stream = new_stream(CU_STREAM_DEFAULT);
  for (const tube_place place : {TUBE_GPU, TUBE_HOST}) {
    const tube_spec x = spec_of("x", place);
    CUgraph graph = nullptr;
    size_t nodes = 0;
    CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    EXPECT(tube_put(&x, pinned, stream) == TUBE_FAILED);
    EXPECT(tube_put(&x, pinned, CU_STREAM_LEGACY) == TUBE_FAILED);
    CU(cuStreamEndCapture(stream, &graph));
    CU(cuGraphGetNodes(graph, nullptr, &nodes));
    EXPECT(nodes == 0);
    CU(cuGraphDestroy(graph));
    TUBE(tube_put(&x, pinned, stream));
    TUBE(tube_delete("x"));
  }
}

void run_alone() {
  EXPECT(tube_connected() == 0);
  CUstream stream = nullptr;
  unsigned char* pinned = nullptr;
  DeviceArray<unsigned char> on_gpu(kBytes);
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), kBytes, 0));
  for (const tube_stream behind : {static_cast<tube_stream>(stream), TUBE_NOW}) {
    for (const bool direct : {true, false}) {
      memset(pinned, 0, kBytes);
      CU(cuMemsetD8Async(on_gpu.pointer, 7, kBytes, stream));
      CU(cuMemcpyDtoHAsync(pinned, on_gpu.pointer, kBytes, stream));
      if (behind == TUBE_NOW) CU(cuStreamSynchronize(stream));
      TUBE(tube_store("x", direct ? reinterpret_cast<void*>(on_gpu.pointer) : pinned, kBytes,
                      behind));
      tube_object x;
      TUBE(tube_get("x", TUBE_ANY, TUBE_NOW, &x));
      for (uint64_t i = 0; i < kBytes; ++i) EXPECT(static_cast<unsigned char*>(x.data)[i] == 7);
      TUBE(tube_release(&x, TUBE_NOW));
      TUBE(tube_delete("x"));
    }
  }
  // Behind a stream, though the thread has no context for it; or not at all.
  uint32_t* word = new_word();
  memset(pinned, 0, kBytes);
  hold(stream, word);
  CU(cuMemcpyDtoHAsync(pinned, on_gpu.pointer, kBytes, stream));
  std::thread other = lets_go_later(word);
  elsewhere([&] {
    tube_object x;
    if (tube_store("x", pinned, kBytes, stream) != TUBE_OK) return;
    TUBE(tube_get("x", TUBE_ANY, TUBE_NOW, &x));
    EXPECT(static_cast<unsigned char*>(x.data)[kBytes - 1] == 7);
    TUBE(tube_release(&x, TUBE_NOW));
    TUBE(tube_delete("x"));
  });
  other.join();
  CU(cuStreamSynchronize(stream));
  elsewhere([&] {
    EXPECT(tube_store("x", reinterpret_cast<void*>(on_gpu.pointer), kBytes, TUBE_NOW) ==
           TUBE_NO_GPU);
    EXPECT(tube_delete("x") == TUBE_NOT_FOUND);
  });
}

void run_stop() {
  tube_object x;
  const tube_spec spec = spec_of("x", TUBE_HOST);
  const std::vector<unsigned char> bytes(kBytes, 7);
  TUBE(tube_put(&spec, bytes.data(), TUBE_NOW));
  TUBE(tube_get("x", TUBE_ANY, TUBE_NOW, &x));
  printf("here\n");
  fflush(stdout);
  char c;
  while (read(0, &c, 1) > 0) {
  }
  EXPECT(tube_wait("never", TUBE_ANY, TUBE_NOW, TUBE_FOREVER, &x) == TUBE_GONE);
  EXPECT(tube_put(&spec, bytes.data(), TUBE_NOW) == TUBE_GONE);
  EXPECT(tube_delete("x") == TUBE_GONE);
}

}  // namespace

int main(int, char** argv) {
  const std::string scene = argv[1];
  CUdevice device = 0;
  CUcontext context = nullptr;
  CU(cuInit(0));
  CU(cuDeviceGet(&device, 0));
  CU(cuDevicePrimaryCtxRetain(&context, device));
  CU(cuCtxSetCurrent(context));
  if (scene == "misuse") run_misuse();
  else if (scene == "put") run_put();
  else if (scene == "threads") run_threads();
  else if (scene == "order") run_order();
  else if (scene == "drop") run_drop();
  else if (scene == "blocking") run_blocking();
  else if (scene == "callback") run_callback();
  else if (scene == "others") run_others();
  else if (scene == "contexts") run_contexts();
  else if (scene == "all") run_all();
  else if (scene == "given_up") run_given_up();
  else if (scene == "captured") run_captured();
  else if (scene == "alone") run_alone();
  else if (scene == "stop") run_stop();
  else return 2;
  printf("equal\n");
  return 0;
}
